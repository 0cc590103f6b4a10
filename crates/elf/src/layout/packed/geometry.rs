//! Where suffixes and TIDs lie in a leaf block.
//!
//! All groups cut at one level form that level's *leaf region*: their rows, in key order, fill blocks of
//! equal size without gaps, so a slot number is all it takes to find a row. A block is
//!
//! ```text
//! header word | suffix word 0 of every row | suffix word 1 of every row | … | TIDs, two to a word
//! ```
//!
//! A suffix holds the codes from the region's level on, each with a clear guard bit above it, so that all
//! codes of a word are tested at once. No code crosses a word. Codes are in column order, from
//! the top bit of the first word down; where another distribution over words saves a word, columns within a
//! word still do, and the region's first column still leads.

use std::ops::Range;

use crate::rows::{Field, code_bits, place_tightly};

use super::mark::MarkPart;

/// Words of the smallest block: 256 bytes.
const BLOCK_WORDS_MIN: usize = 32;

/// Rows that a block must have room for at the shallowest level; wide rows get larger blocks.
const BLOCK_ROWS_MIN: usize = 8;

/// Whether the field of a column stands next after that of the column before it.
fn is_in_order(fields: &[Field], column: usize) -> bool {
    let field = fields[column];
    let top = field.shift + field.mask.count_ones() + 1;
    match column.checked_sub(1) {
        Some(before) => fields[before].word == field.word && fields[before].shift == top,
        None => top == 64,
    }
}

/// The blocks of one leaf region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeafShape {
    /// Fields of the columns from the region's level on.
    pub(crate) fields: Vec<Field>,
    /// The guard bits of every suffix word.
    pub(crate) guards: Vec<u64>,
    /// Rows of a block; 0 when rows need no storage at all (nothing remains of the key, no TIDs).
    pub(crate) rows_per_block: usize,
    /// 2^64 divided by the rows of a block, rounded up.
    reciprocal: u64,
    /// First suffix words shifted right by this ascend with the rows.
    order_shift: u32,
    /// 2^32 divided by the number of codes the first column has room for.
    first_share: u64,
    /// Which bits of the codes are a row's mark.
    pub(crate) mark_parts: Box<[MarkPart]>,
}

impl LeafShape {
    fn new(code_max: &[u32], block_words: usize, clustered: bool) -> Self {
        let widths: Vec<u32> = code_max.iter().map(|&max| code_bits(max)).collect();
        let (fields, word_count) = place_tightly(&widths);
        let mut guards = vec![0; word_count];
        for field in &fields {
            guards[field.word] |= (field.mask + 1) << field.shift;
        }
        // Half words: two per suffix word, one per TID; an odd TID count leaves half a word unused.
        let row_halves = 2 * word_count + usize::from(!clustered);
        let rows_per_block = (2 * (block_words - 1)).checked_div(row_halves).unwrap_or(0);
        let leading = fields
            .iter()
            .zip(0..)
            .take_while(|(field, idx)| field.word == 0 && is_in_order(&fields, *idx));
        Self {
            order_shift: leading.last().map_or(0, |(field, _)| field.shift),
            reciprocal: u64::MAX
                .checked_div(rows_per_block as u64)
                .map_or(0, |share| share.wrapping_add(1)),
            first_share: (1 << 32) / (u64::from(code_max.first().copied().unwrap_or(0)) + 1),
            mark_parts: MarkPart::of(fields.iter().map(|field| field.mask as u32)),
            fields,
            guards,
            rows_per_block,
        }
    }

    /// The block of a slot, counted from the region's first, and the position inside it. Only for regions
    /// that have blocks.
    #[inline]
    pub(crate) fn locate(&self, slot: usize) -> (usize, usize) {
        let block = ((slot as u128 * u128::from(self.reciprocal)) >> 64) as usize;
        (block, slot - block * self.rows_per_block)
    }

    /// About how far into `len` sorted rows a code of the first column stands.
    #[inline]
    pub(crate) fn likely_position(&self, code: u32, len: usize) -> usize {
        let share = (u64::from(code) * self.first_share).min(1 << 32);
        ((len as u64 * share) >> 32) as usize
    }

    /// What of a first suffix word ascends with the rows.
    #[inline]
    pub(crate) fn order_of(&self, first_word: u64) -> u64 {
        first_word >> self.order_shift
    }

    /// Words of a block that hold TIDs.
    pub(crate) fn tid_words(&self) -> Range<usize> {
        self.tids_at()..self.tids_at() + self.rows_per_block.div_ceil(2)
    }

    /// Words of one suffix.
    pub(crate) fn word_count(&self) -> usize {
        self.guards.len()
    }

    /// Word of a block at which suffix word `word` of the first row stands.
    #[inline]
    pub(crate) fn suffix_at(&self, word: usize) -> usize {
        1 + word * self.rows_per_block
    }

    /// Word of a block at which the TIDs start.
    #[inline]
    pub(crate) fn tids_at(&self) -> usize {
        self.suffix_at(self.word_count())
    }

    /// Blocks that hold `slot_count` rows.
    pub(crate) fn block_count(&self, slot_count: usize) -> usize {
        if self.rows_per_block == 0 {
            0
        } else {
            slot_count.div_ceil(self.rows_per_block)
        }
    }
}

/// The leaf regions of an Elf: their shapes and where they stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Largest code of each dimension that there is room for.
    pub(crate) code_max: Vec<u32>,
    /// Bits of each dimension's codes.
    pub(crate) code_bits: Vec<u32>,
    /// Whether TIDs are left out because they are the row numbers.
    pub(crate) clustered: bool,
    /// Words of one block.
    pub(crate) block_words: usize,
    /// One shape per level from 0 to the number of dimensions.
    pub(crate) shapes: Vec<LeafShape>,
    /// Rows in each level's region.
    pub(crate) slot_counts: Vec<usize>,
    /// First block of each level's region.
    pub(crate) first_blocks: Vec<usize>,
    /// Whether blocks have their number in their checksum.
    pub(crate) numbered: bool,
}

impl Geometry {
    /// The geometry for codes up to the given ones and `slot_counts` rows per level.
    pub(crate) fn new(code_max: Vec<u32>, clustered: bool, slot_counts: Vec<usize>) -> Self {
        let code_bits: Vec<u32> = code_max.iter().map(|&max| code_bits(max)).collect();
        let mut block_words = BLOCK_WORDS_MIN;
        while LeafShape::new(&code_max, block_words, clustered).rows_per_block < BLOCK_ROWS_MIN {
            block_words *= 2;
        }
        let shapes: Vec<_> = (0..=code_bits.len())
            .map(|level| LeafShape::new(&code_max[level..], block_words, clustered))
            .collect();
        let mut block_count = 0;
        let first_blocks = shapes
            .iter()
            .zip(&slot_counts)
            .map(|(shape, &slots)| {
                let first = block_count;
                block_count += shape.block_count(slots);
                first
            })
            .collect();
        Self {
            code_max,
            code_bits,
            clustered,
            block_words,
            shapes,
            slot_counts,
            first_blocks,
            numbered: true,
        }
    }

    /// Rows and level of a block; `None` if there is no such block.
    pub(crate) fn rows_of_block(&self, number: usize) -> Option<(usize, usize)> {
        // Regions without blocks start where the next one does.
        let level = self.first_blocks.partition_point(|&first| first <= number);
        let level = level.checked_sub(1)?;
        let rows_per_block = self.shapes[level].rows_per_block;
        let before = (number - self.first_blocks[level]).checked_mul(rows_per_block)?;
        let rows = self.slot_counts[level].checked_sub(before)?;
        (rows > 0).then(|| (rows.min(rows_per_block), level))
    }

    pub(crate) fn dimension_count(&self) -> usize {
        self.code_bits.len()
    }

    /// Blocks of all regions.
    pub(crate) fn block_count(&self) -> usize {
        let blocks = self.shapes.iter().zip(&self.slot_counts);
        blocks.map(|(shape, &slots)| shape.block_count(slots)).sum()
    }

    /// The pieces of `slots` of a level's region, block by block: word at which the block starts, and the
    /// positions inside it. The region must have blocks.
    #[inline]
    pub(crate) fn pieces(
        &self,
        level: usize,
        slots: Range<usize>,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let shape = &self.shapes[level];
        let (rows, block_words, mut slot) = (shape.rows_per_block, self.block_words, slots.start);
        let (block, mut inside) = shape.locate(slot);
        let mut block_at = (self.first_blocks[level] + block) * block_words;
        std::iter::from_fn(move || {
            if slot >= slots.end {
                return None;
            }
            let count = (rows - inside).min(slots.end - slot);
            let piece = (block_at, inside..inside + count);
            (slot, block_at, inside) = (slot + count, block_at + block_words, 0);
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_small_columns_fill_a_256_byte_block_with_twenty_suffixes_of_seven() {
        let geometry = Geometry::new(vec![127; 10], false, vec![0; 11]);
        assert_eq!(geometry.block_words, 32);
        assert_eq!(geometry.shapes[3].word_count(), 1);
        assert_eq!(geometry.shapes[3].rows_per_block, 20);
        assert_eq!(
            Geometry::new(vec![127; 10], true, vec![0; 11]).shapes[3].rows_per_block,
            31
        );
    }

    #[test]
    fn blocks_hold_their_rows_for_any_width() {
        for code_max in [
            vec![1],
            vec![u32::MAX; 64],
            vec![127; 10],
            vec![u32::MAX, 1, 1 << 20, 1 << 30],
        ] {
            for clustered in [false, true] {
                let levels = code_max.len() + 1;
                let geometry = Geometry::new(code_max.clone(), clustered, vec![100; levels]);
                for shape in &geometry.shapes {
                    let tid_words = if clustered {
                        0
                    } else {
                        shape.rows_per_block.div_ceil(2)
                    };
                    assert!(shape.tids_at() + tid_words <= geometry.block_words);
                    assert!(shape.rows_per_block > 0 || clustered && shape.word_count() == 0);
                }
            }
        }
    }

    #[test]
    fn pieces_tile_the_slots() {
        let geometry = Geometry::new(vec![127; 10], false, vec![50; 11]);
        let pieces: Vec<_> = geometry.pieces(3, 15..45).collect();
        let first = geometry.first_blocks[3];
        let at = |block: usize| (first + block) * 32;
        assert_eq!(pieces, [(at(0), 15..20), (at(1), 0..20), (at(2), 0..5)]);
        assert_eq!(geometry.pieces(3, 7..7).count(), 0);
    }
}
