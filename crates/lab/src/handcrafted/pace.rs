//! What a thread waits for: nothing in ordinary memory, an *emulated* device otherwise.

use std::sync::Arc;

use hotshelf_tier::emulated::{Batch, EmulatedTier, Pending, Reach};
use hotshelf_tier::probe::{Operation, Pattern};

use super::lookup::Rows;

/// Reads of consecutive bytes are counted in pages, as the device's published grid is.
const PAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;
/// What the recorded devices move at once.
const GRAIN_BYTES: usize = 256;

/// Where a thread's data lie, as far as waiting goes.
#[derive(Debug, Clone)]
pub struct Pace {
    device: Option<Arc<EmulatedTier>>,
    reach: Reach,
    /// The part of look-ups that the processor's cache does not have.
    missing: f64,
    /// Look-ups that are owed by parts.
    owed: f64,
    ahead: Option<Pending>,
    /// Bytes that were read, by what queries ask for.
    pub bytes: u64,
}

impl Pace {
    pub fn new(device: Option<Arc<EmulatedTier>>, reach: Reach, missing: f64) -> Self {
        Self {
            device,
            reach,
            missing,
            owed: 0.0,
            ahead: None,
            bytes: 0,
        }
    }

    /// Starts reading the next consecutive bytes and waits for those asked for before: the device reads ahead of the
    /// thread, as prefetchers make it.
    #[inline]
    pub fn read_ahead(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        let Some(device) = &self.device else { return };
        let batch = Batch {
            operation: Operation::Read,
            pattern: Pattern::Sequential,
            offset: 0,
            len_bytes: PAGE_BYTES,
            count: bytes.div_ceil(PAGE_BYTES) as u32,
        };
        let next = device.start(&batch, self.reach);
        if let Some(ahead) = self.ahead.replace(next) {
            device.finish(ahead);
        }
    }

    /// Reads values of this width where rows of a chunk are left.
    #[inline]
    pub fn read_some(&mut self, kept: &Rows, chunk_rows: usize, width: usize) {
        let grains = match self.device {
            Some(_) => kept.blocks(GRAIN_BYTES / width),
            None => 0,
        };
        self.read_lines(kept.blocks(LINE_BYTES / width), grains, chunk_rows * width);
    }

    /// Reads some cache lines, which lie in this many grains, of consecutive bytes: of the device each grain, or
    /// everything if that is less work for it.
    #[inline]
    pub fn read_lines(&mut self, lines: usize, grains: usize, whole_bytes: usize) {
        self.bytes += (lines * LINE_BYTES) as u64;
        match grains * GRAIN_BYTES * 2 < whole_bytes {
            true => self.wait(Operation::Read, Pattern::Random, grains as u32, GRAIN_BYTES),
            false => {
                let pages = whole_bytes.div_ceil(PAGE_BYTES) as u32;
                self.wait(Operation::Read, Pattern::Sequential, pages, PAGE_BYTES);
            }
        }
    }

    /// Waits for what was read ahead.
    pub fn finish(&mut self) {
        if let (Some(device), Some(ahead)) = (&self.device, self.ahead.take()) {
            device.finish(ahead);
        }
    }

    /// Reads at random places, those in the processor's cache excepted.
    #[inline]
    pub fn look_up(&mut self, count: u32, len_bytes: usize) {
        if self.device.is_none() {
            return;
        }
        self.owed += f64::from(count) * self.missing;
        let due = self.owed as u32;
        self.owed -= f64::from(due);
        self.wait(Operation::Read, Pattern::Random, due, len_bytes);
    }

    /// Writes at random places, those that the processor's cache takes excepted.
    #[inline]
    pub fn write_cached(&mut self, count: u32, len_bytes: usize) {
        let due = (f64::from(count) * self.missing) as u32;
        self.wait(Operation::Write, Pattern::Random, due, len_bytes);
    }

    /// Waits for accesses of this kind.
    #[inline]
    pub fn wait(&self, operation: Operation, pattern: Pattern, count: u32, len_bytes: usize) {
        if let Some(device) = self.device.as_ref().filter(|_| count > 0) {
            let batch = Batch {
                operation,
                pattern,
                offset: 0,
                len_bytes,
                count,
            };
            device.finish(device.start(&batch, self.reach));
        }
    }
}
