//! Reading the codes of some rows back: what answers a query from the Elf alone.

use std::ops::Range;

use crate::error::{ElfError, Result};

use super::blocks::BlockSource;
use super::head::Link;
use super::leaf::Run;
use super::{ElfHead, PackedElf};

impl<S: BlockSource> PackedElf<S> {
    /// Appends the codes of rows to `codes`, one vector for each of `columns`. Rows count in Elf order, as
    /// [`Self::select_rows`] gives them; the ranges ascend and do not overlap. The head is walked once, and only
    /// where a range leads.
    ///
    /// # Errors
    /// When a row or a column does not exist, ranges do not ascend, or `codes` has another length than `columns`;
    /// `codes` is unchanged then.
    pub fn read_rows(
        &self,
        rows: &[Range<u32>],
        columns: &[usize],
        codes: &mut [Vec<u32>],
    ) -> Result<()> {
        self.check_rows(rows)?;
        self.check_columns(columns)?;
        if columns.len() != codes.len() {
            return Err(ElfError::DimensionMismatch {
                expected: columns.len(),
                found: codes.len(),
            });
        }
        let row_count = rows.iter().map(ExactSizeIterator::len).sum();
        codes.iter_mut().for_each(|codes| codes.reserve(row_count));
        self.for_runs(rows, columns, |run, prefix| {
            for (column, codes) in columns.iter().zip(codes.iter_mut()) {
                match column.checked_sub(run.level) {
                    None => codes.resize(codes.len() + run.slots.len(), prefix[*column]),
                    Some(suffix) => {
                        for piece in self.leaf_view().pieces(run) {
                            piece.extend_codes(suffix, codes);
                        }
                    }
                }
            }
        })
    }

    /// Appends the TIDs of rows to `tids`, in the order of the rows. Ranges are those of [`Self::read_rows`].
    ///
    /// # Errors
    /// When a row does not exist or ranges do not ascend; `tids` is unchanged then.
    pub(crate) fn read_tids(&self, rows: &[Range<u32>], tids: &mut Vec<u32>) -> Result<()> {
        self.for_runs(rows, &[], |run, _| match self.is_clustered() {
            true => tids.extend(run.rows()),
            false => {
                let pieces = self.leaf_view().pieces(run);
                pieces.for_each(|piece| piece.extend_tids(tids));
            }
        })
    }
}

impl ElfHead {
    /// Shows the runs that make up some rows, in order, each with the codes that lead to it.
    ///
    /// # Errors
    /// When a row or a column does not exist, or ranges do not ascend.
    pub(crate) fn for_runs(
        &self,
        rows: &[Range<u32>],
        columns: &[usize],
        show: impl FnMut(&Run, &[u32]),
    ) -> Result<()> {
        self.check_rows(rows)?;
        self.check_columns(columns)?;
        let mut reader = RowWalk {
            elf: self,
            prefix: vec![0; self.dimension_count()],
            next: Cursor::new(rows),
            show,
        };
        match self.root {
            Link::Node(node) => reader.node(node, 0),
            _ => reader.group(&Run {
                level: 0,
                slots: 0..self.row_count,
                row: 0,
            }),
        }
        Ok(())
    }

    fn check_columns(&self, columns: &[usize]) -> Result<()> {
        let dimension_count = self.dimension_count();
        let worst = columns.iter().find(|column| **column >= dimension_count);
        match worst.map(|column| column + 1) {
            Some(found) => Err(ElfError::DimensionMismatch {
                expected: dimension_count,
                found,
            }),
            None => Ok(()),
        }
    }

    /// Whether ranges of rows ascend, do not overlap and exist.
    fn check_rows(&self, rows: &[Range<u32>]) -> Result<()> {
        let mut end = 0;
        for range in rows {
            if range.start < end || range.end < range.start {
                return Err(ElfError::RowOrder {
                    row: range.start,
                    end,
                });
            }
            end = range.end;
        }
        if end as usize > self.row_count {
            return Err(ElfError::NoSuchRow {
                row: end - 1,
                row_count: self.row_count,
            });
        }
        Ok(())
    }
}

/// The rows that are still to be read.
struct Cursor<'a> {
    rows: &'a [Range<u32>],
    /// The first of them; beyond all rows when there are none.
    row: u32,
}

impl<'a> Cursor<'a> {
    fn new(rows: &'a [Range<u32>]) -> Self {
        let mut cursor = Self { rows, row: 0 };
        cursor.settle();
        cursor
    }

    /// Moves to the first row of the first range that has one.
    fn settle(&mut self) {
        while let [first, rest @ ..] = self.rows
            && first.is_empty()
        {
            self.rows = rest;
        }
        self.row = self.rows.first().map_or(u32::MAX, |first| first.start);
    }

    /// Takes the next rows that stand together, up to `end`.
    #[inline]
    fn take(&mut self, end: u32) -> Option<Range<u32>> {
        if self.row >= end {
            return None;
        }
        let (first, rest) = self.rows.split_first()?;
        let taken = self.row..first.end.min(end);
        if taken.end == first.end {
            self.rows = rest;
            self.settle();
        } else {
            self.row = taken.end;
        }
        Some(taken)
    }
}

/// The way to some rows.
struct RowWalk<'a, F> {
    elf: &'a ElfHead,
    /// The codes that led to where it is.
    prefix: Vec<u32>,
    next: Cursor<'a>,
    show: F,
}

impl<F: FnMut(&Run, &[u32])> RowWalk<'_, F> {
    /// Shows the wanted rows below a node of `level`.
    fn node(&mut self, at: usize, level: usize) {
        let elf = self.elf;
        let head = &elf.head;
        let node = &head.nodes[at];
        let end = head.node_rows(node).end;
        let mut idx = 0;
        while self.next.row < end {
            let row = self.next.row;
            // The last child that starts at or before the row: absent ones start where the next does.
            idx += head.started(node, idx + 1, row);
            let child = node.child_at as usize + idx;
            let rows = head.rows_of(node, child);
            let (level, slot) = match head.link_of(node, child) {
                Link::Node(below) => {
                    self.prefix[level] = head.code_at(node, idx as u32);
                    self.node(below, level + 1);
                    continue;
                }
                Link::Below(slot) => {
                    self.prefix[level] = head.code_at(node, idx as u32);
                    (level + 1, slot)
                }
                Link::Here(slot) => (level, slot),
            };
            self.group(&Run {
                level,
                slots: slot..slot + rows.len(),
                row: rows.start,
            });
        }
    }

    /// Shows the wanted rows of a group.
    fn group(&mut self, group: &Run) {
        while let Some(rows) = self.next.take(group.rows().end) {
            let slot = group.slots.start + (rows.start - group.row) as usize;
            let run = Run {
                level: group.level,
                slots: slot..slot + rows.len(),
                row: rows.start,
            };
            (self.show)(&run, &self.prefix);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::PackedOptions;
    use super::*;
    use crate::cases;
    use crate::keys::CodeTable;

    /// The table's rows in Elf order.
    fn sorted(table: &CodeTable) -> Vec<Vec<u32>> {
        let mut rows: Vec<Vec<u32>> = (0..table.row_count()).map(|row| table.row(row)).collect();
        rows.sort();
        rows
    }

    fn options(clustered: bool, is_small: bool) -> PackedOptions {
        let mut options = PackedOptions {
            clustered,
            ..Default::default()
        };
        if is_small {
            (options.group_rows_max, options.bucket_rows_max) = (4, 2);
        }
        options
    }

    /// Checks some rows of some columns against the sorted table.
    fn check(elf: &PackedElf, sorted: &[Vec<u32>], rows: &[Range<u32>], columns: &[usize]) {
        let mut codes = vec![vec![7]; columns.len()];
        elf.read_rows(rows, columns, &mut codes).unwrap();
        for (column, codes) in columns.iter().zip(&codes) {
            let rows = rows.iter().cloned().flatten();
            let expected = rows.map(|row| sorted[row as usize][*column]);
            let expected: Vec<u32> = std::iter::once(7).chain(expected).collect();
            assert_eq!(
                codes,
                &expected,
                "column {column} of {rows:?}",
                rows = elf.row_count()
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn accepted_rows_come_back_as_they_were(
            table in cases::table(600, u32::MAX),
            seed in any::<u64>(),
        ) {
            let sorted = sorted(&table);
            let mut random = fastrand::Rng::with_seed(seed);
            for (clustered, is_small) in [(false, false), (false, true), (true, false), (true, true)] {
                let elf = PackedElf::build(&table, &options(clustered, is_small)).unwrap();
                for query in cases::queries(&table, seed, 6) {
                    let accepts = |row: &&Vec<u32>| {
                        let one = |(restriction, code): (&crate::keys::Restriction, &u32)| restriction.contains(*code);
                        query.dimensions().iter().zip(row.iter()).all(one)
                    };
                    let rows = elf.select_rows(&query).unwrap();
                    let mut columns: Vec<usize> = (0..table.dimension_count()).collect();
                    random.shuffle(&mut columns);
                    check(&elf, &sorted, &rows, &columns);
                    let mut codes = vec![Vec::new(); columns.len()];
                    elf.read_rows(&rows, &columns, &mut codes).unwrap();
                    let accepted = sorted.iter().filter(accepts).count();
                    let mut tids = Vec::new();
                    elf.read_tids(&rows, &mut tids).unwrap();
                    tids.sort_unstable();
                    prop_assert_eq!(tids, elf.select(&query).unwrap());
                    prop_assert!(codes.iter().all(|codes| codes.len() == accepted));
                }
                // Ranges that no query would give: some touch, some are empty.
                let mut cuts: Vec<u32> = (0..8).map(|_| random.u32(0..=sorted.len() as u32)).collect();
                cuts.sort_unstable();
                let rows: Vec<Range<u32>> = cuts.windows(2).step_by(1 + seed as usize % 2).map(|cut| cut[0]..cut[1]).collect();
                check(&elf, &sorted, &rows, &[0]);
            }
        }
    }

    #[test]
    fn every_range_of_every_tiny_table_is_read() {
        for (dimensions, codes, rows) in [(1, 3, 4), (2, 2, 4), (3, 2, 3)] {
            for table in cases::all_tables(dimensions, codes, rows) {
                let sorted = sorted(&table);
                let tiny = PackedOptions {
                    group_rows_max: 1,
                    bucket_rows_max: 1,
                    ..Default::default()
                };
                let elf = PackedElf::build(&table, &tiny).unwrap();
                let columns: Vec<usize> = (0..dimensions).rev().collect();
                for start in 0..=rows as u32 {
                    for end in start..=rows as u32 {
                        check(&elf, &sorted, std::slice::from_ref(&(start..end)), &columns);
                    }
                }
            }
        }
    }

    #[test]
    fn rows_and_columns_that_do_not_exist_are_refused() {
        let elf =
            PackedElf::build(&cases::uniform(100, 2, 9, 1), &PackedOptions::default()).unwrap();
        let read = |rows: &[Range<u32>], columns: &[usize], count: usize| {
            let mut codes = vec![Vec::new(); count];
            let error = elf.read_rows(rows, columns, &mut codes).err();
            assert!(error.is_none() || codes.iter().all(Vec::is_empty));
            error
        };
        assert!(read(&[0..50, 50..100], &[1, 0, 1], 3).is_none());
        assert!(matches!(
            read(&[0..100, 100..101], &[0], 1),
            Some(ElfError::NoSuchRow {
                row: 100,
                row_count: 100
            })
        ));
        let backwards = Range { start: 9, end: 3 };
        for rows in [vec![5..9, 8..10], vec![5..9, 1..2], vec![backwards]] {
            assert!(matches!(
                read(&rows, &[0], 1),
                Some(ElfError::RowOrder { .. })
            ));
        }
        for (columns, count) in [(&[2][..], 1), (&[0], 2), (&[0, 1], 1)] {
            assert!(matches!(
                read(&[0..1, 2..3], columns, count),
                Some(ElfError::DimensionMismatch { .. })
            ));
        }
    }
}
