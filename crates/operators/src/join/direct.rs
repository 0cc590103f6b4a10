//! Finding rows by the key itself, without its hash: where keys are one word each and lie close together.
//!
//! A bit for each key between the least and the greatest says whether it has rows, and rows are kept in the order of
//! their keys: the number of bits before a key's is its own number, which is that of its row if no key repeats, and
//! else says where its rows end. Rows that probe in about the order of their keys find theirs close together.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};

use hotshelf_tier::region::{HugeWords, shared_words};
use hotshelf_tier::simd::prefetch;

use super::part::{Part, ROW_BITS, place};
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
    /// For each 64 keys a bit for each that has rows, and then how many keys before these have rows: both are asked
    /// together. A group without any is at the end.
    groups: HugeWords,
    /// Whether no key repeats.
    is_unique: bool,
    /// Where the rows of each key end, if some repeat, by the key's number and one: all are in one part.
    ends: Vec<u32>,
    /// Where those end that are there so far, while rows are put in their places.
    filled: Vec<AtomicU32>,
    /// Rows of a part: two to the power of this.
    part_bits: u32,
    charge: Charge,
}

impl Direct {
    /// For the rows of all partitions, whose keys lie in this range. `None`: keys lie too far apart, or there is no
    /// memory.
    pub fn build(
        store: &RowStore,
        partitions: &[Partition],
        (least, greatest): (u64, u64),
        threads: usize,
    ) -> Option<Self> {
        let rows: u64 = partitions.iter().map(|partition| partition.rows).sum();
        let len = greatest.checked_sub(least)?.checked_add(1)?;
        if len > KEYS_PER_ROW_MAX.saturating_mul(rows).max(KEYS_MAX_MIN) {
            return None;
        }
        let words = 2 * (len.div_ceil(64) as usize + 1);
        let mut charge = Charge::adopt(store.grant(), 0);
        if !charge.try_grow(8 * words as u64) {
            return None;
        }
        let mut groups = HugeWords::zeroed(words);
        let is_unique = set_bits(&mut groups, least, store, partitions, threads);
        if store.stop().is_raised() {
            return None;
        }
        Some(Self {
            least,
            len,
            groups,
            is_unique,
            ends: Vec::new(),
            filled: Vec::new(),
            part_bits: 0,
            charge,
        })
    }

    /// Whether each key has one row.
    pub fn is_unique(&self) -> bool {
        self.is_unique
    }

    /// Prepares for the rows of all partitions in the order of their keys. False: there is no memory.
    pub fn count(&mut self, store: &RowStore, partitions: &[Partition], threads: usize) -> bool {
        match self.count_keys() {
            None => false,
            Some(_) if self.is_unique => true,
            Some(keys) => self.count_rows(keys, store, partitions, threads),
        }
    }

    /// How many keys there are; none if they are too many.
    fn count_keys(&mut self) -> Option<usize> {
        let (groups, _) = self.groups.as_chunks_mut::<2>();
        let mut sum = 0_u64;
        for [bits, before] in groups {
            *before = sum;
            sum += u64::from(bits.count_ones());
        }
        if sum > u64::from(u32::MAX) {
            return None;
        }
        let part_rows = (sum as usize).div_ceil(crate::partitions::PARTITIONS);
        self.part_bits = part_rows
            .next_power_of_two()
            .trailing_zeros()
            .max(PART_BITS_MIN);
        Some(sum as usize)
    }

    /// Finds where the rows of each key will begin: where those end that are there so far.
    fn count_rows(
        &mut self,
        keys: usize,
        store: &RowStore,
        partitions: &[Partition],
        threads: usize,
    ) -> bool {
        let rows: u64 = partitions.iter().map(|partition| partition.rows).sum();
        if rows > u64::from(u32::MAX) || !self.charge.try_grow(4 * (keys as u64 + 1)) {
            return false;
        }
        self.part_bits = ROW_BITS - 1;
        self.filled = (0..=keys).map(|_| AtomicU32::new(0)).collect();
        let stride = store.layout().stride();
        let next = AtomicUsize::new(0);
        let count_some = || {
            while let Some(partition) = partitions.get(next.fetch_add(1, Relaxed)) {
                if store.stop().is_raised() {
                    return;
                }
                let words = partition.chunks.iter().map(|chunk| chunk.words.as_slice());
                for row in words.flat_map(|words| words.chunks_exact(stride)) {
                    self.next_row(row[0]);
                }
            }
        };
        on_threads(threads, count_some);
        let mut sum = 0;
        for end in &mut self.filled {
            let end = end.get_mut();
            (sum, *end) = (sum + *end, sum);
        }
        true
    }

    /// Called when all rows are in their places.
    pub fn finish(&mut self) {
        let filled = std::mem::take(&mut self.filled).into_iter();
        self.ends = filled.map(AtomicU32::into_inner).collect();
    }

    /// The place of one more row of a key that repeats. All rows of a key are in one partition, and no other thread has
    /// that.
    #[inline(always)]
    fn next_row(&self, key: u64) -> usize {
        let end = &self.filled[self.number(key) + 1];
        let row = end.load(Relaxed);
        end.store(row + 1, Relaxed);
        row as usize
    }

    pub fn bytes(&self) -> u64 {
        (8 * self.groups.len() + 4 * self.ends.len()) as u64
    }

    /// Moves what is known about keys to a shelf.
    pub fn put_on(&self, shelf: &dyn TableShelf) {
        shelf.place(bytemuck::cast_slice(&self.groups[..]));
        shelf.place(bytemuck::cast_slice(&self.ends));
    }

    /// Rows of a part, all but the last.
    pub fn part_rows(&self) -> usize {
        1 << self.part_bits
    }

    /// The number of a key that has rows, among those that have.
    #[inline(always)]
    fn number(&self, key: u64) -> usize {
        self.number_at((key - self.least) as usize).0
    }

    /// How many keys before the one at a place have rows, and whether it has.
    #[inline(always)]
    fn number_at(&self, place: usize) -> (usize, bool) {
        let (group, bit) = (place / 64 * 2, place % 64);
        let [bits, before] = [self.groups[group], self.groups[group + 1]];
        let smaller = bits & ((1 << bit) - 1);
        let number = before as usize + smaller.count_ones() as usize;
        (number, bits >> bit & 1 == 1)
    }

    /// Where the next row of a key goes that has one: its part, and its number there.
    #[inline(always)]
    pub fn take_place(&self, key: u64) -> (usize, usize) {
        match self.is_unique {
            true => self.place(key),
            false => (0, self.next_row(key)),
        }
    }

    /// Where the only row of a key is.
    #[inline(always)]
    fn place(&self, key: u64) -> (usize, usize) {
        let row = self.number(key);
        (row >> self.part_bits, row & (self.part_rows() - 1))
    }

    /// Replaces `rows` by the numbers of the keys that have rows, of those that `counts` says count, and `starts` and
    /// `ends` by the places of these rows. Where keys repeat, rows are compared next, and so fetched.
    #[inline(always)]
    pub fn find(
        &self,
        keys: &[u64],
        counts: impl Fn(usize) -> bool,
        (parts, stride): (&[Part], usize),
        (rows, starts, ends): (&mut Vec<u32>, &mut Vec<u64>, &mut Vec<u64>),
    ) {
        rows.resize(keys.len(), 0);
        starts.resize(keys.len(), 0);
        let (least, len) = (self.least, self.len);
        let mut count = 0;
        for (row, &key) in keys.iter().enumerate() {
            // The place of the end stands for all keys that are less or greater.
            let place = key.wrapping_sub(least).min(len) as usize;
            let (number, has_rows) = self.number_at(place);
            rows[count] = row as u32;
            starts[count] = number as u64;
            count += usize::from(has_rows && counts(row));
        }
        rows.truncate(count);
        starts.truncate(count);
        ends.clear();
        if self.is_unique {
            let mask = self.part_rows() as u64 - 1;
            for start in starts.iter_mut() {
                *start = place(
                    (*start >> self.part_bits) as usize,
                    (*start & mask) as usize,
                );
            }
            ends.extend(starts.iter().map(|start| start + 1));
            return;
        }
        for number in starts.iter_mut() {
            let key = *number as usize;
            let start = self.ends[key] as usize;
            prefetch(&parts[0].rows, start * stride);
            *number = place(0, start);
            ends.push(place(0, self.ends[key + 1] as usize));
        }
    }
}

/// Sets the bits of all keys. Whether none was set before.
fn set_bits(
    groups: &mut [u64],
    least: u64,
    store: &RowStore,
    partitions: &[Partition],
    threads: usize,
) -> bool {
    let stride = store.layout().stride();
    let groups = shared_words(groups);
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
                numbers().for_each(|number| prefetch(groups, (number / 64 * 2) as usize));
                for number in numbers() {
                    let bit = 1 << (number % 64);
                    repeats |= groups[(number / 64 * 2) as usize].fetch_or(bit, Relaxed) & bit;
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
