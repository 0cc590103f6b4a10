//! The token bucket that holds the engine to a bandwidth. Pure: time is an argument.
//!
//! An operation is started when the bucket holds enough tokens for it (or is full), and takes as
//! many tokens as it has bytes; the bucket may go into debt. Tokens come in slightly under the cap, by as much as
//! a full bucket can add to a second, so that no second exceeds the cap.

use super::PAGE_BYTES;

/// A full bucket holds this share of a second's tokens (10 ms worth).
const BURST_PER_S: u64 = 100;
/// Tokens come in at this share of the cap; with one full bucket a second stays under 0.99 of the cap.
const FILL_PERCENT: u64 = 98;
const NS_PER_S: u128 = 1_000_000_000;

/// A token bucket; tokens are bytes. Times are nanoseconds of one monotonic clock.
#[derive(Debug)]
pub(super) struct Throttle {
    bytes_per_s_max: Option<u64>,
    /// Tokens in the bucket times [`NS_PER_S`], negative when in debt: exact, without rounding drift.
    level: i128,
    filled_ns: u64,
}

impl Throttle {
    pub(super) fn new(bytes_per_s_max: Option<u64>) -> Self {
        Self {
            bytes_per_s_max,
            level: 0,
            filled_ns: 0,
        }
    }

    pub(super) fn bytes_per_s_max(&self) -> Option<u64> {
        self.bytes_per_s_max
    }

    /// Changes the cap. The bucket starts empty and out of debt.
    pub(super) fn set(&mut self, bytes_per_s_max: Option<u64>, now_ns: u64) {
        *self = Self {
            bytes_per_s_max,
            level: 0,
            filled_ns: now_ns,
        };
    }

    /// Largest operation that keeps the flow even: a full bucket, in whole pages, at least one.
    pub(super) fn operation_bytes_max(&self) -> usize {
        match self.bytes_per_s_max {
            None => usize::MAX,
            Some(rate) => {
                let bytes = usize::try_from(rate / BURST_PER_S).unwrap_or(usize::MAX);
                (bytes - bytes % PAGE_BYTES).max(PAGE_BYTES)
            }
        }
    }

    /// Takes tokens for an operation of `bytes`, or says how long to wait before asking again.
    pub(super) fn take(&mut self, bytes: usize, now_ns: u64) -> Result<(), u64> {
        let Some(rate) = self.bytes_per_s_max else {
            return Ok(());
        };
        let fill_per_ns = (i128::from(rate) * i128::from(FILL_PERCENT) / 100).max(1);
        let full = (u128::from(rate) * NS_PER_S / u128::from(BURST_PER_S)) as i128;
        let elapsed_ns = now_ns.saturating_sub(self.filled_ns);
        self.filled_ns = self.filled_ns.max(now_ns);
        self.level = self
            .level
            .saturating_add(fill_per_ns.saturating_mul(i128::from(elapsed_ns)))
            .min(full);
        let cost = bytes as i128 * NS_PER_S as i128;
        let missing = cost.min(full) - self.level;
        if missing > 0 {
            let wait_ns = (missing + fill_per_ns - 1) / fill_per_ns;
            return Err(u64::try_from(wait_ns).unwrap_or(u64::MAX));
        }
        self.level -= cost;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs operations of `bytes` as fast as allowed for `run_ns` and gives the (time, bytes) of each.
    fn run(throttle: &mut Throttle, bytes: usize, run_ns: u64) -> Vec<(u64, usize)> {
        let (mut now_ns, mut taken) = (0, Vec::new());
        while now_ns < run_ns {
            match throttle.take(bytes, now_ns) {
                Ok(()) => taken.push((now_ns, bytes)),
                Err(wait_ns) => now_ns += wait_ns,
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
        for rate in [20_000u64, 3_000_000, 300_000_000, 5_000_000_000] {
            let mut throttle = Throttle::new(Some(rate));
            let bytes = throttle.operation_bytes_max().min(4 << 20);
            let taken = run(&mut throttle, bytes, 4_000_000_000);
            for start_ms in (0..3000).step_by(7) {
                let start_ns = start_ms * 1_000_000;
                let got = bytes_between(&taken, start_ns, start_ns + 1_000_000_000) as f64;
                let grain = if rate < 1_000_000 { bytes as f64 } else { 0.0 };
                assert!(
                    got <= rate as f64 + grain,
                    "{got} of {rate} at {start_ms} ms"
                );
                assert!(
                    got >= 0.95 * rate as f64 - grain,
                    "{got} of {rate} at {start_ms} ms"
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
