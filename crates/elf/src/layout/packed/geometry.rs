//! Where suffixes and TIDs lie in a leaf block.
//!
//! All groups cut at one level form that level's *leaf region*: their rows, in key order, fill blocks of
//! equal size without gaps, so a slot number is all it takes to find a row. A block is
//!
//! ```text
//! header word | suffix word 0 of every row | suffix word 1 of every row | … | TIDs, two to a word
//! ```
//!
//! A suffix holds the codes from the region's level on, each with a clear guard bit above it, from the top
//! bit of its first word down, no code across two words. Suffixes therefore compare like their codes, and
//! all codes of a word are tested at once.

use std::ops::Range;

use crate::rows::{Field, code_bits, place};

/// Words of the smallest block: 256 bytes.
const BLOCK_WORDS_MIN: usize = 32;

/// Rows that a block must have room for at the shallowest level; wide rows get larger blocks.
const BLOCK_ROWS_MIN: usize = 8;

/// The blocks of one leaf region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeafShape {
    /// Fields of the columns from the region's level on.
    pub(crate) fields: Vec<Field>,
    /// The guard bits of every suffix word.
    pub(crate) guards: Vec<u64>,
    /// Rows of a block; 0 when rows need no storage at all (nothing left of the key, no TIDs).
    pub(crate) rows_per_block: usize,
}

impl LeafShape {
    fn new(code_bits: &[u32], block_words: usize, clustered: bool) -> Self {
        let (fields, word_count) = place(code_bits.iter().copied(), 1);
        let mut guards = vec![0; word_count];
        for field in &fields {
            guards[field.word] |= (field.mask + 1) << field.shift;
        }
        // Half words: two per suffix word, one per TID; an odd TID count leaves half a word unused.
        let row_halves = 2 * word_count + usize::from(!clustered);
        let rows_per_block = (2 * (block_words - 1)).checked_div(row_halves).unwrap_or(0);
        Self {
            fields,
            guards,
            rows_per_block,
        }
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
}

impl Geometry {
    /// The geometry for codes up to the given ones and `slot_counts` rows per level.
    pub(crate) fn new(code_max: Vec<u32>, clustered: bool, slot_counts: Vec<usize>) -> Self {
        let code_bits: Vec<u32> = code_max.iter().map(|&max| code_bits(max)).collect();
        let mut block_words = BLOCK_WORDS_MIN;
        while LeafShape::new(&code_bits, block_words, clustered).rows_per_block < BLOCK_ROWS_MIN {
            block_words *= 2;
        }
        let shapes: Vec<_> = (0..=code_bits.len())
            .map(|level| LeafShape::new(&code_bits[level..], block_words, clustered))
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
        }
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
    /// positions inside it.
    #[inline]
    pub(crate) fn pieces(
        &self,
        level: usize,
        slots: Range<usize>,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let rows = self.shapes[level].rows_per_block.max(1);
        let (block_words, mut slot) = (self.block_words, slots.start);
        let mut block = slot / rows;
        let mut inside = slot % rows;
        block += self.first_blocks[level];
        std::iter::from_fn(move || {
            if slot >= slots.end {
                return None;
            }
            let count = (rows - inside).min(slots.end - slot);
            let piece = (block * block_words, inside..inside + count);
            (slot, block, inside) = (slot + count, block + 1, 0);
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
