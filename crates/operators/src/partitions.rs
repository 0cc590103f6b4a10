//! Rows divided by bits of their keys' hashes.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bits of the hash that choose a partition.
pub const PARTITION_BITS: u32 = 6;
/// Partitions of rows with a key.
pub const PARTITIONS: usize = 1 << PARTITION_BITS;
/// The partition of rows without a key.
pub const NO_KEY: usize = PARTITIONS;

/// How far apart two scatters begin: as far from all before as partitions allow.
const FIRST_STEP: usize = 27;
static SCATTERS: AtomicUsize = AtomicUsize::new(0);

/// Rows by partition. Reused from batch to batch.
pub struct Scatter {
    ids: Vec<u8>,
    ends: Vec<usize>,
    order: Vec<u32>,
    /// The partition that comes first: another one for each thread, so that they do not wait for each other at all.
    first: usize,
}

impl Default for Scatter {
    fn default() -> Self {
        let number = SCATTERS.fetch_add(1, Ordering::Relaxed);
        Self {
            ids: Vec::new(),
            ends: Vec::new(),
            order: Vec::new(),
            first: number.wrapping_mul(FIRST_STEP) % PARTITIONS,
        }
    }
}

/// The partition of a hash at a level of recursion.
#[inline(always)]
pub fn partition_of(hash: u64, level: u32) -> usize {
    (hash >> (64 - PARTITION_BITS * (level + 1))) as usize & (PARTITIONS - 1)
}

impl Scatter {
    const NOWHERE: u8 = u8::MAX;

    /// Sorts rows by partition. Rows for which `choose` returns nothing are left out.
    pub fn sort(&mut self, hashes: &[u64], choose: impl Fn(usize, u64) -> Option<usize>) {
        self.ids.clear();
        let chosen = hashes.iter().enumerate();
        self.ids
            .extend(chosen.map(|(row, &hash)| match choose(row, hash) {
                Some(partition) => partition as u8,
                None => Self::NOWHERE,
            }));
        self.ends.clear();
        self.ends.resize(NO_KEY + 1, 0);
        let kept = || self.ids.iter().filter(|&&id| id != Self::NOWHERE);
        kept().for_each(|&id| self.ends[usize::from(id)] += 1);
        let mut sum = 0;
        for end in &mut self.ends {
            (sum, *end) = (sum + *end, sum);
        }
        self.order.clear();
        self.order.resize(sum, 0);
        for (row, &id) in self.ids.iter().enumerate() {
            if id != Self::NOWHERE {
                let end = &mut self.ends[usize::from(id)];
                self.order[*end] = row as u32;
                *end += 1;
            }
        }
    }

    /// Memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        let words = self.ends.capacity() * size_of::<usize>();
        self.ids.capacity() + words + self.order.capacity() * size_of::<u32>()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The partitions that have rows.
    pub fn partitions(&self) -> impl Iterator<Item = usize> + '_ {
        let all = (self.first..=NO_KEY).chain(0..self.first);
        all.filter(|&partition| !self.rows(partition).is_empty())
    }

    /// The rows of a partition.
    pub fn rows(&self, partition: usize) -> &[u32] {
        let start = partition
            .checked_sub(1)
            .map_or(0, |before| self.ends[before]);
        &self.order[start..self.ends[partition]]
    }
}
