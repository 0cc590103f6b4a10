//! Which blocks of `packed` a workload accesses, and the most accessed of them in DRAM.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, Ordering};

use super::packed::Blocks;

/// The most accessed blocks, at most this many.
pub fn most_accessed(access_counts: &[u32], count: usize) -> Vec<u32> {
    let mut blocks: Vec<u32> = (0..access_counts.len() as u32).collect();
    blocks.sort_by_key(|&block| (Reverse(access_counts[block as usize]), block));
    blocks.truncate(count);
    blocks
}

/// Blocks that were chosen once.
#[derive(Debug)]
pub struct StaticBlocks {
    bits: Vec<u64>,
    bytes: u64,
}

impl StaticBlocks {
    /// The most accessed blocks, as many as fit into a number of bytes.
    pub fn new(access_counts: &[u32], block_bytes: usize, bytes_max: u64) -> Self {
        let blocks = most_accessed(access_counts, (bytes_max / block_bytes as u64) as usize);
        let mut bits = vec![0; access_counts.len().div_ceil(64)];
        for &block in &blocks {
            bits[block as usize / 64] |= 1 << (block % 64);
        }
        Self {
            // A copy is found by counting the bits before it: half a word for each word of bits.
            bytes: (blocks.len() * block_bytes + bits.len() * 12) as u64,
            bits,
        }
    }
}

impl Blocks for StaticBlocks {
    #[inline(always)]
    fn hit(&self, block: usize) -> bool {
        self.holds(block)
    }

    #[inline(always)]
    fn holds(&self, block: usize) -> bool {
        self.bits[block / 64] >> (block % 64) & 1 == 1
    }

    #[inline(always)]
    fn offer(&self, _block: usize, _words: &[u64]) {}

    fn dram_bytes(&self) -> u64 {
        self.bytes
    }
}

/// Counts how often each block is accessed: the observed workload.
#[derive(Debug)]
pub struct CountBlocks {
    counts: Vec<AtomicU32>,
}

impl CountBlocks {
    /// For this many blocks.
    pub fn new(block_count: usize) -> Self {
        Self {
            counts: (0..block_count).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Accesses of each block.
    pub fn counts(&self) -> Vec<u32> {
        let counts = self.counts.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

impl Blocks for CountBlocks {
    fn hit(&self, block: usize) -> bool {
        self.counts[block].fetch_add(1, Ordering::Relaxed);
        true
    }

    fn holds(&self, _block: usize) -> bool {
        true
    }

    fn offer(&self, _block: usize, _words: &[u64]) {}

    fn dram_bytes(&self) -> u64 {
        0
    }
}
