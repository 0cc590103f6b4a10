//! Counting what is written, to see write amplification and needless flushes.

use std::ops::Range;

use super::{LINE_BYTES, PersistOps};
use crate::error::TierError;

/// How often each operation ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes of ordinary stores.
    pub stored_bytes: u64,
    /// Bytes copied without the cache.
    pub copied_nt_bytes: u64,
    /// Lines flushed.
    pub flushed_line_count: u64,
    /// Fences.
    pub fence_count: u64,
    /// Published words.
    pub publish_count: u64,
}

/// Counts the operations of another implementation.
#[derive(Debug)]
pub struct Count<O> {
    inner: O,
    counts: Counts,
}

impl<O> Count<O> {
    /// Counts what goes to `inner`.
    pub fn new(inner: O) -> Self {
        Self {
            inner,
            counts: Counts::default(),
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The implementation that is counted.
    pub fn inner(&self) -> &O {
        &self.inner
    }
}

impl<O: PersistOps> PersistOps for Count<O> {
    fn window(&self) -> Range<usize> {
        self.inner.window()
    }

    fn store(&mut self, offset: usize, bytes: &[u8]) {
        self.counts.stored_bytes += bytes.len() as u64;
        self.inner.store(offset, bytes);
    }

    fn copy_nt(&mut self, offset: usize, bytes: &[u8]) {
        self.counts.copied_nt_bytes += bytes.len() as u64;
        self.inner.copy_nt(offset, bytes);
    }

    fn flush(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            let lines = range.start / LINE_BYTES..range.end.div_ceil(LINE_BYTES);
            self.counts.flushed_line_count += lines.len() as u64;
        }
        self.inner.flush(range);
    }

    fn fence(&mut self) -> Result<(), TierError> {
        self.counts.fence_count += 1;
        self.inner.fence()
    }

    fn publish(&mut self, offset: usize, word: u64) {
        self.counts.publish_count += 1;
        self.inner.publish(offset, word);
    }

    fn split_off(&mut self, at: usize) -> Self {
        Self::new(self.inner.split_off(at))
    }
}
