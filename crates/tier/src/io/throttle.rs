//! Holds the engine to a bandwidth. Pure: time is an argument.
//!
//! Two rules, both on the start of operations. A token bucket spreads them: it fills at the rate of the cap, holds at
//! most [`BURST_NS`] worth, so that a thread that was late can catch up, and may go into debt by one
//! operation. A window keeps the promise: in no second do operations of more bytes start than the cap allows.

use std::collections::VecDeque;

use super::PAGE_BYTES;

const NS_PER_S: u64 = 1_000_000_000;
/// A full bucket is worth this much time: the longest delay of the thread that costs no bandwidth.
const BURST_NS: u64 = 45_000_000;
/// Operations are made small enough to be worth at most this much time.
const OPERATION_NS_MAX: u64 = 10_000_000;
/// The window is counted in steps of this time, and is one step longer than a second.
const STEP_NS: u64 = 5_000_000;
const WINDOW_STEPS: u64 = NS_PER_S / STEP_NS;

/// The bandwidth cap and what was started lately. Times are nanoseconds of one monotonic clock.
#[derive(Debug)]
pub(super) struct Throttle {
    bytes_per_s_max: Option<u64>,
    bucket: Bucket,
    window: ThrottleWindow,
}

/// Tokens are bytes times nanoseconds per second: exact, without rounding drift.
#[derive(Debug, Default)]
struct Bucket {
    /// Negative when in debt.
    level: i128,
    filled_ns: u64,
}

/// Bytes started per step of time, oldest first.
#[derive(Debug, Default)]
struct ThrottleWindow {
    steps: VecDeque<(u64, u64)>,
    sum_bytes: u64,
}

impl Throttle {
    pub(super) fn new(bytes_per_s_max: Option<u64>) -> Self {
        Self {
            bytes_per_s_max,
            bucket: Bucket::default(),
            window: ThrottleWindow::default(),
        }
    }

    pub(super) fn bytes_per_s_max(&self) -> Option<u64> {
        self.bytes_per_s_max
    }

    /// Changes the cap. What was started before is forgotten; the bucket starts empty.
    pub(super) fn set(&mut self, bytes_per_s_max: Option<u64>, now_ns: u64) {
        *self = Self::new(bytes_per_s_max);
        self.bucket.filled_ns = now_ns;
    }

    /// Largest operation that keeps the flow even, in whole pages, at least one.
    pub(super) fn operation_bytes_max(&self) -> usize {
        let Some(rate) = self.bytes_per_s_max else {
            return usize::MAX;
        };
        let bytes = usize::try_from(rate / (NS_PER_S / OPERATION_NS_MAX)).unwrap_or(usize::MAX);
        (bytes - bytes % PAGE_BYTES).max(PAGE_BYTES)
    }

    /// Lets an operation of `bytes` start, or says how long to wait before asking again.
    pub(super) fn take(&mut self, bytes: usize, now_ns: u64) -> Result<(), u64> {
        let Some(rate) = self.bytes_per_s_max else {
            return Ok(());
        };
        let bytes = bytes as u64;
        let bucket_ns = self.bucket.wait_ns(bytes, rate, now_ns);
        let window_ns = self.window.wait_ns(bytes, rate, now_ns);
        match bucket_ns.max(window_ns) {
            0 => {
                self.bucket.level -= i128::from(bytes) * i128::from(NS_PER_S);
                self.window.add(bytes, now_ns);
                Ok(())
            }
            wait_ns => Err(wait_ns),
        }
    }
}

impl Bucket {
    /// Fills up to now; the time until there is enough for `bytes`, or a full bucket.
    fn wait_ns(&mut self, bytes: u64, rate: u64, now_ns: u64) -> u64 {
        let (rate, full) = (i128::from(rate), i128::from(rate) * i128::from(BURST_NS));
        let elapsed_ns = now_ns.saturating_sub(self.filled_ns);
        self.filled_ns = self.filled_ns.max(now_ns);
        let filled = self
            .level
            .saturating_add(rate.saturating_mul(i128::from(elapsed_ns)));
        self.level = filled.min(full);
        let wanted = (i128::from(bytes) * i128::from(NS_PER_S)).min(full);
        let missing = (wanted - self.level).max(0);
        u64::try_from((missing + rate - 1) / rate).unwrap_or(u64::MAX)
    }
}

impl ThrottleWindow {
    /// Forgets what is old; the time until `bytes` more fit. An operation larger than the window waits until it is
    /// empty.
    fn wait_ns(&mut self, bytes: u64, rate: u64, now_ns: u64) -> u64 {
        let now_step = now_ns / STEP_NS;
        while self
            .steps
            .front()
            .is_some_and(|(step, _)| step + WINDOW_STEPS < now_step)
        {
            self.sum_bytes -= self.steps.pop_front().map_or(0, |(_, bytes)| bytes);
        }
        let mut remaining_bytes = self.sum_bytes;
        let mut wait_ns = 0;
        for (step, step_bytes) in &self.steps {
            if remaining_bytes.saturating_add(bytes) <= rate {
                break;
            }
            remaining_bytes -= step_bytes;
            wait_ns = ((step + WINDOW_STEPS + 1) * STEP_NS)
                .saturating_sub(now_ns)
                .max(1);
        }
        wait_ns
    }

    fn add(&mut self, bytes: u64, now_ns: u64) {
        let now_step = now_ns / STEP_NS;
        match self.steps.back_mut() {
            Some((step, step_bytes)) if *step >= now_step => *step_bytes += bytes,
            _ => self.steps.push_back((now_step, bytes)),
        }
        self.sum_bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs operations of `bytes` for `run_ns` by a thread that is late by up to `late_ns_max` whenever it has to
    /// wait; the (time, bytes) of each.
    fn run(
        throttle: &mut Throttle,
        bytes: usize,
        run_ns: u64,
        late_ns_max: u64,
    ) -> Vec<(u64, usize)> {
        let (mut now_ns, mut taken, mut number) = (0, Vec::new(), 1u64);
        while now_ns < run_ns {
            match throttle.take(bytes, now_ns) {
                Ok(()) => taken.push((now_ns, bytes)),
                Err(wait_ns) => {
                    number = number
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    now_ns += wait_ns + (number >> 33) % (late_ns_max + 1);
                }
            }
        }
        taken
    }

    fn bytes_between(taken: &[(u64, usize)], from_ns: u64, to_ns: u64) -> usize {
        taken
            .iter()
            .filter(|(at, _)| (from_ns..to_ns).contains(at))
            .map(|(_, bytes)| bytes)
            .sum()
    }

    #[test]
    fn without_a_cap_nothing_waits() {
        assert_eq!(Throttle::new(None).take(usize::MAX, 0), Ok(()));
    }

    #[test]
    fn every_second_is_between_95_and_100_percent_of_the_cap() {
        for rate in [200_000u64, 3_000_000, 300_000_000, 5_000_000_000] {
            for late_ns_max in [0, 1_000_000, 30_000_000] {
                let mut throttle = Throttle::new(Some(rate));
                let bytes = throttle.operation_bytes_max().min(4 << 20);
                let taken = run(&mut throttle, bytes, 4_000_000_000, late_ns_max);
                for start_ms in (0..3000).step_by(7) {
                    let start_ns = start_ms * 1_000_000;
                    let got = bytes_between(&taken, start_ns, start_ns + 1_000_000_000) as f64;
                    let grain = if rate < 1_000_000 { bytes as f64 } else { 0.0 };
                    let least = if late_ns_max > 10_000_000 { 0.92 } else { 0.97 } * rate as f64;
                    assert!(got <= rate as f64, "{got} of {rate} at {start_ms} ms");
                    assert!(got >= least - grain, "{got} of {rate} at {start_ms} ms");
                }
                let mean = bytes_between(&taken, 0, 4_000_000_000) as f64 / 4.0;
                assert!(
                    mean >= 0.95 * rate as f64 - bytes as f64,
                    "{mean} of {rate}"
                );
            }
        }
    }

    #[test]
    fn an_idle_second_does_not_buy_a_burst() {
        let mut throttle = Throttle::new(Some(100_000_000));
        throttle.take(4096, 0).unwrap_err();
        let mut now_ns = 10_000_000_000;
        let mut burst = 0;
        while throttle.take(65_536, now_ns).is_ok() {
            burst += 65_536;
            now_ns += 1;
        }
        assert!(burst <= 5_000_000, "{burst} bytes is more than 50 ms worth");
    }

    #[test]
    fn the_wait_that_is_asked_for_is_enough() {
        let mut throttle = Throttle::new(Some(12_345_677));
        let mut now_ns = 5;
        for bytes in [1, 4096, 8192, 1 << 20, 4096, 77] {
            if let Err(wait_ns) = throttle.take(bytes, now_ns) {
                now_ns += wait_ns;
                assert_eq!(throttle.take(bytes, now_ns), Ok(()));
            }
        }
    }

    #[test]
    fn the_smallest_cap_still_moves() {
        let mut throttle = Throttle::new(Some(1));
        let wait_ns = throttle.take(4096, 0).unwrap_err();
        assert_eq!(throttle.take(4096, wait_ns), Ok(()));
        throttle.take(4096, wait_ns).unwrap_err();
    }
}
