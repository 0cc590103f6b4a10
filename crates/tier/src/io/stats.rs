//! What the engine counts.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Counters of one engine since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoStats {
    /// Reads asked for.
    pub reads: u64,
    /// Operations given to the device, repeated ones included.
    pub device_operations: u64,
    /// Reads that shared a device operation with an earlier read.
    pub merged: u64,
    /// Bytes asked for by all reads.
    pub requested_bytes: u64,
    /// Bytes that came from the device: whole pages, holes between neighbours included.
    pub device_bytes: u64,
    /// Reads answered with an error other than cancellation.
    pub errors: u64,
    /// Reads cancelled before they were answered.
    pub cancelled: u64,
    /// Reads asked for and not yet answered.
    pub in_flight: u64,
    /// Writes given to the device.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time in which the bandwidth cap held an operation back: of each thread that writes, too.
    pub throttled_ns: u64,
    /// Time in which at least one read was unanswered.
    pub busy_ns: u64,
    /// Sum over all device operations of their time in flight: divided by `busy_ns` it is the mean depth.
    pub device_ns: u64,
    /// Buffer memory in use, now: reads in flight and bytes handed out and not yet dropped.
    pub lent_bytes: u64,
    /// Free buffer memory kept for the next reads, now.
    pub pooled_bytes: u64,
}

impl IoStats {
    /// What was counted since `earlier`. Values that describe the present stay as they are.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            device_operations: self.device_operations - earlier.device_operations,
            merged: self.merged - earlier.merged,
            requested_bytes: self.requested_bytes - earlier.requested_bytes,
            device_bytes: self.device_bytes - earlier.device_bytes,
            errors: self.errors - earlier.errors,
            cancelled: self.cancelled - earlier.cancelled,
            in_flight: self.in_flight,
            writes: self.writes - earlier.writes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            throttled_ns: self.throttled_ns - earlier.throttled_ns,
            busy_ns: self.busy_ns - earlier.busy_ns,
            device_ns: self.device_ns - earlier.device_ns,
            lent_bytes: self.lent_bytes,
            pooled_bytes: self.pooled_bytes,
        }
    }

    /// Bytes from the device per second of busy time; nothing if there was none.
    pub fn bandwidth_bytes_per_s(&self) -> Option<f64> {
        (self.busy_ns > 0).then(|| self.device_bytes as f64 * 1e9 / self.busy_ns as f64)
    }
}

/// The live counters behind [`IoStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub device_operations: AtomicU64,
    pub merged: AtomicU64,
    pub device_bytes: AtomicU64,
    pub errors: AtomicU64,
    pub cancelled: AtomicU64,
    pub writes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub throttled_ns: AtomicU64,
    pub device_ns: AtomicU64,
    busy: Mutex<Busy>,
}

/// The window in which reads are unanswered.
#[derive(Debug, Default)]
struct Busy {
    reads: u64,
    requested_bytes: u64,
    in_flight: u64,
    since_ns: u64,
    total_ns: u64,
}

impl Counters {
    pub(super) fn asked(&self, reads: u64, bytes: u64, now_ns: u64) {
        let mut busy = self.busy.lock();
        if busy.in_flight == 0 {
            busy.since_ns = now_ns;
        }
        busy.in_flight += reads;
        busy.reads += reads;
        busy.requested_bytes = busy.requested_bytes.saturating_add(bytes);
    }

    pub(super) fn answered(&self, now_ns: u64) {
        let mut busy = self.busy.lock();
        busy.in_flight -= 1;
        if busy.in_flight == 0 {
            busy.total_ns += now_ns.saturating_sub(busy.since_ns);
        }
    }

    /// All that is counted here; buffer memory is not.
    pub(super) fn snapshot(&self, now_ns: u64) -> IoStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let busy = self.busy.lock();
        let open_ns = if busy.in_flight > 0 {
            now_ns.saturating_sub(busy.since_ns)
        } else {
            0
        };
        IoStats {
            reads: busy.reads,
            device_operations: get(&self.device_operations),
            merged: get(&self.merged),
            requested_bytes: busy.requested_bytes,
            device_bytes: get(&self.device_bytes),
            errors: get(&self.errors),
            cancelled: get(&self.cancelled),
            in_flight: busy.in_flight,
            writes: get(&self.writes),
            written_bytes: get(&self.written_bytes),
            throttled_ns: get(&self.throttled_ns),
            busy_ns: busy.total_ns + open_ns,
            device_ns: get(&self.device_ns),
            lent_bytes: 0,
            pooled_bytes: 0,
        }
    }
}

/// Adds to a counter that nothing else depends on.
pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_is_the_union_of_overlapping_reads() {
        let counters = Counters::default();
        counters.asked(1, 10, 100);
        counters.asked(2, 20, 150);
        assert_eq!(counters.snapshot(170).busy_ns, 70);
        (0..3).for_each(|_| counters.answered(200));
        counters.asked(1, 5, 1000);
        counters.answered(1001);
        let stats = counters.snapshot(9999);
        assert_eq!(
            (stats.busy_ns, stats.reads, stats.requested_bytes),
            (101, 4, 35)
        );
        assert_eq!(stats.in_flight, 0);
    }

    #[test]
    fn a_difference_keeps_what_is_in_flight_now() {
        let counters = Counters::default();
        counters.asked(1, 10, 0);
        let earlier = counters.snapshot(5);
        counters.asked(1, 10, 5);
        count(&counters.device_bytes, 4096);
        let difference = counters.snapshot(9).since(&earlier);
        assert_eq!(
            (difference.reads, difference.in_flight, difference.busy_ns),
            (1, 2, 4)
        );
        assert_eq!(difference.bandwidth_bytes_per_s(), Some(4096.0 * 1e9 / 4.0));
    }
}
