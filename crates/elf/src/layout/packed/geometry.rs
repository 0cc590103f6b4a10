//! Where suffixes and TIDs lie in a leaf block.
//!
//! All groups cut at one level form that level's *leaf region*: their rows, in key order, fill blocks of
//! equal size without gaps, so a slot number is all it takes to find a row. A block is
//!
//! ```text
//! header | TIDs, packed | suffix word 0 of every row | suffix word 1 of every row | …
//! ```
//!
//! The header is half a word, and TIDs have as many bits as the largest one. In files of earlier versions the header is
//! a whole word, and TIDs come last, two to a word.
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

/// Bits of the header.
const HEADER_BITS: usize = 32;

/// How many rows fit into a block, 0 if they need no room, and the word at which their suffixes start.
fn rows_within(block_words: usize, word_count: usize, tids: TidLayout) -> (usize, usize) {
    if tids.is_wide() {
        // Half words: two per suffix word, one per TID; an odd TID count leaves half a word unused.
        let row_halves = 2 * word_count + usize::from(!tids.is_clustered());
        let rows = (2 * (block_words - 1)).checked_div(row_halves);
        return (rows.unwrap_or(0), 1);
    }
    let row_bits = word_count * 64 + tids.bits() as usize;
    let suffixes_at = |rows: usize| (HEADER_BITS + rows * tids.bits() as usize).div_ceil(64);
    let room = block_words * 64 - HEADER_BITS;
    let mut rows = room.checked_div(row_bits).unwrap_or(0);
    while suffixes_at(rows) + rows * word_count > block_words {
        rows -= 1;
    }
    (rows, suffixes_at(rows))
}

/// Whether the field of a column stands next after that of the column before it.
fn is_in_order(fields: &[Field], column: usize) -> bool {
    let field = fields[column];
    let top = field.shift + field.mask.count_ones() + 1;
    match column.checked_sub(1) {
        Some(before) => fields[before].word == field.word && fields[before].shift == top,
        None => top == 64,
    }
}

/// Bits of a TID in files of earlier versions.
const WIDE_BITS: u32 = 32;

/// How TIDs are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TidLayout {
    /// Not at all: they are the row numbers.
    Clustered,
    /// Before the suffixes, this many bits each.
    Packed(u32),
    /// After the suffixes, two to a word, if not clustered: in files of earlier versions.
    Wide { clustered: bool },
}

impl TidLayout {
    pub(crate) fn is_clustered(self) -> bool {
        matches!(self, Self::Clustered | Self::Wide { clustered: true })
    }

    /// Bits of a TID.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::Packed(bits) => bits,
            Self::Wide { clustered: false } => WIDE_BITS,
            Self::Clustered | Self::Wide { clustered: true } => 0,
        }
    }

    /// Whether the header is a whole word.
    pub(crate) fn is_wide(self) -> bool {
        matches!(self, Self::Wide { .. })
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
    /// Word of a block at which the suffixes start.
    suffixes_at: usize,
    /// Bit of a block at which the TIDs start.
    tids_at: usize,
    /// Bits of a TID.
    tid_bits: u32,
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
    fn new(code_max: &[u32], block_words: usize, tids: TidLayout) -> Self {
        let widths: Vec<u32> = code_max.iter().map(|&max| code_bits(max)).collect();
        let (fields, word_count) = place_tightly(&widths);
        let mut guards = vec![0; word_count];
        for field in &fields {
            guards[field.word] |= (field.mask + 1) << field.shift;
        }
        let (rows_per_block, suffixes_at) = rows_within(block_words, word_count, tids);
        let tids_at = match tids.is_wide() {
            true => (suffixes_at + word_count * rows_per_block) * 64,
            false => HEADER_BITS,
        };
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
            suffixes_at,
            tids_at,
            tid_bits: tids.bits(),
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
        let end = self.tid_bit(self.rows_per_block);
        self.tids_at / 64..end.div_ceil(64)
    }

    /// Bits of a TID; none in a clustered Elf.
    #[inline]
    pub(crate) fn tid_bits(&self) -> u32 {
        self.tid_bits
    }

    /// Bit of a block at which the TID of a row starts.
    #[inline]
    pub(crate) fn tid_bit(&self, position: usize) -> usize {
        self.tids_at + position * self.tid_bits as usize
    }

    /// Words of one suffix.
    pub(crate) fn word_count(&self) -> usize {
        self.guards.len()
    }

    /// Words of a block that hold suffixes.
    #[cfg(test)]
    fn suffixes(&self) -> Range<usize> {
        self.suffix_at(0)..self.suffix_at(self.word_count())
    }

    /// Word of a block at which suffix word `word` of the first row stands.
    #[inline]
    pub(crate) fn suffix_at(&self, word: usize) -> usize {
        self.suffixes_at + word * self.rows_per_block
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
    /// How TIDs are stored.
    pub(crate) tids: TidLayout,
    /// Whether they are left out because they are the row numbers.
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
    /// What tells the blocks of this Elf from those of any other; 0 in files of earlier versions.
    pub(crate) salt: u64,
}

impl Geometry {
    /// Of an Elf whose blocks are not taken for those of another.
    pub(crate) fn salted(self, salt: u64) -> Self {
        Self { salt, ..self }
    }

    /// What the checksum of a block begins with; nothing in the earliest files.
    pub(crate) fn name_of_block(&self, number: usize) -> Option<u64> {
        self.numbered.then_some(number as u64 ^ self.salt)
    }

    /// The geometry for codes up to the given ones and `slot_counts` rows per level.
    pub(crate) fn new(code_max: Vec<u32>, tids: TidLayout, slot_counts: Vec<usize>) -> Self {
        let code_bits: Vec<u32> = code_max.iter().map(|&max| code_bits(max)).collect();
        let mut block_words = BLOCK_WORDS_MIN;
        while LeafShape::new(&code_max, block_words, tids).rows_per_block < BLOCK_ROWS_MIN {
            block_words *= 2;
        }
        let shapes: Vec<_> = (0..=code_bits.len())
            .map(|level| LeafShape::new(&code_max[level..], block_words, tids))
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
            tids,
            clustered: tids.is_clustered(),
            block_words,
            shapes,
            slot_counts,
            first_blocks,
            numbered: true,
            salt: 0,
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
    fn ten_small_columns_fill_a_256_byte_block_with_22_suffixes_of_seven() {
        let geometry = Geometry::new(vec![127; 10], TidLayout::Packed(25), vec![0; 11]);
        assert_eq!(geometry.block_words, 32);
        assert_eq!(geometry.shapes[3].word_count(), 1);
        assert_eq!(geometry.shapes[3].rows_per_block, 22);
        assert_eq!(
            Geometry::new(vec![127; 10], TidLayout::Clustered, vec![0; 11]).shapes[3]
                .rows_per_block,
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
            for tids in [
                TidLayout::Clustered,
                TidLayout::Packed(1),
                TidLayout::Packed(25),
                TidLayout::Packed(32),
                TidLayout::Wide { clustered: false },
                TidLayout::Wide { clustered: true },
            ] {
                let levels = code_max.len() + 1;
                let geometry = Geometry::new(code_max.clone(), tids, vec![100; levels]);
                for shape in &geometry.shapes {
                    let (tids, suffixes) = (shape.tid_words(), shape.suffixes());
                    assert!(tids.end.max(suffixes.end) <= geometry.block_words);
                    assert!(tids.end <= suffixes.start || suffixes.end <= tids.start);
                    let is_stored = shape.word_count() > 0 || !geometry.clustered;
                    assert_eq!(shape.rows_per_block > 0, is_stored);
                }
            }
        }
    }

    #[test]
    fn pieces_tile_the_slots() {
        let geometry = Geometry::new(
            vec![127; 10],
            TidLayout::Wide { clustered: false },
            vec![50; 11],
        );
        let pieces: Vec<_> = geometry.pieces(3, 15..45).collect();
        let first = geometry.first_blocks[3];
        let at = |block: usize| (first + block) * 32;
        assert_eq!(pieces, [(at(0), 15..20), (at(1), 0..20), (at(2), 0..5)]);
        assert_eq!(geometry.pieces(3, 7..7).count(), 0);
    }
}
