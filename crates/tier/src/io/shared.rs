//! What callers and I/O threads share: options, counters, the throttle and memory.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::PAGE_BYTES;
use super::arena::Arena;
use super::buffer::Buffer;
use super::options::IoOptions;
use super::stats::Counters;
use super::throttle::Throttle;
use crate::TierError;

/// The state of an engine that does not belong to one lane or thread.
pub(super) struct Shared {
    pub options: IoOptions,
    pub counters: Counters,
    pub throttle: Mutex<Throttle>,
    pub arena: Arc<Arena>,
    /// Where holes between neighbours are read to. Devices write to it at any time; nothing reads it.
    scratch: Option<Buffer>,
    clock: Instant,
}

impl Shared {
    pub(super) fn new(options: IoOptions) -> Result<Arc<Self>, TierError> {
        let arena = Arena::new(options.pool_bytes_max, options.huge_pages);
        let scratch_bytes = options.gap_bytes_max.next_multiple_of(PAGE_BYTES);
        let scratch = match scratch_bytes {
            0 => None,
            bytes => Some(arena.allocate(bytes)?),
        };
        Ok(Arc::new(Self {
            throttle: Mutex::new(Throttle::new(options.bandwidth_bytes_per_s_max)),
            counters: Counters::default(),
            clock: Instant::now(),
            arena,
            scratch,
            options,
        }))
    }

    /// Nanoseconds since the engine was started.
    pub(super) fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// Largest hole that can be read along.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.scratch
            .as_ref()
            .map_or(0, |_| self.options.gap_bytes_max)
    }

    /// Where holes are read to; null without holes.
    pub(super) fn scratch_start(&self) -> *mut u8 {
        self.scratch
            .as_ref()
            .map_or(std::ptr::null_mut(), Buffer::start)
    }
}
