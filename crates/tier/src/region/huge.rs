//! Huge pages for memory that others allocate.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use rustix::mm::{self, Advice};

use super::HUGE_PAGE_BYTES;
use super::mapping::Mapping;

/// Asks the kernel to use huge pages for memory that is yet to be touched. Random access to hundreds of
/// megabytes otherwise waits for page tables as long as for the data. Contents do not change; nothing happens
/// where the kernel has no huge pages or the memory is too small for one.
pub fn prefer_huge_pages<T>(memory: &mut [T]) {
    let page = rustix::param::page_size();
    let range = memory.as_mut_ptr_range();
    let start = (range.start as usize).next_multiple_of(page);
    let end = range.end as usize / page * page;
    if end.saturating_sub(start) < HUGE_PAGE_BYTES {
        return;
    }
    let first = range
        .start
        .cast::<u8>()
        .wrapping_add(start - range.start as usize);
    // SAFETY: the whole pages from `first` on lie inside `memory`, which is borrowed exclusively; this advice
    // changes the size of pages and never what is in them.
    let _ = unsafe { mm::madvise(first.cast(), end - start, Advice::LinuxHugepage) };
}

/// Words for random access. Many of them have memory of their own, in huge pages if the kernel has them: what an
/// allocator lends was often in use before, and so is in small pages.
pub struct HugeWords {
    start: NonNull<u64>,
    len: usize,
    memory: Memory,
}

/// What the words are in.
enum Memory {
    Lent { capacity: usize },
    Mapped { _mapping: Mapping },
}

// SAFETY: The words belong to the value alone, like those of a `Vec`.
unsafe impl Send for HugeWords {}
// SAFETY: Shared access only reads.
unsafe impl Sync for HugeWords {}

impl HugeWords {
    /// Words that are zero.
    pub fn zeroed(len: usize) -> Self {
        let bytes = len.saturating_mul(size_of::<u64>());
        let mapped = match bytes >= HUGE_PAGE_BYTES {
            true => Mapping::anonymous(bytes, HUGE_PAGE_BYTES).ok(),
            false => None,
        };
        let Some(mapping) = mapped else {
            return Self::lent(vec![0; len]);
        };
        let start = NonNull::new(mapping.pointer(&(0..bytes)).cast());
        let mut words = Self {
            start: start.expect("a mapping is somewhere"),
            len,
            memory: Memory::Mapped { _mapping: mapping },
        };
        prefer_huge_pages(&mut words);
        words
    }

    fn lent(words: Vec<u64>) -> Self {
        let mut words = ManuallyDrop::new(words);
        Self {
            start: NonNull::new(words.as_mut_ptr()).expect("a vector is somewhere"),
            len: words.len(),
            memory: Memory::Lent {
                capacity: words.capacity(),
            },
        }
    }
}

impl Deref for HugeWords {
    type Target = [u64];

    #[inline(always)]
    fn deref(&self) -> &[u64] {
        // SAFETY: `len` words from `start` on are initialized and live as long as `self`, which alone can write them.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for HugeWords {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: As above, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for HugeWords {
    fn drop(&mut self) {
        if let Memory::Lent { capacity } = self.memory {
            // SAFETY: The pointer, length and capacity are those of the vector that was forgotten.
            drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.len, capacity) });
        }
    }
}

impl Default for HugeWords {
    fn default() -> Self {
        Self::lent(Vec::new())
    }
}

impl fmt::Debug for HugeWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HugeWords({})", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_stay_as_they_are() {
        for len in [0, 1, 5_000, 2 << 20] {
            let mut numbers: Vec<u64> = (0..len).collect();
            prefer_huge_pages(&mut numbers);
            assert!(numbers.iter().copied().eq(0..len));
        }
    }

    #[test]
    fn words_are_zero_and_stay_what_they_are_set_to() {
        for len in [0, 1, 5_000, HUGE_PAGE_BYTES / 8, HUGE_PAGE_BYTES / 8 + 1] {
            let mut words = HugeWords::zeroed(len);
            assert!(words.iter().all(|&word| word == 0));
            let numbers = words.iter_mut().enumerate();
            numbers.for_each(|(idx, word)| *word = idx as u64);
            let moved = std::thread::spawn(move || words).join().unwrap();
            assert!(moved.iter().copied().eq(0..len as u64));
        }
        assert!(HugeWords::default().is_empty());
    }
}
