//! Writing leaf blocks, and their checksums.
//!
//! The header of a block is the CRC-32 of its name (its number, mixed with the Elf's salt) and all its other bits.
//! Version 4 had no salt. Before it the number of rows and the level of the region followed, bits 32-47 and 48-55 of
//! the first word; version 2 left the number out.

use crate::rows::{Field, RowShape};

use super::geometry::{Geometry, LeafShape, TidLayout};

/// Copies codes of sorted rows into the blocks of one region.
#[derive(Debug)]
pub(crate) struct BlockWriter<'a> {
    rows: &'a RowShape,
    shape: &'a LeafShape,
    /// Level and field of every code of a suffix, word by word.
    fields: Vec<(usize, Field)>,
    tids: TidLayout,
}

impl<'a> BlockWriter<'a> {
    pub(crate) fn new(rows: &'a RowShape, geometry: &'a Geometry, level: usize) -> Self {
        let (shape, tids) = (&geometry.shapes[level], geometry.tids);
        let mut fields: Vec<_> = (level..).zip(shape.fields.iter().copied()).collect();
        fields.sort_by_key(|(_, field)| field.word);
        Self {
            rows,
            shape,
            fields,
            tids,
        }
    }

    /// Writes a row at a position of a zeroed block.
    #[inline]
    pub(crate) fn put(&self, block: &mut [u64], position: usize, row: &[u64]) {
        let mut at = self.shape.suffix_at(0) + position;
        let (mut word, mut suffix) = (0, 0);
        for (level, field) in &self.fields {
            if field.word != word {
                block[at] = suffix;
                at += self.shape.rows_per_block;
                (word, suffix) = (field.word, 0);
            }
            suffix |= u64::from(self.rows.code(row, *level)) << field.shift;
        }
        if !self.fields.is_empty() {
            block[at] = suffix;
        }
        if !self.tids.is_clustered() {
            let tid = u64::from(self.rows.tid(row));
            let bit = self.shape.tid_bit(position);
            let (at, shift) = (bit / 64, bit % 64);
            block[at] |= tid << shift;
            if shift + self.tids.bits() as usize > 64 {
                block[at + 1] |= tid >> (64 - shift);
            }
        }
    }

    /// Writes the header of the block of this name.
    pub(crate) fn seal(&self, name: Option<u64>, block: &mut [u64]) {
        block[0] |= u64::from(checksum(name, block));
    }
}

/// The checksum of a block, which does not depend on the checksum already in it. With its name, a block that is read
/// from another place than its own, or from another Elf, is found out.
pub(crate) fn checksum(name: Option<u64>, block: &[u64]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    if let Some(name) = name {
        hasher.update(&name.to_le_bytes());
    }
    let mut bytes = [0u8; 256];
    let header = [block[0] >> 32 << 32];
    for words in std::iter::once(header.as_slice()).chain(block[1..].chunks(32)) {
        for (target, word) in bytes.chunks_exact_mut(8).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        hasher.update(&bytes[..words.len() * 8]);
    }
    hasher.finalize()
}

/// Rows and level that the header of a block of an earlier version claims.
pub(crate) fn header(block: &[u64]) -> (usize, usize) {
    (
        (block[0] >> 32) as usize & 0xffff,
        (block[0] >> 48) as usize,
    )
}

/// The checksum stored in a block.
pub(crate) fn stored_checksum(block: &[u64]) -> u32 {
    block[0] as u32
}
