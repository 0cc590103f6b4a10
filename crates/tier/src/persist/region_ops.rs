//! The operations that fit a region's durability.

use std::ops::Range;

use super::{FlushInstruction, Msync, Native, PersistOps, Writer, WriterOptions};
use crate::error::TierError;
use crate::region::{Durability, Region, Sealed, Window};
use crate::topology::PersistenceDomain;

/// Writes a region by CPU instructions or by msync, as its durability asks.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegionOps {
    /// Directly mapped or volatile memory.
    Native(Native),
    /// A file in the page cache.
    Msync(Msync),
}

impl Region {
    /// Turns the region into a writer of all of it.
    ///
    /// # Errors
    /// [`TierError::ReadOnly`] if it is mapped for reading, [`TierError::NoFlushInstruction`] if it needs flushes and
    /// this CPU has none that programs may use.
    pub fn into_writer(self, options: &WriterOptions) -> Result<Writer<RegionOps>, TierError> {
        if !self.writable() {
            return Err(TierError::ReadOnly {
                path: self.path().to_path_buf(),
            });
        }
        let durability = self.durability();
        let ops = match durability {
            Durability::Msync => RegionOps::Msync(Msync::new(self.into_window())),
            Durability::Volatile | Durability::FlushDomain(PersistenceDomain::CpuCache) => {
                RegionOps::Native(Native::new(self.into_window(), None))
            }
            Durability::FlushDomain(_) => {
                let flush = FlushInstruction::detect().ok_or(TierError::NoFlushInstruction)?;
                RegionOps::Native(Native::new(self.into_window(), Some(flush)))
            }
        };
        Ok(Writer::with_options(ops, *options))
    }
}

impl RegionOps {
    /// What the window holds now.
    pub fn bytes(&self) -> &[u8] {
        self.window_ref().bytes()
    }

    /// The file or device that is written; empty for anonymous memory.
    pub fn path(&self) -> &std::path::Path {
        self.window_ref().mapping().path()
    }

    /// Ends writing to everything before `end` for good and gives it out for reading.
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`] if `end` is outside the window.
    pub fn seal_to(&mut self, end: usize) -> Result<Sealed, TierError> {
        let window = self.window();
        if end < window.start || window.end < end {
            return Err(TierError::OutsideRegion {
                offset: end as u64,
                len_bytes: 0,
                region_bytes: window.end as u64,
            });
        }
        Ok(match self {
            Self::Native(native) => native.seal_to(end),
            Self::Msync(msync) => msync.seal_to(end),
        })
    }

    /// A view of bytes that were sealed through this window before.
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`] if some of them were not.
    pub fn sealed(&self, range: Range<usize>) -> Result<Sealed, TierError> {
        let (offset, len_bytes) = (range.start as u64, range.len() as u64);
        let sealed = self.window_ref().sealed(range);
        sealed.ok_or_else(|| TierError::OutsideRegion {
            offset,
            len_bytes,
            region_bytes: self.window().start as u64,
        })
    }

    fn window_ref(&self) -> &Window {
        match self {
            Self::Native(native) => &native.window,
            Self::Msync(msync) => msync.window_ref(),
        }
    }
}

impl PersistOps for RegionOps {
    fn window(&self) -> Range<usize> {
        self.window_ref().range()
    }

    fn store(&mut self, offset: usize, bytes: &[u8]) {
        match self {
            Self::Native(native) => native.store(offset, bytes),
            Self::Msync(msync) => msync.store(offset, bytes),
        }
    }

    fn copy_nt(&mut self, offset: usize, bytes: &[u8]) {
        match self {
            Self::Native(native) => native.copy_nt(offset, bytes),
            Self::Msync(msync) => msync.copy_nt(offset, bytes),
        }
    }

    fn flush(&mut self, range: Range<usize>) {
        match self {
            Self::Native(native) => native.flush(range),
            Self::Msync(msync) => msync.flush(range),
        }
    }

    fn fence(&mut self) -> Result<(), TierError> {
        match self {
            Self::Native(native) => native.fence(),
            Self::Msync(msync) => msync.fence(),
        }
    }

    fn publish(&mut self, offset: usize, word: u64) {
        match self {
            Self::Native(native) => native.publish(offset, word),
            Self::Msync(msync) => msync.publish(offset, word),
        }
    }

    fn split_off(&mut self, at: usize) -> Self {
        match self {
            Self::Native(native) => Self::Native(native.split_off(at)),
            Self::Msync(msync) => Self::Msync(msync.split_off(at)),
        }
    }
}
