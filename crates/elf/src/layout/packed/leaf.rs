//! Reading leaf blocks: one row's codes and TID, and the test of a whole run of rows at once.

use std::ops::Range;

use hotshelf_tier::simd::{Backend, MASK_LANES, prefetch};

use crate::keys::{QueryBox, Restriction};

use super::blocks::BlockSource;
use super::geometry::{Geometry, LeafShape};

/// Words of a cache line.
pub(crate) const LINE_WORDS: usize = 8;

/// How many blocks ahead are asked for in long runs.
const AHEAD_BLOCKS: usize = 12;

/// The blocks of an Elf together with their geometry.
#[derive(Debug)]
pub(crate) struct Leaves<'a, S> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) blocks: &'a S,
}

impl<S> Clone for Leaves<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Leaves<'_, S> {}

/// Consecutive rows of one leaf region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) level: usize,
    pub(crate) slots: Range<usize>,
    /// The row of the first slot.
    pub(crate) row: u32,
}

impl Run {
    pub(crate) fn rows(&self) -> Range<u32> {
        self.row..self.row + self.slots.len() as u32
    }
}

/// Where a TID is found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TidPlace {
    /// In the leaves, from this bit of a word on, this many bits.
    Word { at: usize, shift: u32, bits: u32 },
    /// Nowhere: it is known.
    Known(u32),
}

/// The TID whose bits begin at bit `shift` of the first word and end in the last, which may be the same.
#[inline(always)]
fn tid_of(first: u64, last: u64, shift: u32, bits: u32) -> u32 {
    let both = first >> shift | last << 1 << (63 - shift);
    (both & (u64::MAX >> (64 - bits))) as u32
}

/// The TID that begins at a bit of a block.
#[inline(always)]
fn tid_at(block: &[u64], bit: usize, bits: u32) -> u32 {
    let (at, shift) = (bit / 64, (bit % 64) as u32);
    let last = at + usize::from(shift + bits > 64);
    tid_of(block[at], block[last], shift, bits)
}

/// Up to 64 rows inside one block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    block: &'a [u64],
    /// Word at which the block starts.
    block_at: usize,
    shape: &'a LeafShape,
    /// Position of the first row in the block.
    first: usize,
    /// Number of rows.
    pub(crate) len: usize,
    /// The row of the first.
    pub(crate) row: u32,
    clustered: bool,
}

impl Piece<'_> {
    /// One suffix word of all rows.
    #[inline]
    fn suffix(&self, word: usize) -> &[u64] {
        &self.block[self.shape.suffix_at(word) + self.first..][..self.len]
    }

    /// The TID of the `idx`-th row.
    #[inline]
    pub(crate) fn tid(&self, idx: usize) -> u32 {
        if self.clustered {
            return self.row + idx as u32;
        }
        tid_at(
            self.block,
            self.shape.tid_bit(self.first + idx),
            self.shape.tid_bits(),
        )
    }

    /// Where the TID of the `idx`-th row is.
    #[inline]
    pub(crate) fn tid_place(&self, idx: usize) -> TidPlace {
        if self.clustered {
            return TidPlace::Known(self.row + idx as u32);
        }
        self.shape.tid_place(self.block_at, self.first + idx)
    }

    /// Appends the TIDs of all rows.
    #[inline]
    pub(crate) fn extend_tids(&self, tids: &mut Vec<u32>) {
        if self.clustered {
            tids.extend(self.row..self.row + self.len as u32);
            return;
        }
        let (bits, first) = (self.shape.tid_bits(), self.shape.tid_bit(self.first));
        let places = (0..self.len).map(|idx| first + idx * bits as usize);
        tids.extend(places.map(|bit| tid_at(self.block, bit, bits)));
    }

    /// Starts loading the TIDs of some rows; not of a clustered Elf.
    #[inline]
    pub(crate) fn prefetch_tids(&self, mask: u64) {
        let word = |idx: u32| self.shape.tid_bit(self.first + idx as usize) / 64;
        prefetch(self.block, word(mask.trailing_zeros()));
        prefetch(self.block, word(63 - mask.leading_zeros()));
    }

    /// The code of the `idx`-th row at `column` columns past the region's level.
    #[inline]
    pub(crate) fn code(&self, idx: usize, column: usize) -> u32 {
        let field = self.shape.fields[column];
        let word = self.block[self.shape.suffix_at(field.word) + self.first + idx];
        ((word >> field.shift) & field.mask) as u32
    }

    /// Appends the codes of all rows at `column` columns past the region's level.
    #[inline]
    pub(crate) fn extend_codes(&self, column: usize, codes: &mut Vec<u32>) {
        let field = self.shape.fields[column];
        let words = self.suffix(field.word).iter();
        codes.extend(words.map(|word| ((word >> field.shift) & field.mask) as u32));
    }

    /// All rows of the piece as a mask.
    #[inline]
    pub(crate) fn all(&self) -> u64 {
        u64::MAX >> (64 - self.len)
    }

    /// The rows whose suffix words equal `key`.
    #[inline]
    pub(crate) fn equal_mask(&self, backend: Backend, key: &[u64]) -> u64 {
        let mut mask = self.all();
        for (word, &key) in key.iter().enumerate() {
            mask &= backend.eq_mask(self.suffix(word), key);
            if mask == 0 {
                break;
            }
        }
        mask
    }

    /// The rows that pass a test.
    #[inline]
    pub(crate) fn test_mask(&self, backend: Backend, test: &LeafTest<'_>) -> u64 {
        if let ([bounds], []) = (test.bounds.as_slice(), test.sets.as_slice()) {
            return backend.box_mask(self.suffix(bounds.word), bounds.lo, bounds.hi, bounds.guard);
        }
        let mut mask = self.all();
        for bounds in &test.bounds {
            let words = self.suffix(bounds.word);
            mask &= backend.box_mask(words, bounds.lo, bounds.hi, bounds.guard);
            if mask == 0 {
                return 0;
            }
        }
        for (column, set) in &test.sets {
            let mut rest = mask;
            while rest != 0 {
                let idx = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if !set.contains(self.code(idx, *column)) {
                    mask &= !(1 << idx);
                }
            }
        }
        mask
    }
}

/// The pieces of a run, in order.
pub(crate) struct Pieces<'a, S> {
    leaves: Leaves<'a, S>,
    shape: &'a LeafShape,
    /// Word at which the current block starts.
    block_at: usize,
    /// Position in the current block.
    position: usize,
    /// Rows still to come.
    remaining: usize,
    row: u32,
    /// Words of the blocks ahead to ask for.
    ahead: Range<usize>,
}

impl<'a, S: BlockSource> Pieces<'a, S> {
    /// Asks for some words of every block before it is due, and of the first blocks at once. Blocks are read in part,
    /// in strides that the processor does not foresee.
    #[inline]
    pub(crate) fn looking_ahead(mut self, words: Range<usize>) -> Self {
        self.ahead = words;
        for block in 0..AHEAD_BLOCKS {
            self.expect(block);
        }
        self
    }

    /// Starts loading the needed part of a block this many blocks ahead, if the run reaches it.
    #[inline]
    fn expect(&self, blocks_ahead: usize) {
        if self.ahead.is_empty()
            || self.remaining + self.position <= blocks_ahead * self.shape.rows_per_block
        {
            return;
        }
        let block_at = self.block_at + blocks_ahead * self.leaves.geometry.block_words;
        for word in self.ahead.clone().step_by(LINE_WORDS) {
            self.leaves.blocks.prefetch(block_at + word);
        }
        self.leaves.blocks.prefetch(block_at + self.ahead.end - 1);
    }
}

impl<'a, S: BlockSource> Iterator for Pieces<'a, S> {
    type Item = Piece<'a>;

    #[inline]
    fn next(&mut self) -> Option<Piece<'a>> {
        if self.remaining == 0 {
            return None;
        }
        self.expect(AHEAD_BLOCKS);
        let Leaves { geometry, blocks } = self.leaves;
        let (rows_per_block, first, row) = (self.shape.rows_per_block, self.position, self.row);
        let (block, in_block) = match rows_per_block {
            // Nothing is stored: neither codes nor TIDs.
            0 => (&[][..], self.remaining),
            rows => (
                blocks.words(self.block_at..self.block_at + geometry.block_words),
                rows - first,
            ),
        };
        let block_at = self.block_at;
        let len = in_block.min(self.remaining).min(MASK_LANES);
        self.remaining -= len;
        self.row += len as u32;
        self.position += len;
        if self.position == rows_per_block {
            self.position = 0;
            self.block_at += geometry.block_words;
        }
        Some(Piece {
            block,
            block_at,
            shape: self.shape,
            first,
            len,
            row,
            clustered: geometry.clustered,
        })
    }
}

impl LeafShape {
    /// Where the TID of a row is: the word at which its block starts, and its position in the block.
    #[inline]
    pub(crate) fn tid_place(&self, block_at: usize, position: usize) -> TidPlace {
        let bit = self.tid_bit(position);
        TidPlace::Word {
            at: block_at + bit / 64,
            shift: (bit % 64) as u32,
            bits: self.tid_bits(),
        }
    }
}

impl<'a, S: BlockSource> Leaves<'a, S> {
    #[inline(always)]
    fn word(self, at: usize) -> u64 {
        self.blocks.words(at..at + 1)[0]
    }

    /// Starts loading a TID.
    #[inline]
    pub(crate) fn prefetch_tid(self, place: TidPlace) {
        if let TidPlace::Word { at, .. } = place {
            self.blocks.prefetch(at);
        }
    }

    /// The TID at a place.
    #[inline]
    pub(crate) fn tid(self, place: TidPlace) -> u32 {
        match place {
            TidPlace::Word { at, shift, bits } => {
                let last = at + usize::from(shift + bits > 64);
                tid_of(self.word(at), self.word(last), shift, bits)
            }
            TidPlace::Known(tid) => tid,
        }
    }

    /// The rows of a run in pieces of at most 64, each inside one block.
    #[inline]
    pub(crate) fn pieces(self, run: &Run) -> Pieces<'a, S> {
        let shape = &self.geometry.shapes[run.level];
        let (block, position) = shape.locate(run.slots.start);
        Pieces {
            leaves: self,
            shape,
            block_at: (self.geometry.first_blocks[run.level] + block) * self.geometry.block_words,
            position,
            remaining: run.slots.len(),
            row: run.row,
            ahead: 0..0,
        }
    }

    /// The first suffix word of a row; its region must have some.
    #[inline]
    pub(crate) fn first_word(self, level: usize, slot: usize) -> u64 {
        let shape = &self.geometry.shapes[level];
        let (block, position) = shape.locate(slot);
        let block_at = (self.geometry.first_blocks[level] + block) * self.geometry.block_words;
        self.word(block_at + shape.suffix_at(0) + position)
    }

    /// Starts loading the suffixes of a run.
    #[inline]
    pub(crate) fn prefetch(self, run: &Run) {
        let shape = &self.geometry.shapes[run.level];
        if shape.rows_per_block == 0 {
            return;
        }
        for (block, inside) in self.geometry.pieces(run.level, run.slots.clone()) {
            for word in 0..shape.word_count() {
                let first = block + shape.suffix_at(word) + inside.start;
                let last = block + shape.suffix_at(word) + inside.end - 1;
                for at in (first..=last).step_by(LINE_WORDS) {
                    self.blocks.prefetch(at);
                }
                self.blocks.prefetch(last);
            }
        }
    }

    /// Starts loading the TIDs of a run.
    #[inline]
    pub(crate) fn prefetch_tids(self, run: &Run) {
        let shape = &self.geometry.shapes[run.level];
        if shape.rows_per_block == 0 || self.geometry.clustered {
            return;
        }
        for (block, inside) in self.geometry.pieces(run.level, run.slots.clone()) {
            self.blocks
                .prefetch(block + shape.tid_bit(inside.start) / 64);
            self.blocks
                .prefetch(block + (shape.tid_bit(inside.end) - 1) / 64);
        }
    }
}

/// Bounds of all codes in one suffix word.
#[derive(Debug, Clone, Copy)]
struct WordBounds {
    word: usize,
    lo: u64,
    hi: u64,
    guard: u64,
}

/// What a query demands of the suffixes in one level's region.
#[derive(Debug, Clone)]
pub(crate) struct LeafTest<'q> {
    /// Only words with a restricted code.
    bounds: Vec<WordBounds>,
    /// Sets to check on rows inside the bounds, by column past the region's level.
    sets: Vec<(usize, &'q Restriction)>,
    /// Whether every row passes.
    pub(crate) accepts_all: bool,
    /// Whether no row passes.
    pub(crate) accepts_none: bool,
}

impl<'q> LeafTest<'q> {
    /// Words of a block that the test looks at, from the first to the last.
    pub(crate) fn words(&self, shape: &LeafShape) -> Range<usize> {
        let of = |bounds: Option<&WordBounds>| bounds.map_or(0, |bounds| bounds.word);
        let (first, last) = (of(self.bounds.first()), of(self.bounds.last()));
        shape.suffix_at(first)..shape.suffix_at(last + 1)
    }

    pub(crate) fn new(query: &'q QueryBox, level: usize, shape: &LeafShape) -> Self {
        let mut bounds: Vec<WordBounds> = Vec::with_capacity(shape.word_count());
        for (word, &guard) in shape.guards.iter().enumerate() {
            bounds.push(WordBounds {
                word,
                lo: 0,
                hi: u64::MAX,
                guard,
            });
        }
        let mut restricted = 0u64;
        let (mut sets, mut accepts_none) = (Vec::new(), false);
        for (column, restriction) in query.dimensions()[level..].iter().enumerate() {
            if restriction.is_any() {
                continue;
            }
            let field = shape.fields[column];
            let (lo, hi) = restriction.hull();
            let (lo, hi) = (u64::from(lo), u64::from(hi).min(field.mask));
            accepts_none |= lo > hi;
            let word = &mut bounds[field.word];
            word.lo |= (lo & field.mask) << field.shift;
            word.hi &= !(field.mask << field.shift) | hi << field.shift;
            restricted |= 1 << field.word;
            if let Restriction::Set(_) = restriction {
                sets.push((column, restriction));
            }
        }
        bounds.retain(|bounds| restricted >> bounds.word & 1 == 1);
        Self {
            accepts_all: bounds.is_empty() && !accepts_none,
            accepts_none,
            bounds,
            sets,
        }
    }
}
