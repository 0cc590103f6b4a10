//! The clock by which uses become rates, the same for columns, index blocks, metadata and look-ups.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// A pause in which nothing is used counts for at most this long, in nanoseconds: how long no query came says nothing
/// about those that will come.
const PAUSE_NS_MAX: u64 = 60_000_000_000;

/// Nanoseconds since some moment.
type Source = Box<dyn Fn() -> u64 + Send + Sync>;

/// Seconds in which a cache was in use. Anything that is used moves it on; in a pause it stops after a minute:
/// nothing loses its value over night, and what loses value does so at the same rate as everything else. Lock-free.
pub struct UseClock {
    source: Source,
    /// When something was last used.
    used_ns: AtomicU64,
    /// What pauses had beyond their limit.
    cut_ns: AtomicU64,
}

impl Default for UseClock {
    fn default() -> Self {
        let origin = Instant::now();
        Self::of(move || u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl UseClock {
    /// A clock over another source of time, in nanoseconds, for time that is simulated.
    pub fn of(source: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self {
            used_ns: source().into(),
            source: Box::new(source),
            cut_ns: 0.into(),
        }
    }

    /// Seconds of use so far.
    pub fn now_s(&self) -> f64 {
        let now_ns = (self.source)();
        let pause_ns = now_ns.saturating_sub(self.used_ns.load(Relaxed));
        let cut_ns = self.cut_ns.load(Relaxed) + pause_ns.saturating_sub(PAUSE_NS_MAX);
        now_ns.saturating_sub(cut_ns) as f64 * 1e-9
    }

    /// Something is used now. Returns the seconds of use so far.
    pub fn note_use(&self) -> f64 {
        let now_ns = (self.source)();
        // Of several that end a pause, one finds how long it was.
        let pause_ns = now_ns.saturating_sub(self.used_ns.swap(now_ns, Relaxed));
        let cut_ns = pause_ns.saturating_sub(PAUSE_NS_MAX);
        let cut_ns = self.cut_ns.fetch_add(cut_ns, Relaxed) + cut_ns;
        now_ns.saturating_sub(cut_ns) as f64 * 1e-9
    }
}

impl fmt::Debug for UseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UseClock({} s)", self.now_s())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_pause_counts_for_a_minute_and_time_in_use_in_full() {
        let time_ns = Arc::new(AtomicU64::new(5_000_000_000));
        let source = Arc::clone(&time_ns);
        let clock = UseClock::of(move || source.load(Relaxed));
        let at = |seconds: u64| time_ns.store(seconds * 1_000_000_000, Relaxed);
        assert_eq!(clock.now_s(), 5.0);
        at(35);
        assert_eq!(clock.note_use(), 35.0);
        // Ten hours at night.
        at(36_035);
        assert_eq!((clock.now_s(), clock.now_s()), (95.0, 95.0));
        assert_eq!(clock.note_use(), 95.0);
        at(36_036);
        assert_eq!(clock.now_s(), 96.0);
        // Ten minutes of a query that shows at times that it runs.
        (36_037..=36_637).for_each(|second| {
            at(second);
            clock.note_use();
        });
        assert_eq!(clock.now_s(), 697.0);
        at(0);
        assert!(clock.note_use() >= 0.0, "a source that jumps back");
    }
}
