//! Fences: in which blocks rows between two keys can be, as far as the head can tell.
//!
//! The rows of a group ascend, and a group may begin in one block and end in another. The fence of a block is the mark
//! of its first row, and whether the last row of the block before has the same mark. Rows with smaller marks are before
//! the block; rows with this mark are in it, and in the block before only if that ends with the mark.

use std::iter::zip;
use std::ops::Range;

use crate::keys::QueryBox;

use super::ElfHead;
use super::geometry::{Geometry, LeafShape};
use super::leaf::Run;
use super::mark::Mark;

impl LeafShape {
    /// The mark of a row with these codes. Codes too large for their columns count as the largest.
    #[inline]
    pub(crate) fn mark(&self, codes: impl Iterator<Item = u32>) -> Mark {
        let parts = zip(&self.mark_parts, codes);
        let mark = parts.fold(0, |mark, (part, code)| mark | part.of_code(code));
        Mark::new(mark)
    }

    /// The mark of a row in a block.
    pub(crate) fn mark_at(&self, block: &[u64], position: usize) -> Mark {
        let codes = self.fields.iter().map(|field| {
            let word = block[self.suffix_at(field.word) + position];
            ((word >> field.shift) & field.mask) as u32
        });
        self.mark(codes)
    }
}

/// Makes the fences of blocks of one region, which come in order.
#[derive(Debug, Default)]
pub(crate) struct Fencer {
    /// The last row of the block before.
    last: Option<Mark>,
}

impl Fencer {
    /// For the blocks after a row, if there is one before them.
    pub(crate) fn after(last: Option<Mark>) -> Self {
        Self { last }
    }

    /// The fence of the next block, which has this many rows.
    pub(crate) fn next(&mut self, shape: &LeafShape, block: &[u64], row_count: usize) -> u16 {
        let first = shape.mark_at(block, 0);
        let last = self.last.replace(shape.mark_at(block, row_count - 1));
        first.low() | u16::from(last == Some(first))
    }
}

/// The fences of all blocks, as checking makes them.
pub(crate) fn fences_of(geometry: &Geometry, leaves: &[u64]) -> Vec<u16> {
    let mut fences = Vec::with_capacity(geometry.block_count());
    for (level, shape) in geometry.shapes.iter().enumerate() {
        let mut fencer = Fencer::default();
        let first = geometry.first_blocks[level];
        for number in first..first + shape.block_count(geometry.slot_counts[level]) {
            let block = &leaves[number * geometry.block_words..][..geometry.block_words];
            let before = (number - first) * shape.rows_per_block;
            let row_count = shape
                .rows_per_block
                .min(geometry.slot_counts[level] - before);
            fences.push(fencer.next(shape, block, row_count));
        }
    }
    fences
}

impl ElfHead {
    /// The part of a group where a key with these codes can stand.
    #[inline(always)]
    pub(crate) fn within_fences(&self, group: &Run, codes: impl Iterator<Item = u32>) -> Run {
        let mark = self.geometry.shapes[group.level].mark(codes);
        self.between(group, mark, mark)
    }

    /// The part of a group where rows that a query accepts can stand.
    #[inline]
    pub(crate) fn within_box(&self, group: &Run, query: &QueryBox) -> Run {
        if self.blocks_of(group).len() <= 1 {
            return group.clone();
        }
        let shape = &self.geometry.shapes[group.level];
        let hulls = query.dimensions()[group.level..]
            .iter()
            .map(|one| one.hull());
        let lo = shape.mark(hulls.clone().map(|(lo, _)| lo));
        self.between(group, lo, shape.mark(hulls.map(|(_, hi)| hi)))
    }

    /// The part of a run where rows with marks from `lo` to `hi` can stand. All rows of the run are of one group.
    #[inline]
    pub(crate) fn between(&self, run: &Run, lo: Mark, hi: Mark) -> Run {
        let shape = &self.geometry.shapes[run.level];
        if shape.rows_per_block == 0 || run.slots.is_empty() {
            return run.clone();
        }
        let (first, position) = shape.locate(run.slots.start);
        let (last, _) = shape.locate(run.slots.end - 1);
        let number = self.geometry.first_blocks[run.level] + first;
        // Elfs in files of earlier versions have no fences.
        let Some(fences) = self.fences.get(number + 1..number + 1 + last - first) else {
            return run.clone();
        };
        let start = before(fences, lo.low());
        let end = start + before(&fences[start..], hi.high()) + 1;
        let slots = Range {
            start: (start * shape.rows_per_block).saturating_sub(position),
            end: (end * shape.rows_per_block - position).min(run.slots.len()),
        };
        Run {
            level: run.level,
            row: run.row + slots.start as u32,
            slots: run.slots.start + slots.start..run.slots.start + slots.end,
        }
    }
}

/// How many of some ascending fences are at most `most`; there are few of them.
#[inline]
fn before(fences: &[u16], most: u16) -> usize {
    match fences.len() {
        0..=8 => fences.iter().take_while(|fence| **fence <= most).count(),
        _ => fences.partition_point(|fence| *fence <= most),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::cases;
    use crate::layout::packed::{PackedElf, PackedOptions};

    #[test]
    fn a_key_is_in_one_block_of_its_group() {
        let table = cases::uniform(60_000, 4, 60, 5);
        let elf = PackedElf::build(&table, &PackedOptions::default()).unwrap();
        assert!(elf.verify(Path::new("test.elf")).is_ok());
        let (mut blocks, mut group_blocks) = (0, 0);
        for row in 0..table.row_count() {
            let key = table.row(row);
            let group = elf.descend(&key).unwrap();
            let part = elf.within_fences(&group, key[group.level..].iter().copied());
            assert!(elf.match_run(&part, &key).is_some());
            group_blocks += elf.blocks_of(&group).len();
            blocks += elf.blocks_of(&part).len();
        }
        assert!(group_blocks > table.row_count() * 13 / 10, "{group_blocks}");
        assert!(blocks < table.row_count() * 101 / 100, "{blocks}");
    }

    #[test]
    fn a_wrong_fence_is_found() {
        let table = cases::uniform(3_000, 3, 50, 5);
        let mut elf = PackedElf::build(&table, &PackedOptions::default()).unwrap();
        let file = Path::new("test.elf");
        assert!(elf.verify(file).is_ok());
        Arc::make_mut(&mut elf.upper).fences[7] ^= 1;
        let found = elf.verify(file).unwrap_err();
        assert_eq!((found.what.as_ref(), found.offset), ("fence of a block", 7));
    }
}
