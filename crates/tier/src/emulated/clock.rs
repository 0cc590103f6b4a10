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

/// Nanoseconds since it was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
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
    pub(super) fn calibrated() -> Self {
        let mut clock = Self {
            start: Instant::now(),
            ticks: None,
            late_ns: 0,
        };
        if let Some(first) = counter() {
            thread::sleep(CALIBRATION);
            let passed_ns = clock.start.elapsed().as_nanos() as f64;
            let last = counter().unwrap_or(first);
            let per_ns = last.wrapping_sub(first) as f64 / passed_ns;
            // A counter that stops or jumps is not used.
            clock.ticks = (0.1..20.0).contains(&per_ns).then_some(Ticks {
                start: first,
                per_ns,
            });
        }
        clock
    }

    pub(super) fn now_ns(&self) -> u64 {
        match (self.ticks, counter()) {
            (Some(ticks), Some(now)) => {
                (now.wrapping_sub(ticks.start) as f64 / ticks.per_ns) as u64
            }
            _ => u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    pub(super) fn wait_until(&self, end_ns: u64) {
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

    /// Ends all waits earlier by what they were found to be late.
    pub(super) fn correct_by(&mut self, late_ns: u64) {
        self.late_ns += late_ns;
    }
}

#[cfg(target_arch = "x86_64")]
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
