//! The storage's bandwidth, measured while queries run.

/// What the storage did since the beginning; all parts only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StorageProgress {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Time during which at least one read was under way, in nanoseconds.
    pub reading_ns: u64,
    /// Time that requests stood still for their bytes, summed over requests, in nanoseconds.
    pub wait_ns: u64,
}

/// Less than this says nothing about bandwidth.
const SAMPLE_BYTES_MIN: u64 = 1 << 20;
const SAMPLE_READING_NS_MIN: u64 = 10_000_000;

/// A window with this many bytes counts in full, a shorter one in proportion: devices and volumes answer short bursts
/// faster than they can go on.
const SAMPLE_BYTES_FULL: u64 = 64 << 20;

/// A window in which requests stood still for at least this part of the reading time used all there was.
const SATURATED_WAIT_SHARE: f64 = 0.25;

/// Steps further apart than this (or going backwards) mean that the clock jumped or the process slept.
const STEP_NS_MAX: u64 = 60_000_000_000;

/// A moving average of bytes per second. Windows in which a request waited count most. Without waiting, the readers and
/// not the storage were slow, so that only faster windows count.
#[derive(Debug, Clone)]
pub(super) struct BandwidthMeter {
    bandwidth: Option<f64>,
    last: Option<(u64, StorageProgress)>,
}

impl BandwidthMeter {
    pub(super) fn new(known: Option<f64>) -> Self {
        Self {
            bandwidth: known.filter(|bandwidth| bandwidth.is_finite() && *bandwidth > 0.0),
            last: None,
        }
    }

    /// Counts from here on: what the storage did before says nothing.
    pub(super) fn begin_at(&mut self, now_ns: u64, progress: StorageProgress) {
        self.last = Some((now_ns, progress));
    }

    /// Bytes per second, if anything is known.
    pub(super) fn bandwidth(&self) -> Option<f64> {
        self.bandwidth
    }

    pub(super) fn sample(&mut self, now_ns: u64, progress: StorageProgress) {
        let (before_ns, before) = self.last.unwrap_or_default();
        let is_first = self.last.is_none();
        let elapsed_ns = now_ns.checked_sub(before_ns);
        let bytes = progress.bytes.saturating_sub(before.bytes);
        let reading_ns = progress.reading_ns.saturating_sub(before.reading_ns);
        let wait_ns = progress.wait_ns.saturating_sub(before.wait_ns);
        let is_steady = is_first || elapsed_ns.is_some_and(|elapsed| elapsed <= STEP_NS_MAX);
        let is_enough = bytes >= SAMPLE_BYTES_MIN && reading_ns >= SAMPLE_READING_NS_MIN;
        if is_enough || !is_steady || is_first {
            self.last = Some((now_ns, progress));
        }
        if is_enough && is_steady {
            let is_saturated = wait_ns as f64 >= SATURATED_WAIT_SHARE * reading_ns as f64;
            let rate = bytes as f64 / (reading_ns as f64 * 1e-9);
            let weight = bytes as f64 / SAMPLE_BYTES_FULL as f64;
            self.learn(rate, weight.min(1.0), is_saturated);
        }
    }

    fn learn(&mut self, rate: f64, weight: f64, is_saturated: bool) {
        let known = *self.bandwidth.get_or_insert(rate);
        let learning = match (rate > known, is_saturated) {
            (_, true) => 0.4,
            (true, false) => 0.1,
            (false, false) => 0.0,
        };
        self.bandwidth = Some(known + weight * learning * (rate - known));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds windows of 200 ms, each fully spent reading at `rate` bytes per second.
    fn feed(
        meter: &mut BandwidthMeter,
        start: &mut (u64, StorageProgress),
        rate: u64,
        waited: bool,
    ) {
        for _ in 0..20 {
            start.0 += 200_000_000;
            start.1.bytes += rate / 5;
            start.1.reading_ns += 200_000_000;
            start.1.wait_ns += if waited { 150_000_000 } else { 0 };
            meter.sample(start.0, start.1);
        }
    }

    #[test]
    fn the_average_follows_the_storage_but_not_slow_readers() {
        let mut meter = BandwidthMeter::new(None);
        let mut start = (0, StorageProgress::default());
        assert_eq!(meter.bandwidth(), None);
        feed(&mut meter, &mut start, 1_500_000_000, true);
        assert!((meter.bandwidth().unwrap() / 1.5e9 - 1.0).abs() < 0.01);
        feed(&mut meter, &mut start, 300_000_000, false);
        assert!((meter.bandwidth().unwrap() / 1.5e9 - 1.0).abs() < 0.01);
        feed(&mut meter, &mut start, 300_000_000, true);
        assert!((meter.bandwidth().unwrap() / 3e8 - 1.0).abs() < 0.01);
        (0..3).for_each(|_| feed(&mut meter, &mut start, 900_000_000, false));
        assert!((meter.bandwidth().unwrap() / 9e8 - 1.0).abs() < 0.01);
    }

    #[test]
    fn short_bursts_hardly_count() {
        let mut meter = BandwidthMeter::new(None);
        let mut start = (0, StorageProgress::default());
        feed(&mut meter, &mut start, 600_000_000, true);
        for _ in 0..10 {
            // A burst of 20 MB at 2 GB/s, then 100 MB that a request waits for.
            start.0 += 10_000_000;
            start.1.bytes += 20_000_000;
            start.1.reading_ns += 10_000_000;
            meter.sample(start.0, start.1);
            start.0 += 166_000_000;
            start.1.bytes += 100_000_000;
            start.1.reading_ns += 166_666_667;
            start.1.wait_ns += 100_000_000;
            meter.sample(start.0, start.1);
        }
        let bandwidth = meter.bandwidth().unwrap();
        assert!((bandwidth / 6e8 - 1.0).abs() < 0.15, "{bandwidth}");
    }

    #[test]
    fn clock_jumps_and_counters_that_go_back_are_survived() {
        let mut meter = BandwidthMeter::new(Some(1e9));
        let mut start = (u64::MAX - 1_000_000_000_000, StorageProgress::default());
        meter.sample(start.0, start.1);
        feed(&mut meter, &mut start, 1_000_000_000, true);
        for now_ns in [0, u64::MAX, 5, u64::MAX / 2] {
            let jumped = StorageProgress {
                bytes: 1 << 40,
                reading_ns: 20_000_000,
                wait_ns: u64::MAX,
            };
            meter.sample(now_ns, jumped);
            meter.sample(now_ns, StorageProgress::default());
        }
        assert!((meter.bandwidth().unwrap() / 1e9 - 1.0).abs() < 0.01);
    }

    #[test]
    fn impossible_configured_bandwidths_are_as_good_as_none() {
        for known in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(BandwidthMeter::new(Some(known)).bandwidth(), None);
        }
    }
}
