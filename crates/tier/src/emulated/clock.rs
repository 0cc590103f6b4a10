//! A clock fine enough for waiting a few hundred nanoseconds.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

/// Waits longer than this are slept for their larger part.
const SLEEP_NS_MIN: u64 = 300_000;
/// What a sleeping thread may oversleep by.
const SLEEP_MARGIN_NS: u64 = 150_000;
const LAST_STRETCH_NS: u64 = 300;
/// How long the tick rate is measured for.
const CALIBRATION: Duration = Duration::from_millis(20);
/// A thread is rarely interrupted this often in a row.
const READING_COUNT: usize = 32;
/// Waits end late by tens of nanoseconds. A larger figure is that of a busy machine.
pub(super) const LATE_NS_MAX: u64 = 1_000;

/// Nanoseconds since it was made.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    ticks: Option<Ticks>,
    /// By how much a wait ends late on average, measured by the waiting threads.
    late_ns: u64,
}

/// The CPU's counter, if it runs at a constant rate.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    start: u64,
    per_ns: f64,
}

impl Clock {
    /// A clock that starts now. Takes a few tens of milliseconds, in which the rate of the CPU's counter is measured.
    pub fn calibrated() -> Self {
        let first = ClockReading::take();
        let ticks = first.as_ref().and_then(|first| {
            thread::sleep(CALIBRATION);
            Ticks::between(first, &ClockReading::take()?)
        });
        Self {
            start: first.map_or_else(Instant::now, |first| first.time),
            ticks,
            late_ns: 0,
        }
    }

    /// Nanoseconds since the clock was made.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        match (self.ticks, counter()) {
            (Some(ticks), Some(now)) => {
                (now.wrapping_sub(ticks.start) as f64 / ticks.per_ns) as u64
            }
            _ => u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Returns when the clock shows this time; short waits keep the CPU busy.
    #[inline]
    pub fn wait_until(&self, end_ns: u64) {
        let end_ns = end_ns.saturating_sub(self.late_ns);
        let left_ns = end_ns.saturating_sub(self.now_ns());
        if left_ns > SLEEP_NS_MIN {
            thread::sleep(Duration::from_nanos(left_ns - SLEEP_MARGIN_NS));
        }
        // The CPU's pause instruction takes tens of nanoseconds: too coarse for the last stretch.
        while self.now_ns() + LAST_STRETCH_NS < end_ns {
            hint::spin_loop();
        }
        while self.now_ns() < end_ns {}
    }

    /// Ends all waits earlier by what they were found to be late, unless that is the lateness of a busy machine.
    pub(super) fn correct_by(&mut self, late_ns: u64) {
        if late_ns <= LATE_NS_MAX {
            self.late_ns = late_ns;
        }
    }
}

impl Ticks {
    /// The rate between two readings; `None` for a counter that stops or jumps.
    fn between(first: &ClockReading, last: &ClockReading) -> Option<Self> {
        let passed_ns = (last.time - first.time).as_nanos() as f64;
        let per_ns = last.ticks.wrapping_sub(first.ticks) as f64 / passed_ns;
        (0.1..20.0).contains(&per_ns).then_some(Self {
            start: first.ticks,
            per_ns,
        })
    }
}

/// The counter and the time, read one right after the other.
struct ClockReading {
    time: Instant,
    ticks: u64,
}

impl ClockReading {
    /// An interruption between the two would make the clock run fast or slow, so of several readings the one that took
    /// least time counts. `None` without a counter.
    fn take() -> Option<Self> {
        let once = |_| {
            let time = Instant::now();
            let ticks = counter()?;
            Some((time.elapsed(), Self { time, ticks }))
        };
        let readings = (0..READING_COUNT).filter_map(once);
        let (_, reading) = readings.min_by_key(|(took, _)| *took)?;
        Some(reading)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> Option<u64> {
    use std::arch::x86_64::{__cpuid, _rdtsc};
    use std::sync::LazyLock;

    /// Leaf 0x8000_0007, EDX bit 8: the counter runs at the same rate in all states of all cores.
    static INVARIANT: LazyLock<bool> = LazyLock::new(|| {
        __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
    });
    // SAFETY: Every x86-64 CPU has the counter, and reading it touches no memory.
    INVARIANT.then(|| unsafe { _rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_as_fast_as_the_system_s() {
        let clock = Clock::calibrated();
        let (Some(ticks), Some(reading)) = (clock.ticks, ClockReading::take()) else {
            return;
        };
        let passed_ns = (reading.time - clock.start).as_nanos() as f64;
        let shown_ns = reading.ticks.wrapping_sub(ticks.start) as f64 / ticks.per_ns;
        assert!(
            (shown_ns / passed_ns - 1.0).abs() < 1e-3,
            "{shown_ns} {passed_ns}"
        );
    }

    #[test]
    fn the_lateness_of_a_busy_machine_corrects_nothing() {
        let mut clock = Clock::calibrated();
        clock.correct_by(LATE_NS_MAX);
        clock.correct_by(LATE_NS_MAX + 1);
        assert_eq!(clock.late_ns, LATE_NS_MAX);
    }
}
