//! Pure: how runs are divided into ranges, and what memory merging them takes.

use std::ops::Range;

use super::cuts::Cuts;
use super::run::Run;
use crate::spill::write_bytes;
use crate::{Result, Stop};

/// A range has the rows of one batch for this many runs, or of a batch.
const RUNS_PER_BATCH: usize = 8;
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
        let batch_count: usize = runs.iter().map(Run::batch_count).sum();
        let every = runs.len() * mark_count / (batch_count * RUNS_PER_BATCH).max(1);
        let marks: Vec<_> = runs.iter().map(|run| &run.marks).collect();
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

    /// How many consecutive ranges take little more memory than one, and their memory: at most one range for each
    /// thread, and one that is read ahead.
    pub(super) fn at_once(
        &self,
        runs: &[Run],
        threads: usize,
        stop: &Stop,
    ) -> Result<(usize, u64)> {
        let one = self.bytes(runs, 1, stop)?;
        let mut count = threads + 1;
        while count > 1 {
            let bytes = self.bytes(runs, count, stop)?;
            if bytes <= one + one / MORE_PARTS {
                return Ok((count, bytes));
            }
            count = count.div_ceil(2);
        }
        Ok((1, one))
    }

    /// The memory of this many consecutive ranges that are being merged, of one more that is being handed on, and of
    /// where ranges are cut.
    pub(super) fn bytes(&self, runs: &[Run], range_count: usize, stop: &Stop) -> Result<u64> {
        let end = |start: usize| (start + range_count).min(self.range_count);
        let mut most = 0;
        for start in 0..self.range_count {
            stop.check()?;
            let bytes = self.batches_bytes(runs, start..end(start))
                + self.rows_bytes(runs, start.saturating_sub(1)..end(start));
            most = most.max(bytes);
        }
        Ok(most + self.cuts.bytes() + range_count as u64 * work_bytes(self.batch_bytes))
    }

    /// The memory that this many threads need besides, if they write what they have merged.
    pub(super) fn write_bytes(&self, threads: usize) -> u64 {
        threads as u64 * write_bytes(self.batch_bytes)
    }

    /// The batches of a run that may have rows of a range.
    pub(super) fn batches(&self, range: usize, run: &Run, number: usize) -> Range<usize> {
        run.batches_between(self.cuts.pieces(range..range + 1, number))
    }

    /// How many ranges need a batch of a run.
    pub(super) fn ranges_of(&self, run: &Run, number: usize, batch: usize) -> usize {
        let batches = |range| self.batches(range, run, number);
        let before = partition_point(self.range_count, |range| batches(range).end <= batch);
        let end = partition_point(self.range_count, |range| batches(range).start <= batch);
        end.saturating_sub(before)
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
            run.marks.bytes_before(marks.end) - run.marks.bytes_before(marks.start)
        };
        let bytes: u64 = runs.iter().enumerate().map(bytes).sum();
        bytes + bytes / 2
    }
}

/// What a thread needs to merge a range besides its batches and rows: a batch that is being decoded.
pub(super) fn work_bytes(batch_bytes: u64) -> u64 {
    2 * batch_bytes
}

/// How many of `count` numbers from 0 on are before the others.
pub(super) fn partition_point(count: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut start, mut end) = (0, count);
    while start < end {
        let middle = start.midpoint(end);
        match is_before(middle) {
            true => start = middle + 1,
            false => end = middle,
        }
    }
    start
}

/// How many of the first ranges have all rows that are wanted, as far as marks say.
fn wanted_ranges(cuts: &Cuts, runs: &[Run], limit: usize) -> usize {
    let first_rows: Vec<Vec<usize>> = runs.iter().map(Run::first_rows).collect();
    // Rows before the first mark that the range may have.
    let rows_before = |range: usize| -> usize {
        let numbered = runs.iter().zip(&first_rows).enumerate();
        let rows = numbered.map(|(number, (run, first_rows))| {
            let mark = cuts.pieces(range..range + 1, number).start;
            first_rows[run.marks.batch(mark)]
        });
        rows.sum()
    };
    let others = (1..cuts.range_count()).take_while(|&range| rows_before(range) < limit);
    others.count() + 1
}
