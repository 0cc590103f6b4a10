//! Device faults on demand, so that tests can fail the n-th disk call for every n.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// What happens to a disk call instead of its success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with this error number (`libc::EIO`, `libc::EINTR`…).
    Errno(i32),
    /// A read transfers at most this many bytes (at least one page). Opening is not affected.
    Short(usize),
}

/// A schedule of [`Fault`]s over the disk calls of one engine, counted from 0 in the order they are made.
///
/// A disk call is one `open` or one device operation. A device operation that serves several merged reads
/// and fails is repeated for each of them alone, so that one bad sector fails one read only: a single
/// fault is then invisible from outside. Set `merge_bytes_max` to one page, or fail every call
/// from the n-th on, to see it.
#[derive(Debug, Default)]
pub struct FaultPlan {
    calls: AtomicU64,
    rules: Mutex<Vec<Rule>>,
}

#[derive(Debug, Clone, Copy)]
struct Rule {
    first: u64,
    count: u64,
    fault: Fault,
}

impl FaultPlan {
    /// No faults; counts calls.
    pub fn none() -> Self {
        Self::default()
    }

    /// Only the n-th call.
    pub fn nth(n: u64, fault: Fault) -> Self {
        Self::none().with(n, 1, fault)
    }

    /// Adds `count` faulty calls starting with call `first`. The first matching rule applies.
    pub fn with(self, first: u64, count: u64, fault: Fault) -> Self {
        self.rules.lock().push(Rule {
            first,
            count,
            fault,
        });
        self
    }

    /// Disk calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Counts one call and says what is to happen to it.
    pub(super) fn next(&self) -> Option<Fault> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let applies = |rule: &&Rule| call >= rule.first && call - rule.first < rule.count;
        self.rules
            .lock()
            .iter()
            .find(applies)
            .map(|rule| rule.fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_planned_calls_fail() {
        let plan = FaultPlan::nth(1, Fault::Errno(5)).with(3, 2, Fault::Short(1));
        let drawn: Vec<_> = (0..6).map(|_| plan.next()).collect();
        let (error, short) = (Some(Fault::Errno(5)), Some(Fault::Short(1)));
        assert_eq!(drawn, [None, error, None, short, short, None]);
        assert_eq!(plan.calls(), 6);
    }

    #[test]
    fn a_plan_from_n_on_never_recovers() {
        let plan = FaultPlan::none().with(2, u64::MAX, Fault::Errno(5));
        let failed = (0..100).filter(|_| plan.next().is_some()).count();
        assert_eq!(failed, 98);
    }
}
