//! What can be set on the I/O engine, and which settings are refused.

use std::sync::Arc;

use super::PAGE_BYTES;
use super::fault::FaultPlan;
use crate::TierError;

/// Largest queue depth of one ring: the kernel's own limit is 32 768 entries.
const DEPTH_MAX: usize = 4096;
/// More I/O threads than this cannot help any device.
const THREADS_MAX: usize = 256;
/// Results of device calls are 31-bit numbers.
const OPERATION_BYTES_MAX: usize = 1 << 30;
/// Scratch memory for holes is allocated at once.
const GAP_BYTES_MAX: usize = 1 << 20;

/// How device operations are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// `io_uring` where the system allows it, else `pread` on a thread pool.
    #[default]
    Auto,
    /// `io_uring`, or an error from [`IoEngine::start`](super::IoEngine::start).
    Uring,
    /// `pread` on a thread pool.
    Pread,
}

/// Settings of an [`IoEngine`](super::IoEngine).
#[derive(Debug, Clone)]
pub struct IoOptions {
    /// Ring threads, each with an `io_uring` of its own.
    pub threads: usize,
    /// Device operations in flight per ring.
    pub depth: usize,
    /// Threads of the pool when `pread` is used; each has one operation in flight.
    pub pread_threads: usize,
    /// Largest device operation: neighbours are merged up to it, larger reads are split by it. Reads that arrive
    /// together are merged less when they would become fewer than four operations. A multiple of [`PAGE_BYTES`].
    pub merge_bytes_max: usize,
    /// Bytes in flight per ring: what goes beyond waits in the queue, where it can still be merged and cancelled. One
    /// operation is always let through.
    pub in_flight_bytes_max: usize,
    /// Largest hole between two reads that is read along (and thrown away) to make one operation of both.
    /// Holes are never read while the bandwidth is capped.
    pub gap_bytes_max: usize,
    /// Free buffer memory kept for the next reads, or an eighth of the buffer memory in use if that is more; what goes
    /// beyond is given back to the system. Fresh memory costs several times the processor time of all the rest of
    /// a read.
    pub pool_bytes_max: usize,
    /// Whether buffer memory asks for huge pages.
    pub huge_pages: bool,
    /// Cap on the bytes read from the device per second; stands in for slower volumes.
    pub bandwidth_bytes_per_s_max: Option<u64>,
    /// Whether to bypass the page cache (`O_DIRECT`) where the file system allows it.
    pub direct: bool,
    /// How device operations are run.
    pub backend: Backend,
    /// Device faults on demand, for tests.
    pub faults: Option<Arc<FaultPlan>>,
}

impl Default for IoOptions {
    fn default() -> Self {
        Self {
            threads: 1,
            depth: 64,
            pread_threads: 8,
            merge_bytes_max: 4 << 20,
            in_flight_bytes_max: 32 << 20,
            gap_bytes_max: 16 << 10,
            pool_bytes_max: 32 << 20,
            huge_pages: true,
            bandwidth_bytes_per_s_max: None,
            direct: true,
            backend: Backend::Auto,
            faults: None,
        }
    }
}

impl IoOptions {
    /// Refuses settings that make no sense.
    pub(super) fn check(&self) -> Result<(), TierError> {
        check_count("threads", self.threads, 1..=THREADS_MAX, "1 to 256")?;
        check_count("depth", self.depth, 1..=DEPTH_MAX, "1 to 4096")?;
        check_count(
            "pread_threads",
            self.pread_threads,
            1..=THREADS_MAX,
            "1 to 256",
        )?;
        let merge_allowed = PAGE_BYTES..=OPERATION_BYTES_MAX;
        if !merge_allowed.contains(&self.merge_bytes_max)
            || !self.merge_bytes_max.is_multiple_of(PAGE_BYTES)
        {
            let expected = "a positive multiple of 4096 up to 1 GiB";
            return Err(invalid(
                "merge_bytes_max",
                self.merge_bytes_max as u64,
                expected,
            ));
        }
        if self.gap_bytes_max > GAP_BYTES_MAX {
            return Err(invalid(
                "gap_bytes_max",
                self.gap_bytes_max as u64,
                "at most 1 MiB",
            ));
        }
        check_bandwidth(self.bandwidth_bytes_per_s_max)
    }
}

/// Refuses a cap of nothing per second: no read could ever finish.
pub(super) fn check_bandwidth(bytes_per_s_max: Option<u64>) -> Result<(), TierError> {
    match bytes_per_s_max {
        Some(0) => Err(invalid(
            "bandwidth_bytes_per_s_max",
            0,
            "at least 1 byte per second",
        )),
        _ => Ok(()),
    }
}

fn check_count(
    option: &'static str,
    value: usize,
    allowed: std::ops::RangeInclusive<usize>,
    expected: &'static str,
) -> Result<(), TierError> {
    if allowed.contains(&value) {
        Ok(())
    } else {
        Err(invalid(option, value as u64, expected))
    }
}

fn invalid(option: &'static str, value: u64, expected: &'static str) -> TierError {
    TierError::InvalidOption {
        option,
        value: value.to_string(),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_accepted() {
        IoOptions::default().check().unwrap();
    }

    #[test]
    fn senseless_settings_are_refused_by_name() {
        let refused = |change: fn(&mut IoOptions)| {
            let mut options = IoOptions::default();
            change(&mut options);
            match options.check() {
                Err(TierError::InvalidOption { option, .. }) => option,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(|o| o.threads = 0), "threads");
        assert_eq!(refused(|o| o.depth = 0), "depth");
        assert_eq!(refused(|o| o.depth = 4097), "depth");
        assert_eq!(refused(|o| o.pread_threads = 0), "pread_threads");
        assert_eq!(refused(|o| o.merge_bytes_max = 0), "merge_bytes_max");
        assert_eq!(refused(|o| o.merge_bytes_max = 5000), "merge_bytes_max");
        let capped = refused(|o| o.bandwidth_bytes_per_s_max = Some(0));
        assert_eq!(capped, "bandwidth_bytes_per_s_max");
    }
}
