//! Huge pages for memory that others allocate.

use std::fmt;
use std::ops::{Deref, DerefMut};
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
pub struct HugeWords(Memory);

/// What the words are in.
enum Memory {
    Lent(Vec<u64>),
    /// The first words of a mapping that nothing else refers to.
    Mapped(Mapping, usize),
}

impl HugeWords {
    /// Words that are zero.
    pub fn zeroed(len: usize) -> Self {
        let bytes = len.saturating_mul(size_of::<u64>());
        let mapped = match bytes >= HUGE_PAGE_BYTES {
            true => Mapping::anonymous(bytes, HUGE_PAGE_BYTES).ok(),
            false => None,
        };
        let Some(mapping) = mapped else {
            return Self(Memory::Lent(vec![0; len]));
        };
        let mut words = Self(Memory::Mapped(mapping, len));
        prefer_huge_pages(&mut words);
        words
    }
}

impl Deref for HugeWords {
    type Target = [u64];

    #[inline(always)]
    fn deref(&self) -> &[u64] {
        match &self.0 {
            Memory::Lent(words) => words,
            // SAFETY: The mapping has `len` words, initialised by the kernel, and lives as long as `self`, without
            // which none is written.
            Memory::Mapped(mapping, len) => unsafe {
                slice::from_raw_parts(mapping.start().cast(), *len)
            },
        }
    }
}

impl DerefMut for HugeWords {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u64] {
        match &mut self.0 {
            Memory::Lent(words) => words,
            // SAFETY: As above, and `self` is borrowed exclusively.
            Memory::Mapped(mapping, len) => unsafe {
                slice::from_raw_parts_mut(mapping.start().cast(), *len)
            },
        }
    }
}

impl Default for HugeWords {
    fn default() -> Self {
        Self(Memory::Lent(Vec::new()))
    }
}

impl fmt::Debug for HugeWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HugeWords({})", self.len())
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
