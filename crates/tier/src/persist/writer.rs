//! The checked front of [`PersistOps`]: wrong ranges are errors here, so that the operations themselves need not ask.

use std::ops::Range;

use super::PersistOps;
use crate::error::TierError;

/// How a [`Writer`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterOptions {
    /// Writes of at least this many bytes bypass the cache, smaller ones are stored and flushed. The machine profile
    /// knows the best value.
    pub copy_nt_bytes_min: usize,
}

impl Default for WriterOptions {
    /// 256 bytes: the internal grain of the first persistent memory, and where libraries for it switch too.
    fn default() -> Self {
        Self {
            copy_nt_bytes_min: 256,
        }
    }
}

/// Writes to a window of a region. Flushing and the fence that follows must happen on one thread.
#[derive(Debug)]
pub struct Writer<O> {
    ops: O,
    options: WriterOptions,
}

impl<O: PersistOps> Writer<O> {
    /// A writer with default options.
    pub fn new(ops: O) -> Self {
        Self::with_options(ops, WriterOptions::default())
    }

    /// A writer with these options.
    pub fn with_options(ops: O, options: WriterOptions) -> Self {
        Self { ops, options }
    }

    /// The offsets it may write.
    pub fn window(&self) -> Range<usize> {
        self.ops.window()
    }

    /// The operations below.
    pub fn ops(&self) -> &O {
        &self.ops
    }

    /// The operations below, for what only they can do.
    pub fn ops_mut(&mut self) -> &mut O {
        &mut self.ops
    }

    /// Copies with ordinary stores.
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`] if the range is not inside the window.
    pub fn store(&mut self, offset: usize, bytes: &[u8]) -> Result<(), TierError> {
        self.check(offset, bytes.len())?;
        self.ops.store(offset, bytes);
        Ok(())
    }

    /// Copies without the cache; durable after the next [`Writer::fence`].
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`] if the range is not inside the window.
    pub fn copy_nt(&mut self, offset: usize, bytes: &[u8]) -> Result<(), TierError> {
        self.check(offset, bytes.len())?;
        self.ops.copy_nt(offset, bytes);
        Ok(())
    }

    /// Starts making a range durable; durable after the next [`Writer::fence`].
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`] if the range is not inside the window.
    pub fn flush(&mut self, range: Range<usize>) -> Result<(), TierError> {
        self.check(range.start, range.end.saturating_sub(range.start))?;
        self.ops.flush(range);
        Ok(())
    }

    /// Copies by whichever way suits the size; durable after the next [`Writer::fence`].
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`] if the range is not inside the window.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), TierError> {
        if bytes.len() >= self.options.copy_nt_bytes_min {
            return self.copy_nt(offset, bytes);
        }
        self.store(offset, bytes)?;
        self.flush(offset..offset + bytes.len())
    }

    /// Waits until everything that this thread flushed or streamed is durable.
    ///
    /// # Errors
    /// What the operating system says, where it is involved.
    pub fn fence(&mut self) -> Result<(), TierError> {
        self.ops.fence()
    }

    /// Stores eight aligned bytes at once, in order after every earlier store to the same line.
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`] if they are not inside the window, [`TierError::InvalidOption`] if `offset` is not
    /// a multiple of eight.
    pub fn publish(&mut self, offset: usize, word: u64) -> Result<(), TierError> {
        self.check(offset, size_of::<u64>())?;
        if !offset.is_multiple_of(size_of::<u64>()) {
            return Err(TierError::InvalidOption {
                option: "offset of a published word",
                value: offset.to_string(),
                expected: "a multiple of eight",
            });
        }
        self.ops.publish(offset, word);
        Ok(())
    }

    /// Cuts the window in two; the new writer has everything from `at`.
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`] if `at` is outside the window.
    pub fn split_off(&mut self, at: usize) -> Result<Self, TierError> {
        self.check(at, 0)?;
        Ok(Self {
            ops: self.ops.split_off(at),
            options: self.options,
        })
    }

    fn check(&self, offset: usize, len_bytes: usize) -> Result<(), TierError> {
        let window = self.ops.window();
        let end = offset.checked_add(len_bytes);
        match end.is_some_and(|end| window.start <= offset && end <= window.end) {
            true => Ok(()),
            false => Err(TierError::OutsideRegion {
                offset: offset as u64,
                len_bytes: len_bytes as u64,
                region_bytes: window.end as u64,
            }),
        }
    }
}
