//! Pure: how runs are divided into ranges, and what memory merging them takes.

use std::ops::Range;

use super::cuts::Cuts;
use super::run::{Mark, Run};
use crate::{Result, Stop};

/// A range has the rows of one batch for this many runs, or of a batch.
const RUNS_PER_BATCH: usize = 16;

/// Several threads are to take at most one part in this many more memory than one thread.
const MORE_PARTS: u64 = 4;

/// The ranges of some runs.
pub(super) struct Division {
    pub(super) cuts: Cuts,
    /// The first ranges, which have as many rows as are wanted.
    pub(super) range_count: usize,
    /// Whether keys are in memory with their batches.
    keeps_keys: bool,
    /// The memory of the largest batch.
    batch_bytes: u64,
}

impl Division {
    pub(super) fn new(
        runs: &[Run],
        keeps_keys: bool,
        limit: Option<usize>,
        stop: &Stop,
    ) -> Result<Self> {
        let mark_count: usize = runs.iter().map(|run| run.marks.len()).sum();
        let batch_count: usize = runs.iter().map(|run| run.sizes.len()).sum();
        let every = runs.len() * mark_count / (batch_count * RUNS_PER_BATCH).max(1);
        let marks: Vec<&[Mark]> = runs.iter().map(|run| &*run.marks).collect();
        let cuts = Cuts::new(&marks, every.max(1), stop)?;
        Ok(Self {
            range_count: match limit {
                Some(limit) => wanted_ranges(&cuts, runs, limit),
                None => cuts.range_count(),
            },
            cuts,
            keeps_keys,
            batch_bytes: runs.iter().map(Run::batch_bytes).max().unwrap_or(0),
        })
    }

    /// The memory of this many consecutive ranges that are being merged, and of one more that is being handed on.
    pub(super) fn bytes(&self, runs: &[Run], range_count: usize) -> u64 {
        let end = |start: usize| (start + range_count).min(self.range_count);
        let bytes = |start: usize| {
            self.batches_bytes(runs, start..end(start))
                + self.rows_bytes(runs, start.saturating_sub(1)..end(start))
        };
        let most = (0..self.range_count).map(bytes).max();
        most.unwrap_or(0) + range_count as u64 * work_bytes(self.batch_bytes)
    }

    /// The memory of merging one range, or one for each thread and one that is read ahead, if that is little more.
    pub(super) fn bytes_for(&self, runs: &[Run], threads: usize) -> u64 {
        let one = self.bytes(runs, 1);
        let fewer = std::iter::successors(Some(threads + 1), |&count| Some(count / 2));
        let fewer = fewer.take_while(|&count| count > 1);
        let mut several = fewer.map(|count| self.bytes(runs, count));
        several
            .find(|&bytes| bytes <= one + one / MORE_PARTS)
            .unwrap_or(one)
    }

    /// The memory of the batches that these ranges need.
    fn batches_bytes(&self, runs: &[Run], ranges: Range<usize>) -> u64 {
        let bytes = |(number, run): (usize, &Run)| {
            let batches = run.batches_between(self.cuts.pieces(ranges.clone(), number));
            run.loaded_bytes(batches, self.keeps_keys)
        };
        runs.iter().enumerate().map(bytes).sum()
    }

    /// The memory of the rows of these ranges, and of what is sorted: half as much again as their marks say, as no
    /// range has exactly the rows of its marks.
    fn rows_bytes(&self, runs: &[Run], ranges: Range<usize>) -> u64 {
        let bytes = |(number, run): (usize, &Run)| {
            let marks = self.cuts.marks(ranges.clone(), number);
            run.marks[marks.end].bytes_before - run.marks[marks.start].bytes_before
        };
        let bytes: u64 = runs.iter().enumerate().map(bytes).sum();
        bytes + bytes / 2
    }
}

/// What a thread needs to merge a range besides its batches and rows: a batch that is being decoded.
pub(super) fn work_bytes(batch_bytes: u64) -> u64 {
    2 * batch_bytes
}

/// How many of the first ranges have all rows that are wanted, as far as marks say.
fn wanted_ranges(cuts: &Cuts, runs: &[Run], limit: usize) -> usize {
    let first_rows = |run: &Run| -> Vec<usize> {
        let first_rows = run.sizes.iter().scan(0, |next, size| {
            *next += size.row_count;
            Some(*next - size.row_count)
        });
        first_rows.collect()
    };
    let first_rows: Vec<Vec<usize>> = runs.iter().map(first_rows).collect();
    // Rows before the first mark that the range may have.
    let rows_before = |range: usize| -> usize {
        let numbered = runs.iter().zip(&first_rows).enumerate();
        let rows = numbered.map(|(number, (run, first_rows))| {
            let mark = &run.marks[cuts.pieces(range..range + 1, number).start];
            first_rows[mark.batch]
        });
        rows.sum()
    };
    let others = (1..cuts.range_count()).take_while(|&range| rows_before(range) < limit);
    others.count() + 1
}
