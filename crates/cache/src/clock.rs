//! The clock by which uses become rates, the same for columns, index blocks, metadata and look-ups.

use parking_lot::Mutex;
use std::fmt;
use std::time::Instant;

/// A pause in which nothing is used counts for at most this long, in nanoseconds: how long no query came says nothing
/// about those that will come.
const PAUSE_NS_MAX: u64 = 60_000_000_000;

/// Nanoseconds since some moment.
type Source = Box<dyn Fn() -> u64 + Send + Sync>;

/// Seconds in which a cache was in use. Anything that is used moves it on; in a pause it stops after a minute:
/// nothing loses its value over night, and what loses value does so at the same rate as everything else.
pub struct UseClock {
    source: Source,
    state: Mutex<ClockState>,
}

struct ClockState {
    /// When something was last used.
    used_ns: u64,
    /// What pauses had beyond their limit.
    cut_ns: u64,
}

impl ClockState {
    /// What pauses have beyond their limit, the one included that lasts until now.
    fn cut_ns(&self, now_ns: u64) -> u64 {
        let pause_ns = now_ns.saturating_sub(self.used_ns);
        self.cut_ns + pause_ns.saturating_sub(PAUSE_NS_MAX)
    }
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
            state: Mutex::new(ClockState {
                used_ns: source(),
                cut_ns: 0,
            }),
            source: Box::new(source),
        }
    }

    /// Seconds of use so far.
    pub fn now_s(&self) -> f64 {
        let state = self.state.lock();
        let now_ns = (self.source)();
        now_ns.saturating_sub(state.cut_ns(now_ns)) as f64 * 1e-9
    }

    /// Something is used now. Returns the seconds of use so far.
    pub fn note_use(&self) -> f64 {
        let mut state = self.state.lock();
        let now_ns = (self.source)();
        *state = ClockState {
            cut_ns: state.cut_ns(now_ns),
            used_ns: now_ns.max(state.used_ns),
        };
        now_ns.saturating_sub(state.cut_ns) as f64 * 1e-9
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
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn of_several_that_end_a_pause_none_sees_more_than_its_limit() {
        let time_ns = Arc::new(AtomicU64::new(0));
        let source = Arc::clone(&time_ns);
        let clock = UseClock::of(move || source.load(Relaxed));
        for hour in 1..=200 {
            time_ns.store(hour * 3_600_000_000_000, Relaxed);
            let most_s = 60.0 * hour as f64 + 1e-6;
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| assert!(clock.note_use() <= most_s && clock.now_s() <= most_s));
                }
            });
        }
    }

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
