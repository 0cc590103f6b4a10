//! The reads that wait for memory, in order of arrival, and how much is being read.

use crate::flight::Flight;
use crate::tuner::StorageProgress;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The waiting reads and the number of those under way.
#[derive(Default)]
pub(crate) struct Admissions {
    pub(crate) queue: Mutex<VecDeque<Arc<Flight>>>,
    pub(crate) reading_count: AtomicUsize,
    pub(crate) tickets: AtomicUsize,
    clock: Mutex<ReadClock>,
    wait_ns: AtomicU64,
}

/// Measures the time in which anything is being read.
#[derive(Default)]
struct ReadClock {
    reading_count: usize,
    reading_since: Option<Instant>,
    reading: Duration,
    bytes: u64,
}

impl Admissions {
    pub(crate) fn read_begins(&self) {
        self.reading_count.fetch_add(1, SeqCst);
        self.clock_begins();
    }

    pub(crate) fn read_ended(&self, arrived_bytes: u64) {
        self.reading_count.fetch_sub(1, SeqCst);
        self.clock_ended(arrived_bytes);
    }

    /// Something is being brought that no memory is waited for.
    pub(crate) fn clock_begins(&self) {
        let mut clock = self.clock.lock();
        clock.reading_count += 1;
        clock.reading_since.get_or_insert_with(Instant::now);
    }

    /// It has come, or is no longer wanted.
    pub(crate) fn clock_ended(&self, arrived_bytes: u64) {
        let mut clock = self.clock.lock();
        clock.bytes += arrived_bytes;
        clock.reading_count -= 1;
        if clock.reading_count == 0
            && let Some(since) = clock.reading_since.take()
        {
            clock.reading += since.elapsed();
        }
    }

    pub(crate) fn count_wait(&self, wait: Duration) {
        let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self.wait_ns.fetch_add(wait_ns, Relaxed);
    }

    pub(crate) fn progress(&self) -> StorageProgress {
        let clock = self.clock.lock();
        let under_way = clock
            .reading_since
            .map_or(Duration::ZERO, |since| since.elapsed());
        let reading = clock.reading + under_way;
        StorageProgress {
            bytes: clock.bytes,
            reading_ns: u64::try_from(reading.as_nanos()).unwrap_or(u64::MAX),
            wait_ns: self.wait_ns.load(Relaxed),
        }
    }
}
