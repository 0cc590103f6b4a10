//! Blocks of `packed` by swizzled references: what says that a block is held says where, and a hit reads it there.
//!
//! Four bytes for each block are the number of its frame in DRAM, or say that it is on the shelf. Frames are added many
//! at a time and never given up, so that readers keep a frame's words without a lock and without being counted. That
//! allows blocks that were chosen once, and the policy `naive`; others would have to wait for readers.

use std::mem::size_of;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use hotshelf_tier::region::prefer_huge_pages;
use parking_lot::Mutex;

use super::observed::most_accessed;
use super::packed::Blocks;

/// A block that is on the shelf. Other references are the number of a frame, plus one.
const ON_SHELF: u32 = 0;

/// A block that waits until a chunk is full.
const WAITING: u32 = u32::MAX;

/// Bytes of frames that are added together: they contain a whole huge page, wherever they are.
const CHUNK_BYTES: usize = 4 << 20;

/// Words of a line, which frames begin with.
const LINE_WORDS: usize = 8;

/// Frames, one after the other.
#[derive(Debug)]
struct Chunk {
    words: Vec<u64>,
    /// Words before the first frame.
    skipped: usize,
    block_words: usize,
}

impl Chunk {
    /// Room for this many frames.
    fn new(frame_count: usize, block_words: usize) -> Self {
        let mut words = vec![0; frame_count * block_words + LINE_WORDS];
        prefer_huge_pages(&mut words);
        // Blocks are whole lines, if they are not smaller than one.
        let skipped = words.as_ptr().align_offset(LINE_WORDS * 8).min(LINE_WORDS);
        Self {
            words,
            skipped,
            block_words,
        }
    }

    #[inline(always)]
    fn frame(&self, at: usize) -> &[u64] {
        &self.words[self.skipped + at * self.block_words..][..self.block_words]
    }

    fn fill(&mut self, at: usize, block: &[u64]) {
        self.words[self.skipped + at * self.block_words..][..self.block_words]
            .copy_from_slice(block);
    }
}

/// Blocks that wait until a chunk is full.
#[derive(Debug)]
struct Filling {
    blocks: Vec<u32>,
    chunk: Option<Chunk>,
    /// Chunks that are full.
    full_count: usize,
}

/// Blocks in frames, and a reference to each.
#[derive(Debug)]
pub struct SwizzledBlocks {
    references: Vec<AtomicU32>,
    chunks: Vec<OnceLock<Chunk>>,
    filling: Mutex<Filling>,
    frame_max: usize,
    /// Frames of a chunk, as a shift.
    chunk_shift: u32,
    block_words: usize,
    misses_per_offer: u32,
}

impl SwizzledBlocks {
    /// Takes in what is offered, one of this many misses, until it has `bytes_max` bytes of blocks.
    pub fn naive(
        block_count: usize,
        block_bytes: usize,
        bytes_max: u64,
        misses_per_offer: u32,
    ) -> Self {
        let frame_max = ((bytes_max / block_bytes as u64) as usize).min(block_count);
        let chunk_shift = (CHUNK_BYTES / block_bytes).ilog2();
        let chunk_count = frame_max.div_ceil(1 << chunk_shift);
        Self {
            references: (0..block_count).map(|_| AtomicU32::new(ON_SHELF)).collect(),
            chunks: (0..chunk_count).map(|_| OnceLock::new()).collect(),
            filling: Mutex::new(Filling {
                blocks: Vec::with_capacity(frame_max.min(1 << chunk_shift)),
                chunk: None,
                full_count: 0,
            }),
            frame_max,
            chunk_shift,
            block_words: block_bytes / 8,
            misses_per_offer,
        }
    }

    /// The most accessed of all blocks, as many as fit into a number of bytes.
    pub fn chosen(
        access_counts: &[u32],
        words: &[u64],
        block_bytes: usize,
        bytes_max: u64,
    ) -> Self {
        let blocks = Self::naive(access_counts.len(), block_bytes, bytes_max, 1);
        for block in most_accessed(access_counts, blocks.frame_max) {
            let first = block as usize * blocks.block_words;
            blocks.offer(block as usize, &words[first..first + blocks.block_words]);
        }
        blocks
    }

    #[inline(always)]
    fn reference(&self, block: usize) -> u32 {
        let reference = self.references.get(block);
        reference.map_or(ON_SHELF, |reference| reference.load(Ordering::Acquire))
    }
}

impl Blocks for SwizzledBlocks {
    #[inline(always)]
    fn hit(&self, block: usize) -> bool {
        self.holds(block)
    }

    #[inline(always)]
    fn holds(&self, block: usize) -> bool {
        !matches!(self.reference(block), ON_SHELF | WAITING)
    }

    #[inline(always)]
    fn frame(&self, block: usize) -> Option<&[u64]> {
        // A block that waits has a number beyond all chunks.
        let at = self.reference(block).checked_sub(ON_SHELF + 1)? as usize;
        let chunk = self.chunks.get(at >> self.chunk_shift)?.get()?;
        Some(chunk.frame(at & ((1 << self.chunk_shift) - 1)))
    }

    fn offer(&self, block: usize, words: &[u64]) {
        // Without a lock, once all frames are in use.
        if self.chunks.last().is_none_or(|last| last.get().is_some()) {
            return;
        }
        let mut guard = self.filling.lock();
        let filling = &mut *guard;
        let first = filling.full_count << self.chunk_shift;
        let room = self
            .frame_max
            .saturating_sub(first)
            .min(1 << self.chunk_shift);
        if room == 0 || self.reference(block) != ON_SHELF {
            return;
        }
        let new = || Chunk::new(room, self.block_words);
        let chunk = filling.chunk.get_or_insert_with(new);
        chunk.fill(filling.blocks.len(), words);
        filling.blocks.push(block as u32);
        self.references[block].store(WAITING, Ordering::Relaxed);
        if filling.blocks.len() < room {
            return;
        }
        if let Some(chunk) = filling.chunk.take() {
            let _ = self.chunks[filling.full_count].set(chunk);
        }
        for (at, block) in filling.blocks.drain(..).enumerate() {
            let reference = ON_SHELF + 1 + (first + at) as u32;
            self.references[block as usize].store(reference, Ordering::Release);
        }
        filling.full_count += 1;
    }

    fn misses_per_offer(&self) -> u32 {
        self.misses_per_offer
    }

    fn dram_bytes(&self) -> u64 {
        let filling = self.filling.lock();
        let full = self.chunks.iter().filter_map(|chunk| chunk.get());
        let words = full.chain(&filling.chunk).map(|chunk| chunk.words.len());
        let numbers = (self.references.len() + filling.blocks.capacity()) * 4;
        let chunks = self.chunks.len() * size_of::<OnceLock<Chunk>>();
        (numbers + chunks + words.sum::<usize>() * 8) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: usize = 500;

    fn words() -> Vec<u64> {
        (0..BLOCKS as u64 * 32).collect()
    }

    #[test]
    fn references_lead_to_copies_of_their_blocks() {
        let words = words();
        let blocks = SwizzledBlocks::naive(BLOCKS, 256, 100 * 256, 1);
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..5_000 {
            let block = random.usize(..BLOCKS);
            if !blocks.hit(block) {
                blocks.offer(block, &words[block * 32..][..32]);
            }
        }
        let held = (0..BLOCKS).filter(|&block| blocks.holds(block));
        assert_eq!(held.clone().count(), 100);
        for block in held {
            assert_eq!(blocks.frame(block), Some(&words[block * 32..][..32]));
        }
    }

    #[test]
    fn the_most_accessed_blocks_are_chosen() {
        let counts: Vec<u32> = (0..BLOCKS as u32).collect();
        let blocks = SwizzledBlocks::chosen(&counts, &words(), 256, 70 * 256);
        let held = (0..BLOCKS).filter(|&block| blocks.holds(block));
        assert!(held.eq(BLOCKS - 70..BLOCKS));
    }
}
