//! Sorting a table: parallel partition by the first key bits, then each partition on its own.
//!
//! The order (codes, TID) is total, so the result is the same for any number of threads.

use std::ops::Range;

use hotshelf_tier::region::prefer_huge_pages;

use crate::keys::CodeTable;

use super::{RowShape, for_each_parallel};

/// Key bits that choose a partition. More would spread the scattered writes over too many pages.
const PARTITION_BITS: u32 = 11;

/// Rows encoded at a time, so that they stay in the first-level cache.
const BATCH_ROWS: usize = 512;

/// Tables below this many rows are sorted without partitioning.
const PARTITION_ROWS_MIN: usize = 1 << 12;

/// The packed rows of a table, sorted by codes and then TID.
#[derive(Debug)]
pub struct SortedRows {
    shape: RowShape,
    row_count: usize,
    /// Words from one row to the next; at least `shape.word_count()`, the surplus is zero.
    stride: usize,
    words: Vec<u64>,
}

impl SortedRows {
    /// Packs and sorts the rows of a table.
    pub fn from_table(table: &CodeTable, thread_count: usize) -> Self {
        let columns = table.columns().iter();
        let code_max: Vec<u32> = columns.map(|column| column.max()).collect();
        let shape = RowShape::new(&code_max, table.tid_max());
        Self::with_shape(table, shape, thread_count)
    }

    /// Packs and sorts the rows of a table in a shape that has room for them.
    pub(crate) fn with_shape(table: &CodeTable, shape: RowShape, thread_count: usize) -> Self {
        let (stride, words) = match shape.word_count() {
            1 => (1, sort::<1>(table, &shape, thread_count)),
            2 => (2, sort::<2>(table, &shape, thread_count)),
            3 => (3, sort::<3>(table, &shape, thread_count)),
            4 => (4, sort::<4>(table, &shape, thread_count)),
            5..=8 => (8, sort::<8>(table, &shape, thread_count)),
            9..=16 => (16, sort::<16>(table, &shape, thread_count)),
            _ => (33, sort::<33>(table, &shape, thread_count)),
        };
        Self {
            row_count: table.row_count(),
            shape,
            stride,
            words,
        }
    }

    pub(crate) fn shape(&self) -> &RowShape {
        &self.shape
    }

    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Number of dimensions.
    pub fn dimension_count(&self) -> usize {
        self.shape.dimension_count()
    }

    /// Whether all codes of two rows are equal.
    pub fn is_equal(&self, a: usize, b: usize) -> bool {
        let level = self.shape.first_difference(self.row(a), self.row(b));
        level == self.dimension_count()
    }

    /// The words of a row.
    #[inline]
    pub(crate) fn row(&self, row: usize) -> &[u64] {
        &self.words[row * self.stride..][..self.stride]
    }

    /// The code of a row in a dimension.
    #[inline]
    pub fn code(&self, row: usize, level: usize) -> u32 {
        self.shape.code(self.row(row), level)
    }

    /// The TID of a row.
    #[inline]
    pub fn tid(&self, row: usize) -> u32 {
        self.shape.tid(self.row(row))
    }

    /// The first row in `rows` whose code at `level` differs from that of the first of them. All of
    /// `rows` must agree on the levels before.
    #[inline]
    pub fn run_end(&self, rows: Range<usize>, level: usize) -> usize {
        let code = self.code(rows.start, level);
        let mut end = rows.start + 1;
        while end < rows.end && self.code(end, level) == code {
            end += 1;
        }
        end
    }
}

/// Packs `rows` of the table into `out`, one after the other. Only the first `level_count` codes
/// are written, and the TID only with all of them.
fn pack<const W: usize>(
    table: &CodeTable,
    shape: &RowShape,
    rows: Range<usize>,
    level_count: usize,
    out: &mut [[u64; W]],
) {
    out.fill([0; W]);
    for (level, column) in table.columns().iter().take(level_count).enumerate() {
        let field = shape.field(level);
        column.for_each(rows.clone(), |i, code| field.put(&mut out[i], code));
    }
    if level_count == shape.dimension_count() {
        let field = shape.tid_field();
        for (i, row) in rows.enumerate() {
            field.put(&mut out[i], table.tid(row));
        }
    }
}

fn batches(rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    rows.clone()
        .step_by(BATCH_ROWS)
        .map(move |first| first..rows.end.min(first + BATCH_ROWS))
}

fn partition_of<const W: usize>(row: &[u64; W]) -> usize {
    (row[0] >> (64 - PARTITION_BITS)) as usize
}

fn sort<const W: usize>(table: &CodeTable, shape: &RowShape, thread_count: usize) -> Vec<u64> {
    let row_count = table.row_count();
    let mut rows = vec![[0u64; W]; row_count];
    prefer_huge_pages(&mut rows);
    if row_count < PARTITION_ROWS_MIN {
        pack(
            table,
            shape,
            0..row_count,
            shape.dimension_count(),
            &mut rows,
        );
        rows.sort_unstable();
        return rows.into_flattened();
    }
    let share = row_count.div_ceil(thread_count.max(1));
    let shares: Vec<Range<usize>> = (0..row_count)
        .step_by(share)
        .map(|first| first..row_count.min(first + share))
        .collect();
    let counts = count_partitions::<W>(table, shape, &shares);
    let targets = split_for_shares(&mut rows, &counts);
    let work: Vec<_> = shares.into_iter().zip(targets).collect();
    for_each_parallel(thread_count, work, |(rows, targets)| {
        scatter(table, shape, rows, targets)
    });

    let mut partitions = Vec::with_capacity(1 << PARTITION_BITS);
    let mut rest = rows.as_mut_slice();
    for partition in 0..1 << PARTITION_BITS {
        let len = counts.iter().map(|counts| counts[partition]).sum();
        let (own, others) = rest.split_at_mut(len);
        partitions.push(own);
        rest = others;
    }
    partitions.retain(|rows| rows.len() > 1);
    for_each_parallel(thread_count, partitions, |rows| rows.sort_unstable());
    rows.into_flattened()
}

/// For each share of the rows, how many fall into each partition.
fn count_partitions<const W: usize>(
    table: &CodeTable,
    shape: &RowShape,
    shares: &[Range<usize>],
) -> Vec<Vec<usize>> {
    let first_bits = |level: &usize| {
        let field = shape.field(*level);
        field.word == 0 && field.shift + field.mask.count_ones() > 64 - PARTITION_BITS
    };
    let level_count = (0..shape.dimension_count()).take_while(first_bits).count();
    let mut counts = vec![vec![0; 1 << PARTITION_BITS]; shares.len()];
    let work: Vec<_> = shares.iter().cloned().zip(counts.iter_mut()).collect();
    for_each_parallel(shares.len(), work, |(rows, counts)| {
        let mut batch = [[0u64; W]; BATCH_ROWS];
        for rows in batches(rows) {
            let batch = &mut batch[..rows.len()];
            pack(table, shape, rows, level_count, batch);
            batch.iter().for_each(|row| counts[partition_of(row)] += 1);
        }
    });
    counts
}

/// Cuts `rows` so that each share has its own slice of each partition, in the order of the shares.
fn split_for_shares<'a, const W: usize>(
    mut rows: &'a mut [[u64; W]],
    counts: &[Vec<usize>],
) -> Vec<Vec<&'a mut [[u64; W]]>> {
    let mut targets: Vec<Vec<_>> = counts
        .iter()
        .map(|counts| Vec::with_capacity(counts.len()))
        .collect();
    for partition in 0..1 << PARTITION_BITS {
        for (targets, counts) in targets.iter_mut().zip(counts) {
            let (own, rest) = std::mem::take(&mut rows).split_at_mut(counts[partition]);
            targets.push(own);
            rows = rest;
        }
    }
    targets
}

fn scatter<const W: usize>(
    table: &CodeTable,
    shape: &RowShape,
    rows: Range<usize>,
    mut targets: Vec<&mut [[u64; W]]>,
) {
    let mut filled = vec![0usize; targets.len()];
    let mut batch = [[0u64; W]; BATCH_ROWS];
    for rows in batches(rows) {
        let batch = &mut batch[..rows.len()];
        pack(table, shape, rows, shape.dimension_count(), batch);
        for row in batch {
            let partition = partition_of(row);
            targets[partition][filled[partition]] = *row;
            filled[partition] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::CodeColumn;

    fn table(row_count: usize, code_max: &[u32]) -> CodeTable {
        let mut state = 1u64;
        let mut next = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        let columns = code_max
            .iter()
            .map(|&max| {
                let codes: Vec<u32> = (0..row_count)
                    .map(|_| (u64::from(next()) % (u64::from(max) + 1)) as u32)
                    .collect();
                CodeColumn::from_codes(codes.into_iter(), max)
            })
            .collect();
        CodeTable::new(columns).unwrap()
    }

    #[test]
    fn rows_come_out_in_key_and_tid_order_for_any_number_of_threads() {
        let shapes: [&[u32]; 6] = [
            &[1],
            &[2, 0],
            &[99; 10],
            &[u32::MAX; 5],
            &[3, 70_000, 1],
            &[u32::MAX; 64],
        ];
        for code_max in shapes {
            for row_count in [0, 1, 2, 300, 5_000] {
                let table = table(row_count, code_max);
                let mut expected: Vec<_> = (0..row_count)
                    .map(|row| (table.row(row), table.tid(row)))
                    .collect();
                expected.sort();
                let sorted = SortedRows::from_table(&table, 1);
                for (row, (codes, tid)) in expected.iter().enumerate() {
                    assert_eq!(sorted.tid(row), *tid);
                    assert!(
                        codes
                            .iter()
                            .enumerate()
                            .all(|(l, &code)| sorted.code(row, l) == code)
                    );
                }
                for threads in [2, 3] {
                    assert_eq!(SortedRows::from_table(&table, threads).words, sorted.words);
                }
            }
        }
    }
}
