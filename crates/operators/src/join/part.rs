//! The table of one partition: rows sorted by slot, and a directory with the end of each slot and a Bloom filter of its
//! keys.
//!
//! Method: Birler, Schmidt, Fent, Neumann, "Simple, Efficient, and Robust Hash Tables for Join Processing", DaMoN 2024.

use std::sync::atomic::AtomicU64;

use hotshelf_tier::region::HugeWords;

use super::layout::{Block, RowLayout};
use crate::memory::Charge;
use crate::{Stop, TableShelf};

/// The place of a row in the tables of all partitions: the part above, the row in it below.
pub(super) const ROW_BITS: u32 = 40;
/// A slot's word: the end of its rows above, the filter below.
pub(super) const FILTER_BITS: u32 = 16;
/// Rows that a shelf writes before it is seen whether the thread should stop.
const ROWS_AT_ONCE: u64 = 1 << 16;
/// Filters of four bits of sixteen. The lowest bits of the hash choose one.
static FILTERS: [u16; 2048] = filters();

const fn filters() -> [u16; 2048] {
    let mut filters = [0; 2048];
    let (mut filled, mut next) = (0, 0_u16);
    while filled < 2048 {
        if next.count_ones() == 4 {
            filters[filled] = next;
            filled += 1;
        }
        next = next.wrapping_add(1);
    }
    filters
}

/// The place of a row of a part.
pub(super) fn place(part: usize, row: usize) -> u64 {
    (part as u64) << ROW_BITS | row as u64
}

#[inline(always)]
pub(super) fn filter_of(hash: u64) -> u64 {
    FILTERS[(hash & 2047) as usize] as u64
}

/// The table of a partition.
#[derive(Default)]
pub struct Part {
    pub(super) rows: HugeWords,
    pub(super) len: usize,
    /// One word more than there are slots, so that a slot's rows start where those of the slot before end.
    pub(super) directory: HugeWords,
    pub(super) shift: u32,
    pub(super) heaps: Vec<Vec<u8>>,
    /// A bit for each row that has a partner, if the join wants to know.
    pub(super) matched: Vec<AtomicU64>,
    /// Lent for what is above.
    charge: Option<Charge>,
}

impl Part {
    /// A table without rows.
    pub fn empty() -> Self {
        Self {
            directory: HugeWords::zeroed(3),
            shift: 63,
            ..Self::default()
        }
    }

    /// Rows that are found by their keys' order, without a directory.
    pub fn in_order(rows: HugeWords, stride: usize, marks: bool) -> Self {
        let len = rows.len() / stride;
        Self {
            rows,
            len,
            matched: unmatched(len, marks),
            ..Self::empty()
        }
    }

    /// Keeps the heaps of several parts, and what was lent for all.
    pub fn keep_for_all(&mut self, heaps: Vec<Vec<u8>>, charge: Charge) {
        self.heaps = heaps;
        self.charge = Some(charge);
    }

    /// Moves the table to a shelf, and waits for its rows to be written there, some at a time.
    pub fn put_on(&self, shelf: &dyn TableShelf, stop: &Stop) {
        shelf.place(bytemuck::cast_slice(&self.rows[..]));
        shelf.place(bytemuck::cast_slice(&self.directory[..]));
        self.heaps.iter().for_each(|heap| shelf.place(heap));
        let (bytes, len) = (self.bytes(), self.len as u64);
        let pieces = (0..len).step_by(ROWS_AT_ONCE as usize);
        for first in pieces.take_while(|_| !stop.is_raised()) {
            shelf.update(bytes, ROWS_AT_ONCE.min(len - first));
        }
    }

    /// What rows, their heaps and the directory take.
    pub fn bytes(&self) -> u64 {
        let heaps = self.heaps.iter().map(Vec::len).sum::<usize>();
        (8 * (self.rows.len() + self.directory.len()) + heaps) as u64
    }

    /// Returns what was lent beyond `bytes`.
    pub fn keep(&mut self, bytes: u64) {
        self.charge.as_mut().expect("a charge").shrink_to(bytes);
    }
}

fn unmatched(rows: usize, marks: bool) -> Vec<AtomicU64> {
    let words = if marks { rows.div_ceil(64) } else { 0 };
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// What [`Part`] needs to know to build.
#[derive(Clone, Copy)]
pub struct PartOptions<'a> {
    pub layout: &'a RowLayout,
    pub stop: &'a Stop,
    /// Upper bits of the hash that are the same for all rows.
    pub skip_bits: u32,
    pub marks: bool,
    /// Whether rows have keys.
    pub has_keys: bool,
    /// Where the table goes.
    pub shelf: Option<&'a dyn TableShelf>,
}

impl PartOptions<'_> {
    fn slot_bits(&self, rows: usize) -> u32 {
        rows.next_power_of_two().trailing_zeros().max(1)
    }

    /// The memory that a table of this many rows needs, apart from heaps.
    pub fn bytes(&self, rows: usize) -> u64 {
        let slots = (1_u64 << self.slot_bits(rows)) + 1;
        let marks = if self.marks { rows.div_ceil(8) } else { 0 };
        (rows * self.layout.stride() * 8 + marks) as u64 + slots * 8
    }

    /// Builds a table. Memory of the chunks is freed as their rows are copied, except for their heaps. Once the thread
    /// should stop, the table is of no use.
    pub fn build(&self, mut chunks: Vec<Block>, charge: Charge) -> Part {
        let stride = self.layout.stride();
        let len = chunks.iter().map(|chunk| chunk.words.len()).sum::<usize>() / stride;
        let bits = self.slot_bits(len);
        let shift = 64 - bits;
        let mut directory = HugeWords::zeroed((1 << bits) + 1);
        let mut rows = HugeWords::zeroed(len * stride);
        if self.has_keys {
            self.count(&chunks, &mut directory, shift);
        }
        let mut next = 0;
        for (number, chunk) in chunks.iter_mut().enumerate() {
            let words = std::mem::take(&mut chunk.words);
            if self.stop.is_raised() {
                break;
            }
            for row in words.chunks_exact(stride) {
                let idx = match self.has_keys {
                    true => self.take_place(row, &mut directory, shift),
                    false => next,
                };
                next += 1;
                let place = &mut rows[idx * stride..(idx + 1) * stride];
                place.copy_from_slice(row);
                if self.layout.has_heap() {
                    self.layout.set_heap(place, number);
                }
            }
        }
        let part = Part {
            rows,
            len,
            directory,
            shift,
            heaps: chunks.into_iter().map(|chunk| chunk.heap).collect(),
            matched: unmatched(len, self.marks),
            charge: Some(charge),
        };
        if let Some(shelf) = self.shelf {
            part.put_on(shelf, self.stop);
        }
        part
    }

    /// Counts the rows of each slot; then each slot's end is where its first row will be.
    fn count(&self, chunks: &[Block], directory: &mut [u64], shift: u32) {
        let chunks = chunks.iter().take_while(|_| !self.stop.is_raised());
        for row in chunks.flat_map(|chunk| chunk.words.chunks_exact(self.layout.stride())) {
            let slot = self.slot(self.layout.hash(row), shift);
            directory[slot + 1] += 1 << FILTER_BITS;
        }
        let mut sum = 0;
        for end in directory {
            (sum, *end) = (sum + *end, sum);
        }
    }

    /// The place of a row, which moves its slot's end by one.
    #[inline(always)]
    fn take_place(&self, row: &[u64], directory: &mut [u64], shift: u32) -> usize {
        let hash = self.layout.hash(row);
        let end = &mut directory[self.slot(hash, shift) + 1];
        let idx = (*end >> FILTER_BITS) as usize;
        *end = (*end + (1 << FILTER_BITS)) | filter_of(hash);
        idx
    }

    #[inline(always)]
    fn slot(&self, hash: u64, shift: u32) -> usize {
        ((hash << self.skip_bits) >> shift) as usize
    }
}
