//! Where queries find leaf blocks: all in memory, or those fetched for them.

use std::cell::Cell;
use std::ops::{AddAssign, Range};
use std::sync::Arc;

use hotshelf_tier::region::{Sealed, numbers};
use hotshelf_tier::simd::prefetch;

/// What is read at once from a device; larger blocks are read whole.
const PAGE_WORDS: usize = 512;

/// Has leaf blocks, as many as a query reads. Places are words among those of all blocks, whether they are here or not.
pub trait BlockSource {
    /// Whether fences say which block to read before any is: a block is far away then. Those in memory come sooner than
    /// their fences.
    const IS_FENCED: bool;

    /// Some words of one block.
    fn words(&self, place: Range<usize>) -> &[u64];

    /// Starts loading a word, if it is in memory.
    fn prefetch(&self, at: usize);
}

impl<T: AsRef<[u64]>> BlockSource for T {
    const IS_FENCED: bool = false;

    #[inline(always)]
    fn words(&self, place: Range<usize>) -> &[u64] {
        &self.as_ref()[place]
    }

    #[inline(always)]
    fn prefetch(&self, at: usize) {
        prefetch(self.as_ref(), at);
    }
}

/// How blocks lie in the pages of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paging {
    block_words: usize,
    /// At most 16.
    page_blocks: usize,
}

impl Paging {
    /// Of blocks of this many words.
    pub(crate) fn new(block_words: usize) -> Self {
        Self {
            block_words,
            page_blocks: (PAGE_WORDS / block_words).max(1),
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.block_words * 8
    }

    /// The page of a block, and its place there.
    #[inline]
    pub fn page_of(self, block: u32) -> (u32, usize) {
        let page_blocks = self.page_blocks as u32;
        (block / page_blocks, (block % page_blocks) as usize)
    }

    /// The first block of a page.
    pub fn first_block(self, page: u32) -> u32 {
        page * self.page_blocks as u32
    }

    /// The pages of blocks, ascending, each with a bit for every block of it. `blocks` ascend and do not overlap.
    pub fn pages(self, blocks: &[Range<u32>]) -> Vec<(u32, u16)> {
        let mut pages: Vec<(u32, u16)> = Vec::new();
        for range in blocks {
            let mut block = range.start;
            while block < range.end {
                let (page, first) = self.page_of(block);
                let count = (self.page_blocks - first).min((range.end - block) as usize);
                let bits = (u16::MAX >> (16 - count)) << first;
                match pages.last_mut() {
                    Some((last, wanted)) if *last == page => *wanted |= bits,
                    _ => pages.push((page, bits)),
                }
                block += count as u32;
            }
        }
        pages
    }
}

/// Some blocks of one page, each of which was what it should be when it came from its shelf, or when it was first
/// looked at where it lies.
///
/// Bytes of a shelf that is read where it lies may be changed by others: a search then gives wrong answers, but it does
/// not panic, and reads nothing outside, since places come from the head alone.
#[derive(Debug, Clone)]
pub struct Frame {
    /// A bit for each block that is here.
    present: u16,
    words: FrameWords,
}

#[derive(Debug, Clone)]
enum FrameWords {
    /// The blocks, one after the other.
    Own(Box<[u64]>),
    /// All blocks of the page from block `first` on, present or not, where they lie.
    Lying {
        bytes: Sealed,
        first: usize,
        block_words: usize,
    },
}

impl Frame {
    /// Blocks of a page: a bit for each, and their words one after the other.
    pub(crate) fn new(present: u16, words: Vec<u64>) -> Self {
        let words = FrameWords::Own(words.into());
        Self { present, words }
    }

    /// Blocks of a page that stay where they lie: a bit for each, and the bytes from block `first` on, which begin at a
    /// multiple of eight.
    pub(crate) fn lying(present: u16, first: usize, bytes: Sealed, paging: Paging) -> Self {
        let block_words = paging.block_words;
        let words = FrameWords::Lying {
            bytes,
            first,
            block_words,
        };
        Self { present, words }
    }

    /// The blocks that are here, a bit for each.
    pub fn present(&self) -> u16 {
        self.present
    }

    /// Bytes in memory, or those that a copy there would take.
    pub fn size_bytes(&self) -> u64 {
        let word_count = match &self.words {
            FrameWords::Own(words) => words.len(),
            FrameWords::Lying { block_words, .. } => {
                self.present.count_ones() as usize * block_words
            }
        };
        (word_count * 8 + size_of::<Self>()) as u64
    }

    /// Whether they are searched where they lie, and not in memory of their own.
    pub fn is_lying(&self) -> bool {
        matches!(self.words, FrameWords::Lying { .. })
    }

    /// The same blocks in memory of their own; `None` if they have it already.
    pub fn copied(&self, paging: Paging) -> Option<Self> {
        self.is_lying().then(|| self.joined(self, paging))
    }

    /// The blocks of both, of the same page of the same Elf, in memory of their own.
    pub fn joined(&self, other: &Self, paging: Paging) -> Self {
        let present = self.present | other.present;
        let mut words = Vec::with_capacity(present.count_ones() as usize * paging.block_words);
        for place in (0..paging.page_blocks).filter(|place| present >> place & 1 == 1) {
            let own = self.block(place, paging.block_words);
            words.extend_from_slice(own.unwrap_or_else(|| {
                let others = other.block(place, paging.block_words);
                others.unwrap_or_default()
            }));
        }
        Self::new(present, words)
    }

    /// The block at a place of the page.
    #[inline]
    fn block(&self, place: usize, block_words: usize) -> Option<&[u64]> {
        let bit = 1u32 << place;
        let present = u32::from(self.present);
        if present & bit == 0 {
            return None;
        }
        let (words, before) = match &self.words {
            FrameWords::Own(words) => (&**words, (present & (bit - 1)).count_ones() as usize),
            FrameWords::Lying { bytes, first, .. } => (numbers(bytes), place.checked_sub(*first)?),
        };
        words.get(before * block_words..)?.get(..block_words)
    }
}

/// Where the blocks of some answers came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockReads {
    /// Queries and keys that were looked up.
    pub look_ups: u64,
    /// Blocks that were in memory.
    pub dram_blocks: u64,
    /// Blocks that were read from the shelf.
    pub shelf_blocks: u64,
    /// Accesses to the shelf: blocks whose pages are neighbours are read by one.
    pub accesses: u64,
}

impl BlockReads {
    /// Accesses to the shelf for each look-up; 0 without look-ups.
    pub fn accesses_per_look_up(self) -> f64 {
        self.accesses as f64 / self.look_ups.max(1) as f64
    }
}

impl AddAssign for BlockReads {
    fn add_assign(&mut self, other: Self) {
        self.look_ups += other.look_ups;
        self.dram_blocks += other.dram_blocks;
        self.shelf_blocks += other.shelf_blocks;
        self.accesses += other.accesses;
    }
}

/// Blocks that were fetched for a query or a part of it.
#[derive(Debug)]
pub struct FetchedBlocks {
    reads: BlockReads,
    paging: Paging,
    /// By page, ascending.
    frames: Vec<(u32, Arc<Frame>)>,
    /// Where the last block was found.
    last: Cell<usize>,
}

impl FetchedBlocks {
    /// The blocks of some pages, which ascend, and where they came from.
    pub fn new(paging: Paging, frames: Vec<(u32, Arc<Frame>)>, reads: BlockReads) -> Self {
        debug_assert!(frames.is_sorted_by_key(|(page, _)| *page));
        Self {
            reads,
            paging,
            frames,
            last: Cell::new(0),
        }
    }

    /// Where they came from.
    pub fn reads(&self) -> BlockReads {
        self.reads
    }

    /// The frame of a page: most often the same as last time, or the next one.
    #[inline]
    fn frame(&self, page: u32) -> Option<(usize, &Frame)> {
        let last = self.last.get();
        let is_here = |at: &usize| self.frames.get(*at).is_some_and(|(own, _)| *own == page);
        let near = [last, last + 1].into_iter().find(is_here);
        let at = near.or_else(|| {
            self.frames
                .binary_search_by_key(&page, |(own, _)| *own)
                .ok()
        })?;
        Some((at, &self.frames[at].1))
    }

    #[inline]
    fn block(&self, at: usize) -> Option<(usize, &[u64])> {
        let (page, place) = self.paging.page_of((at / self.paging.block_words) as u32);
        let (frame_idx, frame) = self.frame(page)?;
        Some((frame_idx, frame.block(place, self.paging.block_words)?))
    }
}

impl BlockSource for FetchedBlocks {
    const IS_FENCED: bool = true;

    /// # Panics
    /// When the block was not fetched: what a query reads is planned before.
    #[inline]
    fn words(&self, place: Range<usize>) -> &[u64] {
        let Some((frame_idx, block)) = self.block(place.start) else {
            panic!("word {} is in a block that was not fetched", place.start);
        };
        self.last.set(frame_idx);
        let start = place.start % self.paging.block_words;
        &block[start..start + place.len()]
    }

    #[inline]
    fn prefetch(&self, at: usize) {
        if let Some((_, block)) = self.block(at) {
            prefetch(block, at % self.paging.block_words);
        }
    }
}
