//! A scan over bit-packed columns with zone maps, meant for rows in a good order: the strongest
//! rival of an Elf, because sorted rows let it skip almost as much.

use std::ops::Range;

use hotshelf_tier::region::prefer_huge_pages;
use hotshelf_tier::simd::{Backend, SLICE_ROWS, Slice};

use hotshelf_elf::Result;
use hotshelf_elf::keys::{CodeColumn, CodeTable, QueryBox, Restriction};

/// Blocks that share a zone: 4096 rows.
const ZONE_BLOCKS: usize = 8;

/// Rows that share a zone.
const ZONE_ROWS: usize = ZONE_BLOCKS * SLICE_ROWS;

/// One column: codes bit by bit, and smallest and largest code of every zone.
#[derive(Debug, Clone)]
struct SlicedColumn {
    bit_count: usize,
    /// All bits of block 0, the most significant first, then those of block 1, …
    slices: Vec<Slice>,
    zones: Vec<(u32, u32)>,
}

impl SlicedColumn {
    fn new(column: &CodeColumn, order: &[u32]) -> Self {
        let bit_count = (32 - column.max().leading_zeros()) as usize;
        let mut slices = vec![[0; SLICE_ROWS / 64]; order.len().div_ceil(SLICE_ROWS) * bit_count];
        prefer_huge_pages(&mut slices);
        let mut zones = vec![(u32::MAX, 0); order.len().div_ceil(ZONE_ROWS)];
        for (at, &row) in order.iter().enumerate() {
            let code = column.get(row as usize);
            let zone = &mut zones[at / ZONE_ROWS];
            *zone = (zone.0.min(code), zone.1.max(code));
            let block = &mut slices[at / SLICE_ROWS * bit_count..][..bit_count];
            for (bit, slice) in block.iter_mut().rev().enumerate() {
                slice[at % SLICE_ROWS / 64] |= u64::from(code >> bit & 1) << (at % 64);
            }
        }
        Self {
            bit_count,
            slices,
            zones,
        }
    }

    /// Clears what a restriction refuses in the mask of a block.
    fn test(&self, backend: Backend, block: usize, restriction: &Restriction, mask: &mut Slice) {
        let slices = &self.slices[block * self.bit_count..][..self.bit_count];
        let code_max = ((1u64 << self.bit_count) - 1) as u32;
        let mut accepted = [0; SLICE_ROWS / 64];
        let mut accept = |lo: u32, hi: u32| {
            if lo <= hi.min(code_max) {
                let mut one = *mask;
                backend.scan_slices(slices, lo, hi.min(code_max), &mut one);
                accepted
                    .iter_mut()
                    .zip(one)
                    .for_each(|(all, one)| *all |= one);
            }
        };
        match restriction {
            Restriction::Any => return,
            Restriction::Range { lo, hi } => accept(*lo, *hi),
            Restriction::Set(set) => set.ranges().iter().for_each(|&(lo, hi)| accept(lo, hi)),
        }
        *mask = accepted;
    }
}

/// Bit-packed columns in an order of their own. Rows are numbered in that order.
#[derive(Debug, Clone)]
pub struct ZoneScan {
    row_count: usize,
    columns: Vec<SlicedColumn>,
    backend: Backend,
}

impl ZoneScan {
    /// The columns of a table, its rows in the given order of row numbers.
    pub fn new(table: &CodeTable, order: &[u32]) -> Self {
        let columns = table.columns().iter();
        Self {
            row_count: order.len(),
            columns: columns
                .map(|column| SlicedColumn::new(column, order))
                .collect(),
            backend: Backend::detect(),
        }
    }

    /// The same scan with given instructions.
    #[cfg(test)]
    pub fn with_backend(self, backend: Backend) -> Self {
        Self { backend, ..self }
    }

    /// Bytes of columns and zones.
    pub fn size_bytes(&self) -> u64 {
        let columns = self.columns.iter();
        let bytes = columns.map(|one| size_of_val(&*one.slices) + size_of_val(&*one.zones));
        bytes.sum::<usize>() as u64
    }

    /// The accepted rows, as ranges that do not touch.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn select_rows(&self, query: &QueryBox) -> Result<Vec<Range<u32>>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        let mut add = |rows: Range<u32>| match ranges.last_mut() {
            Some(last) if last.end == rows.start => last.end = rows.end,
            _ => ranges.push(rows),
        };
        self.visit(query, &mut add, |first, mask, add| {
            for (word, first) in mask.iter().zip((first..).step_by(64)) {
                let mut rest = *word;
                while rest != 0 {
                    let start = rest.trailing_zeros();
                    let len = (!(rest >> start)).trailing_zeros();
                    add(first + start..first + start + len);
                    rest &= u64::MAX.checked_shl(start + len).unwrap_or(0);
                }
            }
        })?;
        Ok(ranges)
    }

    /// Calls `add` with whole zones that are accepted, and `show` with the masks of other blocks.
    fn visit<A: FnMut(Range<u32>)>(
        &self,
        query: &QueryBox,
        mut add: A,
        show: impl Fn(u32, &Slice, &mut A),
    ) -> Result<()> {
        query.check(self.columns.len())?;
        let restricted: Vec<_> = self
            .columns
            .iter()
            .zip(query.dimensions())
            .filter(|(_, restriction)| !restriction.is_any())
            .map(|(column, restriction)| (column, restriction, restriction.hull()))
            .collect();
        for zone in 0..self.row_count.div_ceil(ZONE_ROWS) {
            let is_disjoint = |(column, _, (lo, hi)): &(&SlicedColumn, _, (u32, u32))| {
                let (min, max) = column.zones[zone];
                max < *lo || min > *hi
            };
            if restricted.iter().any(is_disjoint) {
                continue;
            }
            let rows = zone * ZONE_ROWS..self.row_count.min((zone + 1) * ZONE_ROWS);
            let is_needed =
                |(column, restriction, (lo, hi)): &&(&SlicedColumn, &Restriction, (u32, u32))| {
                    let (min, max) = column.zones[zone];
                    min < *lo || max > *hi || matches!(restriction, Restriction::Set(_))
                };
            let mut tests = restricted.iter().filter(is_needed).peekable();
            if tests.peek().is_none() {
                add(rows.start as u32..rows.end as u32);
                continue;
            }
            let tests: Vec<_> = tests.collect();
            for first in rows.clone().step_by(SLICE_ROWS) {
                let mut mask = [u64::MAX; SLICE_ROWS / 64];
                let present = rows.end - first;
                for (word, mask) in mask.iter_mut().enumerate() {
                    let present = present.saturating_sub(word * 64).min(64) as u32;
                    *mask = u64::MAX.checked_shr(64 - present).unwrap_or(0);
                }
                for (column, restriction, _) in &tests {
                    column.test(self.backend, first / SLICE_ROWS, restriction, &mut mask);
                    if mask == [0; SLICE_ROWS / 64] {
                        break;
                    }
                }
                show(first as u32, &mask, &mut add);
            }
        }
        Ok(())
    }
}
