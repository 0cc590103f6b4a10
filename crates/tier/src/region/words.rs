//! A region as words that any number of threads load and store at once: for structures with locks of their own.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use super::{Durability, Region, Window};
use crate::error::TierError;
use crate::persist::{self, FlushInstruction};
use crate::topology::PersistenceDomain;

/// All of a region as shared words, in the machine's byte order.
///
/// A store is durable after [`Words::flush`] of its range and [`Words::fence`], both on the thread that stored.
#[derive(Debug)]
pub struct Words {
    window: Window,
    persist: Persist,
}

#[derive(Debug, Clone, Copy)]
enum Persist {
    /// Fences alone: volatile memory, or caches that survive.
    Fence,
    Flush(FlushInstruction),
    /// Files in the page cache: every flush waits for the device.
    Msync,
}

impl Region {
    /// Turns the region into shared words; up to seven bytes at its end are not among them.
    ///
    /// # Errors
    /// [`TierError::ReadOnly`] if it is mapped for reading, [`TierError::NoFlushInstruction`] if it needs flushes and
    /// this CPU has none that programs may use.
    pub fn into_words(self) -> Result<Words, TierError> {
        if !self.writable() {
            return Err(TierError::ReadOnly {
                path: self.path().to_path_buf(),
            });
        }
        let persist = match self.durability() {
            Durability::Msync => Persist::Msync,
            Durability::Volatile | Durability::FlushDomain(PersistenceDomain::CpuCache) => {
                Persist::Fence
            }
            Durability::FlushDomain(_) => {
                Persist::Flush(FlushInstruction::detect().ok_or(TierError::NoFlushInstruction)?)
            }
        };
        Ok(Words {
            window: self.into_window(),
            persist,
        })
    }
}

impl Words {
    /// The words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        let range = self.window.range();
        let start = self.window.mapping().pointer(&range);
        // SAFETY: The range is mapped writable for as long as `self` lives and starts at a page, so that the words are
        // aligned. The window is the only access to it and gives out nothing but these atomic words.
        unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), range.len() / 8) }
    }

    /// Starts making a range of words durable.
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`], and what the operating system says where it is involved.
    pub fn flush(&self, words: Range<usize>) -> Result<(), TierError> {
        let count = self.words().len();
        if words.start > words.end || words.end > count {
            return Err(TierError::OutsideRegion {
                offset: words.start as u64 * 8,
                len_bytes: words.len() as u64 * 8,
                region_bytes: count as u64 * 8,
            });
        }
        let bytes = words.start * 8..words.end * 8;
        match self.persist {
            _ if bytes.is_empty() => {}
            Persist::Fence => {}
            Persist::Flush(instruction) => {
                let start = self.window.mapping().pointer(&bytes);
                // SAFETY: The range is mapped, as was checked, and `detect` found the instruction on this CPU.
                unsafe { persist::flush_lines(start, bytes.len(), instruction) };
            }
            Persist::Msync => persist::sync_pages(self.window.mapping(), &bytes)?,
        }
        Ok(())
    }

    /// Waits until everything that this thread flushed is durable.
    pub fn fence(&self) {
        persist::fence();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::thread;

    use super::*;
    use crate::region::{AnonymousOptions, FileOptions};

    #[test]
    fn threads_count_together_in_one_word() {
        let region = Region::anonymous(4096, &AnonymousOptions::default()).unwrap();
        let words = region.into_words().unwrap();
        assert_eq!(words.words().len(), 512);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        words.words()[7].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(words.words()[7].load(Ordering::Relaxed), 4000);
    }

    #[test]
    fn flushed_words_of_a_file_are_there_when_it_is_mapped_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words");
        let options = FileOptions {
            len_bytes: Some(8192),
            ..FileOptions::default()
        };
        let words = Region::open_file(&path, &options)
            .unwrap()
            .into_words()
            .unwrap();
        words.words()[600].store(42, Ordering::Release);
        words.flush(600..601).unwrap();
        words.fence();
        assert!(words.flush(1000..1025).is_err());
        drop(words);
        let again = Region::open_file(&path, &FileOptions::default()).unwrap();
        assert_eq!(again.bytes()[4800..4808], 42u64.to_ne_bytes());
    }

    #[test]
    fn a_region_mapped_for_reading_has_no_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words");
        std::fs::write(&path, [1; 64]).unwrap();
        let options = FileOptions {
            read_only: true,
            ..FileOptions::default()
        };
        let refused = Region::open_file(&path, &options).unwrap().into_words();
        assert!(matches!(refused, Err(TierError::ReadOnly { .. })));
    }
}
