//! Finding rows by the key itself, without its hash: where keys are one word each and lie close together.
//!
//! A bit for each key between the least and the greatest says whether it has rows. If no key repeats, rows are kept in
//! the order of their keys: then the number of bits before a key's is the number of its row.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use hotshelf_tier::region::{prefer_huge_pages, shared_words};
use hotshelf_tier::simd::prefetch;

use super::part::{Part, place};
use super::store::{Partition, RowStore};
use crate::TableShelf;
use crate::memory::Charge;
use crate::threads::on_threads;

/// There may be this many keys between the least and the greatest for each row,
const KEYS_PER_ROW_MAX: u64 = 128;
/// or this many in any case.
const KEYS_MAX_MIN: u64 = 1 << 16;
/// Rows whose memory is fetched ahead.
const AHEAD: usize = 32;
/// Rows of a part in the order of keys: at least two to the power of this.
const PART_BITS_MIN: u32 = 12;

/// What is known about the keys between the least and the greatest.
pub struct Direct {
    least: u64,
    /// One more than the distance to the greatest.
    len: u64,
    /// A bit for each key that has rows, and a word without any at the end.
    bits: Vec<u64>,
    /// The keys with rows before those of each word, if rows are in the order of their keys.
    before: Option<Vec<u32>>,
    /// Rows of a part: two to the power of this.
    part_bits: u32,
    charge: Charge,
}

impl Direct {
    /// For the rows of all partitions, whose keys lie in this range, and whether no key repeats. `None`: keys lie too
    /// far apart, or there is no memory.
    pub fn build(
        store: &RowStore,
        partitions: &[Partition],
        (least, greatest): (u64, u64),
        threads: usize,
    ) -> Option<(Self, bool)> {
        let rows: u64 = partitions.iter().map(|partition| partition.rows).sum();
        let len = greatest.checked_sub(least)?.checked_add(1)?;
        if len > KEYS_PER_ROW_MAX.saturating_mul(rows).max(KEYS_MAX_MIN) {
            return None;
        }
        let words = len.div_ceil(64) as usize + 1;
        let mut charge = Charge::adopt(store.grant(), 0);
        if !charge.try_grow(8 * words as u64) {
            return None;
        }
        let mut bits = vec![0; words];
        prefer_huge_pages(&mut bits);
        let is_unique = set_bits(&mut bits, least, store, partitions, threads);
        if store.stop().is_raised() {
            return None;
        }
        let direct = Self {
            least,
            len,
            bits,
            before: None,
            part_bits: 0,
            charge,
        };
        Some((direct, is_unique))
    }

    /// Prepares for rows in the order of their keys, none of which repeats. False: there is no memory.
    pub fn count(&mut self) -> bool {
        if !self.charge.try_grow(4 * self.bits.len() as u64) {
            return false;
        }
        let mut sum = 0_u64;
        let before = self.bits.iter().map(|word| {
            let before = sum as u32;
            sum += u64::from(word.count_ones());
            before
        });
        let before: Vec<u32> = before.collect();
        if sum > u64::from(u32::MAX) {
            return false;
        }
        let part_rows = (sum as usize).div_ceil(crate::partitions::PARTITIONS);
        self.part_bits = part_rows
            .next_power_of_two()
            .trailing_zeros()
            .max(PART_BITS_MIN);
        self.before = Some(before);
        true
    }

    pub fn bytes(&self) -> u64 {
        let before = self.before.as_ref().map_or(0, Vec::len);
        (8 * self.bits.len() + 4 * before) as u64
    }

    /// Moves what is known about keys to a shelf.
    pub fn put_on(&self, shelf: &dyn TableShelf) {
        shelf.place(bytemuck::cast_slice(&self.bits));
        if let Some(before) = &self.before {
            shelf.place(bytemuck::cast_slice(before));
        }
    }

    /// Rows of a part, all but the last.
    pub fn part_rows(&self) -> usize {
        1 << self.part_bits
    }

    /// Where the row of a key goes that has one: its part, and its number there.
    #[inline(always)]
    pub fn place(&self, before: &[u32], key: u64) -> (usize, usize) {
        let number = (key - self.least) as usize;
        let (word, bit) = (number / 64, number % 64);
        let smaller = self.bits[word] & ((1 << bit) - 1);
        let row = before[word] as usize + smaller.count_ones() as usize;
        (row >> self.part_bits, row & (self.part_rows() - 1))
    }

    /// The keys before each word's, if rows are in the order of their keys.
    pub fn before(&self) -> Option<&[u32]> {
        self.before.as_deref()
    }

    /// Replaces `rows` by the numbers of the keys that have rows, of those that `counts` says count.
    #[inline(always)]
    pub fn find(&self, keys: &[u64], counts: impl Fn(usize) -> bool, rows: &mut Vec<u32>) {
        rows.resize(keys.len(), 0);
        let (least, len) = (self.least, self.len);
        let mut count = 0;
        for (row, &key) in keys.iter().enumerate() {
            // The number of the end stands for all keys that are less or greater.
            let number = key.wrapping_sub(least).min(len) as usize;
            let bit = self.bits[number / 64] >> (number % 64) & 1;
            rows[count] = row as u32;
            count += usize::from(bit == 1 && counts(row));
        }
        rows.truncate(count);
    }

    /// Replaces `starts` by the places of the only rows of keys that have one. False: rows are not in the order of
    /// their keys.
    pub fn places(
        &self,
        keys: &[u64],
        rows: &[u32],
        parts: &[Part],
        stride: usize,
        starts: &mut Vec<u64>,
    ) -> bool {
        let Some(before) = &self.before else {
            return false;
        };
        starts.clear();
        starts.extend(rows.iter().map(|&row| {
            let (part, row) = self.place(before, keys[row as usize]);
            prefetch(&parts[part].rows, row * stride);
            place(part, row)
        }));
        true
    }
}

/// Sets the bits of all keys. Whether none was set before.
fn set_bits(
    bits: &mut [u64],
    least: u64,
    store: &RowStore,
    partitions: &[Partition],
    threads: usize,
) -> bool {
    let stride = store.layout().stride();
    let bits = shared_words(bits);
    let is_unique = AtomicBool::new(true);
    let next = AtomicUsize::new(0);
    let set_some = || {
        while let Some(partition) = partitions.get(next.fetch_add(1, Relaxed)) {
            if store.stop().is_raised() {
                return;
            }
            let mut repeats = 0;
            let words = partition.chunks.iter().map(|chunk| chunk.words.as_slice());
            for rows in words.flat_map(|words| words.chunks(AHEAD * stride)) {
                let numbers = || rows.chunks_exact(stride).map(|row| row[0] - least);
                numbers().for_each(|number| prefetch(bits, (number / 64) as usize));
                for number in numbers() {
                    let bit = 1 << (number % 64);
                    repeats |= bits[(number / 64) as usize].fetch_or(bit, Relaxed) & bit;
                }
            }
            if repeats != 0 {
                is_unique.store(false, Relaxed);
            }
        }
    };
    on_threads(threads, set_some);
    is_unique.into_inner()
}
