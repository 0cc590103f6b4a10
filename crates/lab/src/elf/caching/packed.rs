//! `packed` on a shelf: its head in DRAM, its leaf blocks on the shelf, and some of those cached.
//!
//! A direct table with two bytes for every block says where its copy is and counts hits: nothing is hashed, and a hit
//! takes no lock and reads one line of it.
//! The bytes of an *emulated* shelf are in DRAM, so a block is read where it is whether it was a hit or not; taking one
//! in copies it all the same, into memory that is counted. Only the references of `swizzled` lead to the copy.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use hotshelf_elf::layout::packed::BlockSource;
use hotshelf_tier::simd::prefetch;
use parking_lot::Mutex;

use super::policy::{MARK_MAX, Marks, OnHit, Policy};
use super::shelf::{Accesses, Lane};

/// Parts of a dynamic cache, each with a lock for what it takes in: at least this many.
const PARTITIONS_MIN: usize = 16;

/// A block without a copy. Other entries of the table have the slot in its partition, plus one, and the mark.
const NOT_HELD: u16 = 0;
const MARK_SHIFT: u32 = 14;
const SLOT_MASK: u16 = (1 << MARK_SHIFT) - 1;

/// Slots of a partition, at most.
const SLOTS_MAX: usize = SLOT_MASK as usize;

/// Which blocks are in DRAM.
pub trait Blocks: Send + Sync {
    /// Whether a block is held; what a policy wants to know about the hit is noted.
    fn hit(&self, block: usize) -> bool;

    /// Whether a block is held.
    fn holds(&self, block: usize) -> bool;

    /// The words of a block that is read in DRAM.
    #[inline(always)]
    fn frame(&self, _block: usize) -> Option<&[u64]> {
        None
    }

    /// Offers a block that was missed.
    fn offer(&self, block: usize, words: &[u64]);

    /// One of this many misses is offered. What is accessed often is missed often, so that it is taken in soon; what is
    /// accessed once costs little.
    fn misses_per_offer(&self) -> u32 {
        1
    }

    /// Bytes of DRAM.
    fn dram_bytes(&self) -> u64;
}

/// No blocks at all: `pure`, and `volatile` if the shelf is DRAM.
#[derive(Debug, Clone, Copy)]
pub struct NoBlocks;

impl Blocks for NoBlocks {
    #[inline(always)]
    fn hit(&self, _block: usize) -> bool {
        false
    }

    #[inline(always)]
    fn holds(&self, _block: usize) -> bool {
        false
    }

    #[inline(always)]
    fn offer(&self, _block: usize, _words: &[u64]) {}

    fn dram_bytes(&self) -> u64 {
        0
    }
}

/// What one lock guards.
#[derive(Debug)]
struct Partition<P> {
    policy: P,
    /// Blocks of the frames that are in use.
    blocks: Vec<u32>,
    frames: Vec<u64>,
}

/// Blocks that a policy keeps.
#[derive(Debug)]
pub struct DynamicBlocks<P> {
    /// The slot and the mark of each block.
    table: Vec<AtomicU16>,
    partitions: Vec<Mutex<Partition<P>>>,
    /// Frames of a partition.
    frame_max: usize,
    block_words: usize,
    misses_per_offer: u32,
}

impl<P: Policy> DynamicBlocks<P> {
    /// An empty cache for `bytes_max` bytes of blocks, of an Elf with `block_count` blocks.
    pub fn new(
        block_count: usize,
        block_bytes: usize,
        bytes_max: u64,
        misses_per_offer: u32,
    ) -> Self {
        let frames = bytes_max as usize / block_bytes;
        let partition_count = PARTITIONS_MIN.max(frames.div_ceil(SLOTS_MAX));
        let frame_max = (frames / partition_count).max(1);
        let partition = |_| {
            Mutex::new(Partition {
                policy: P::new(frame_max),
                blocks: Vec::with_capacity(frame_max),
                frames: Vec::with_capacity(frame_max * block_bytes / 8),
            })
        };
        Self {
            table: (0..block_count).map(|_| AtomicU16::new(NOT_HELD)).collect(),
            partitions: (0..partition_count).map(partition).collect(),
            frame_max,
            block_words: block_bytes / 8,
            misses_per_offer,
        }
    }

    fn partition_of(&self, block: usize) -> usize {
        ((block as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % self.partitions.len()
    }
}

/// The marks of one partition's slots, which are beside the slots in the table.
struct TableMarks<'a> {
    table: &'a [AtomicU16],
    blocks: &'a [u32],
}

impl Marks for TableMarks<'_> {
    fn swap(&self, slot: u32, mark: u8) -> u8 {
        let entry = &self.table[self.blocks[slot as usize] as usize];
        let change = |old: u16| Some(old & SLOT_MASK | u16::from(mark) << MARK_SHIFT);
        let old = entry.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        (old.unwrap_or_default() >> MARK_SHIFT) as u8
    }
}

impl<P: Policy> Blocks for DynamicBlocks<P> {
    #[inline(always)]
    fn hit(&self, block: usize) -> bool {
        let entry = self.table[block].load(Ordering::Relaxed);
        if entry == NOT_HELD {
            return false;
        }
        match P::ON_HIT {
            OnHit::Nothing => {}
            OnHit::Mark => {
                if entry >> MARK_SHIFT < u16::from(MARK_MAX) {
                    // It is lost if the block is given up or hit at the same moment.
                    let (marked, order) = (entry + (1 << MARK_SHIFT), Ordering::Relaxed);
                    let _ = self.table[block].compare_exchange(entry, marked, order, order);
                }
            }
            OnHit::Order => {
                let mut partition = self.partitions[self.partition_of(block)].lock();
                let slot = u32::from((entry & SLOT_MASK) - 1);
                // It may have been given up before the lock was taken.
                if partition.blocks[slot as usize] == block as u32 {
                    partition.policy.hit(slot);
                }
            }
        }
        true
    }

    #[inline(always)]
    fn holds(&self, block: usize) -> bool {
        self.table[block].load(Ordering::Relaxed) != NOT_HELD
    }

    fn offer(&self, block: usize, words: &[u64]) {
        let mut guard = self.partitions[self.partition_of(block)].lock();
        let partition = &mut *guard;
        let is_full = partition.blocks.len() == self.frame_max;
        if self.holds(block) || !partition.policy.wants(block as u64, 1, is_full) {
            return;
        }
        let slot = if is_full {
            let (table, blocks) = (&self.table, &partition.blocks);
            let marks = &TableMarks { table, blocks };
            let key_of = |slot: u32| u64::from(blocks[slot as usize]);
            let Some(slot) = partition.policy.evict(marks, &key_of) else {
                return;
            };
            let gone = partition.blocks[slot as usize];
            self.table[gone as usize].store(NOT_HELD, Ordering::Relaxed);
            let at = slot as usize * self.block_words;
            partition.frames[at..at + self.block_words].copy_from_slice(words);
            partition.blocks[slot as usize] = block as u32;
            slot
        } else {
            partition.frames.extend_from_slice(words);
            partition.blocks.push(block as u32);
            (partition.blocks.len() - 1) as u32
        };
        partition.policy.insert(slot, block as u64, 1);
        self.table[block].store(slot as u16 + 1, Ordering::Relaxed);
    }

    fn misses_per_offer(&self) -> u32 {
        self.misses_per_offer
    }

    fn dram_bytes(&self) -> u64 {
        let partitions = self.partitions.iter().map(|partition| {
            let own = partition.lock();
            let numbers = own.blocks.capacity() * 4 + own.frames.capacity() * 8;
            numbers as u64 + own.policy.size_bytes()
        });
        (self.table.len() * 2) as u64 + partitions.sum::<u64>()
    }
}

/// One thread's view of the leaf blocks.
#[derive(Debug)]
pub struct ShelvedBlocks<W, L, B> {
    words: W,
    block_shift: u32,
    lane: RefCell<L>,
    cache: Arc<B>,
    /// The block that was read last, and the one before: they are at hand. Two, because the rows of a key often cross
    /// from one block into the next.
    recent: Cell<usize>,
    before: Cell<usize>,
    /// The last two blocks that were asked for ahead.
    asked: Cell<(usize, usize)>,
    /// Misses since the last one that was offered.
    misses: Cell<u32>,
}

impl<W: AsRef<[u64]>, L: Lane, B: Blocks> ShelvedBlocks<W, L, B> {
    /// Blocks of `block_bytes` each, a power of two, that are reached by a lane.
    pub fn new(words: W, block_bytes: usize, lane: L, cache: Arc<B>) -> Self {
        debug_assert!(block_bytes.is_power_of_two());
        Self {
            words,
            block_shift: (block_bytes / 8).trailing_zeros(),
            lane: RefCell::new(lane),
            cache,
            recent: Cell::new(usize::MAX),
            before: Cell::new(usize::MAX),
            asked: Cell::new((usize::MAX, usize::MAX)),
            misses: Cell::new(0),
        }
    }

    /// Bytes of DRAM for blocks.
    pub fn dram_bytes(&self) -> u64 {
        self.cache.dram_bytes()
    }

    /// What was read from the shelf so far.
    pub fn accesses(&self) -> Accesses {
        self.lane.borrow().accesses()
    }

    /// Whether to wait for the shelf.
    pub fn set_waiting(&self, is_waiting: bool) {
        self.lane.borrow_mut().set_waiting(is_waiting);
    }

    #[inline]
    fn enter(&self, block: usize) {
        let before = self.before.replace(self.recent.replace(block));
        if before != block && !self.cache.hit(block) {
            self.read(block);
        }
    }

    #[inline]
    fn ask(&self, block: usize) {
        self.asked.set((block, self.asked.get().0));
        let is_at_hand = block == self.recent.get() || block == self.before.get();
        if !is_at_hand && !self.cache.holds(block) {
            self.lane.borrow_mut().prefetch(block);
        }
    }

    #[inline(never)]
    fn read(&self, block: usize) {
        self.lane.borrow_mut().load(block);
        let misses = self.misses.get() + 1;
        self.misses.set(misses % self.cache.misses_per_offer());
        if misses == self.cache.misses_per_offer() {
            let first = block << self.block_shift;
            let words = &self.words.as_ref()[first..first + (1 << self.block_shift)];
            self.cache.offer(block, words);
        }
    }
}

impl<W: AsRef<[u64]>, L: Lane, B: Blocks> BlockSource for ShelvedBlocks<W, L, B> {
    const IS_FENCED: bool = true;

    #[inline(always)]
    fn words(&self, place: Range<usize>) -> &[u64] {
        let block = place.start >> self.block_shift;
        if block != self.recent.get() && !place.is_empty() {
            self.enter(block);
        }
        match self.cache.frame(block) {
            Some(frame) => {
                let first = block << self.block_shift;
                &frame[place.start - first..place.end - first]
            }
            None => &self.words.as_ref()[place],
        }
    }

    #[inline(always)]
    fn prefetch(&self, at: usize) {
        let block = at >> self.block_shift;
        let (last, before) = self.asked.get();
        if block != last && block != before && at < self.words.as_ref().len() {
            self.ask(block);
        }
        match self.cache.frame(block) {
            Some(frame) => prefetch(frame, at - (block << self.block_shift)),
            None => prefetch(self.words.as_ref(), at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Lla, Lru, Naive, S3Fifo, Sieve, TwoQueues};
    use super::*;

    fn check<P: Policy>() {
        const BLOCKS: usize = 200;
        let words: Vec<u64> = (0..BLOCKS as u64 * 32).collect();
        let cache = DynamicBlocks::<P>::new(BLOCKS, 256, 64 * 256, 1);
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..5_000 {
            let block = random.usize(..BLOCKS).min(random.usize(..BLOCKS));
            if !cache.hit(block) {
                cache.offer(block, &words[block * 32..block * 32 + 32]);
            }
        }
        let mut held = 0;
        for block in 0..BLOCKS {
            let entry = cache.table[block].load(Ordering::Relaxed);
            if entry == NOT_HELD {
                continue;
            }
            held += 1;
            let partition = cache.partitions[cache.partition_of(block)].lock();
            let slot = usize::from((entry & SLOT_MASK) - 1);
            assert_eq!(partition.blocks[slot] as usize, block);
            assert_eq!(
                partition.frames[slot * 32..][..32],
                words[block * 32..][..32]
            );
        }
        assert!((40..=64).contains(&held), "{held} blocks are held");
    }

    #[test]
    fn frames_hold_the_blocks_that_the_table_says() {
        check::<Naive>();
        check::<Lru>();
        check::<Lla>();
        check::<TwoQueues>();
        check::<Sieve>();
        check::<S3Fifo>();
    }
}
