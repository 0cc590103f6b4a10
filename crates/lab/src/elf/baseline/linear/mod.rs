//! The papers' layout: DimensionLists and MonoLists in one array, in preorder.
//!
//! (Selective caching, DAPD 2022, section 2.2, and the linearised layout of the original.)
//!
//! * The first level has no values: the link of code `v` is at link position `v`.
//! * A *DimensionList* of a deeper level is a run of entries `[value][link]`, ascending by value; the top
//!   bit of the last entry's value ends it.
//! * A *MonoList* is the rest of one distinct row: its remaining codes, then the TIDs of all rows equal to
//!   it, the last with its top bit set. The published code keeps one TID; full duplicates are kept here.
//! * A list is followed by the complete subtree of its first entry, then that of its second, and so on.
//!
//! Values and TIDs have 31 bits. A code that does not occur on the first level has an *absent* link, so
//! codes need not be dense.

mod build;
mod oracle;
mod search;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;

pub use oracle::UniformEstimate;

/// Ends a DimensionList (on the last value) or a MonoList (on the last TID).
pub(in crate::elf) const LAST: u32 = 1 << 31;

/// What a link leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// No row has this code.
    Absent,
    /// A DimensionList at this word.
    List(usize),
    /// A MonoList at this word.
    Mono(usize),
}

/// The width of links: `Narrow` or [`Wide`].
pub trait Offset: Copy + Send + Sync + std::fmt::Debug + 'static {
    /// Words of one link.
    const WORDS: usize;
    /// Words that can be addressed.
    const WORD_COUNT_MAX: u64;
    /// Reads the link at the start of `words`.
    fn read(words: &[u32]) -> Link;
    /// Writes a link at the start of `words`.
    fn write(link: Link, words: &mut [u32]);
}

/// 32-bit links, one word each: up to 2^31 words, 8 GiB.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Narrow;

/// 64-bit links, two words each, as in the published 64-bit structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wide;

#[cfg(test)]
impl Offset for Narrow {
    const WORDS: usize = 1;
    const WORD_COUNT_MAX: u64 = (1 << 31) - 1;

    #[inline]
    fn read(words: &[u32]) -> Link {
        match words[0] {
            u32::MAX => Link::Absent,
            word if word >> 31 == 1 => Link::Mono((word & !(1 << 31)) as usize),
            word => Link::List(word as usize),
        }
    }

    fn write(link: Link, words: &mut [u32]) {
        words[0] = match link {
            Link::Absent => u32::MAX,
            Link::List(at) => at as u32,
            Link::Mono(at) => at as u32 | 1 << 31,
        };
    }
}

impl Wide {
    const MONO: u64 = 1 << 62;
}

impl Offset for Wide {
    const WORDS: usize = 2;
    const WORD_COUNT_MAX: u64 = 1 << 48;

    #[inline]
    fn read(words: &[u32]) -> Link {
        match u64::from(words[0]) | u64::from(words[1]) << 32 {
            u64::MAX => Link::Absent,
            word if word & Self::MONO != 0 => Link::Mono((word & !Self::MONO) as usize),
            word => Link::List(word as usize),
        }
    }

    fn write(link: Link, words: &mut [u32]) {
        let word = match link {
            Link::Absent => u64::MAX,
            Link::List(at) => at as u64,
            Link::Mono(at) => at as u64 | Self::MONO,
        };
        (words[0], words[1]) = (word as u32, (word >> 32) as u32);
    }
}

/// What one level of an Elf holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LevelCount {
    /// DimensionLists.
    pub list_count: u64,
    /// Entries of those lists.
    pub entry_count: u64,
    /// Entries that lead to a MonoList.
    pub mono_count: u64,
}

/// An Elf in the papers' layout.
///
/// Invariants, established by the builder:
/// 1. `words` starts with `root_count` links, one per code of the first dimension from 0 on.
/// 2. After them, lists and MonoLists follow in preorder and fill `words` exactly.
/// 3. Values ascend strictly within a list; every list has its last-entry mark.
/// 4. Each of the `row_count` TIDs is in one MonoList.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinearElf<O> {
    dimension_count: usize,
    row_count: usize,
    root_count: usize,
    words: Vec<u32>,
    width: PhantomData<O>,
}

impl<O: Offset> LinearElf<O> {
    /// The array.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Size of the array in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.words.len() as u64 * 4
    }

    /// Number of dimensions.
    pub fn dimension_count(&self) -> usize {
        self.dimension_count
    }

    /// Links of the first level: one per code.
    pub fn root_count(&self) -> usize {
        self.root_count
    }

    /// The link of a code of the first dimension.
    #[inline]
    fn root(&self, code: usize) -> Link {
        if code < self.root_count {
            O::read(&self.words[code * O::WORDS..])
        } else {
            Link::Absent
        }
    }

    /// The entry at a word: value, whether it is the list's last, link.
    #[inline]
    fn entry(&self, at: usize) -> (u32, bool, Link) {
        let words = &self.words[at..at + 1 + O::WORDS];
        (words[0] & !LAST, words[0] & LAST != 0, O::read(&words[1..]))
    }

    /// Counts lists, entries and MonoLists per level by walking the whole structure.
    pub fn level_counts(&self) -> Vec<LevelCount> {
        let mut counts = vec![LevelCount::default(); self.dimension_count];
        counts[0].list_count = u64::from(self.root_count > 0);
        for code in 0..self.root_count {
            self.count_entry(self.root(code), 0, &mut counts);
        }
        counts
    }

    fn count_entry(&self, link: Link, level: usize, counts: &mut [LevelCount]) {
        match link {
            Link::Absent => {}
            Link::Mono(_) => {
                counts[level].entry_count += 1;
                counts[level].mono_count += 1;
            }
            Link::List(mut at) => {
                counts[level].entry_count += 1;
                counts[level + 1].list_count += 1;
                loop {
                    let (_, last, link) = self.entry(at);
                    self.count_entry(link, level + 1, counts);
                    if last {
                        break;
                    }
                    at += 1 + O::WORDS;
                }
            }
        }
    }
}
