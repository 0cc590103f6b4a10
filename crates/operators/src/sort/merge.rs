//! Several runs as one, in ranges of keys that threads merge one by one.
//!
//! ```text
//! run 0   ├──────┼──────┼───│──┼──────┼────│─┼──────┤      batches, each in memory from the first range that needs it
//! run 1   ├────┼──────┼─────│┼──────┼──────│─────┼──┤      to the last
//!               range 0     │   range 1    │  range 2
//! ```
//!
//! Ranges are smaller than a batch of each run, so that ranges next to each other share most batches: with several
//! threads there is little more in memory than one batch of each run. The rows of a range are sorted as if they were
//! in no order, which takes less time than a comparison of their runs' first rows for each row.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::block::{Block, Slot};
use super::cuts::{Cut, Cuts};
use super::gather::Gather;
use super::held::RowsInOrder;
use super::job::Job;
use super::order::{self, Entry};
use super::run::{Mark, Run, loaded_bytes};
use super::survey::{KeySurvey, Selection};
use super::{Ranges, SortStats};
use crate::Result;
use crate::memory::Charge;
use crate::spill::{SpilledBatch, write_bytes};

/// No merge reads more runs than this at once: opening it would take longer than a pass saves.
const FAN_IN_MAX: usize = 1024;
/// A range has the rows of one batch for this many runs.
const RUNS_PER_BATCH: usize = 8;

/// Memory for merging the first of several runs, as many as the broker lends memory for now, and at least two. It is
/// held until the merge takes it over, so that sorts that share a broker do not count the same bytes twice.
pub(super) struct Reserved {
    job: Arc<Job>,
    run_count: usize,
    charge: Charge,
}

impl Reserved {
    pub(super) fn new(job: &Arc<Job>, runs: &[Run]) -> Self {
        let mut charge = Charge::adopt(&job.grant, 0);
        let batch_bytes = runs.iter().map(Run::batch_bytes).max().unwrap_or(0);
        charge.grow(work_bytes(batch_bytes) + write_bytes(batch_bytes));
        let mut run_count = 0;
        for run in runs.iter().take(FAN_IN_MAX) {
            // Of some runs there are two batches, and the rows of a range come out.
            let more = run.loaded_bytes() * 5 / 4;
            if run_count < 2 {
                charge.grow(more);
            } else if !charge.try_grow(more) {
                break;
            }
            run_count += 1;
        }
        Self {
            job: Arc::clone(job),
            run_count,
            charge,
        }
    }

    pub(super) fn run_count(&self) -> usize {
        self.run_count
    }
}

/// What a thread needs to merge a range besides its batches and rows: a batch that is being decoded.
fn work_bytes(batch_bytes: u64) -> u64 {
    2 * batch_bytes
}

/// Several runs in ranges. Where keys are equal, the rows of the run with the lower number come first.
pub struct MergedRanges {
    job: Arc<Job>,
    runs: Vec<MergedRun>,
    cuts: Cuts,
    survey: KeySurvey,
    selection: Selection,
    batch_bytes: u64,
    row_bytes: u64,
    charge: Charge,
    stats: SortStats,
}

struct MergedRun {
    marks: Vec<Mark>,
    slots: Vec<Slot>,
    /// The memory of each batch.
    bytes: Vec<u64>,
    /// Has the charge of the marks.
    _charge: Charge,
}

impl MergedRun {
    fn new(run: Run, selection: &Selection) -> Self {
        let key_row_bytes = match selection.is_complete() {
            true => 0,
            false => run.key_row_bytes(),
        };
        let bytes = |batch: &SpilledBatch| loaded_bytes(batch, key_row_bytes);
        Self {
            bytes: run.batches.iter().map(bytes).collect(),
            marks: run.marks,
            slots: run.batches.into_iter().map(Slot::new).collect(),
            _charge: run.charge,
        }
    }

    /// The batches with these pieces.
    fn batches(&self, pieces: &Range<usize>) -> Range<usize> {
        match pieces.is_empty() {
            true => 0..0,
            false => self.marks[pieces.start].batch..self.marks[pieces.end - 1].batch + 1,
        }
    }
}

impl MergedRanges {
    /// Begins to merge runs, with the memory that was reserved for them.
    pub(super) fn new(reserved: Reserved, runs: Vec<Run>, stats: SortStats) -> Self {
        let Reserved { job, charge, .. } = reserved;
        let mut survey = KeySurvey::default();
        runs.iter().for_each(|run| survey.add_all(run.survey()));
        let selection = survey.selection();
        let batch_bytes = runs.iter().map(Run::batch_bytes).max().unwrap_or(0);
        let sum = |count: fn(&Run) -> usize| runs.iter().map(count).sum::<usize>();
        let (mark_count, batch_count) = (sum(|run| run.marks.len()), sum(|run| run.batches.len()));
        let every = runs.len() * mark_count / (batch_count * RUNS_PER_BATCH).max(1);
        let batches = || runs.iter().flat_map(|run| &run.batches);
        let row_count: usize = batches().map(SpilledBatch::row_count).sum();
        let bytes: u64 = batches().map(SpilledBatch::raw_bytes).sum();
        let row_bytes = bytes / row_count.max(1) as u64 + 1;
        let marks: Vec<&[Mark]> = runs.iter().map(|run| &*run.marks).collect();
        let cuts = Cuts::new(&marks, every.max(1));
        let merged = runs.into_iter().map(|run| MergedRun::new(run, &selection));
        let mut merged = Self {
            job,
            runs: merged.collect(),
            cuts,
            survey,
            selection,
            batch_bytes,
            row_bytes,
            charge,
            stats,
        };
        for range in 0..merged.cuts.range_count() {
            for run in 0..merged.runs.len() {
                let batches = merged.batches(range..range + 1, run);
                merged.runs[run].slots[batches]
                    .iter_mut()
                    .for_each(Slot::need);
            }
        }
        let missing = merged.bytes(1).saturating_sub(merged.charge.bytes());
        merged.charge.grow(missing);
        merged
    }

    pub(super) fn survey(&self) -> &KeySurvey {
        &self.survey
    }

    /// The memory of this many consecutive ranges that are being merged, and of one more that is being handed on.
    fn bytes(&self, range_count: usize) -> u64 {
        let end = |start: usize| (start + range_count).min(self.cuts.range_count());
        let bytes = |start| {
            self.batches_bytes(start..end(start))
                + self.rows_bytes(start.saturating_sub(1)..end(start))
        };
        let most = (0..self.cuts.range_count()).map(bytes).max();
        most.unwrap_or(0) + range_count as u64 * work_bytes(self.batch_bytes)
    }

    /// The memory of the batches that these ranges need.
    fn batches_bytes(&self, ranges: Range<usize>) -> u64 {
        let runs = self.runs.iter().enumerate();
        let bytes = |(number, run): (usize, &MergedRun)| {
            let batches = self.batches(ranges.clone(), number);
            run.bytes[batches].iter().sum::<u64>()
        };
        runs.map(bytes).sum()
    }

    /// The memory of the rows of these ranges, and of what is sorted.
    fn rows_bytes(&self, ranges: Range<usize>) -> u64 {
        let runs = self.runs.iter().enumerate();
        let bytes = |(number, run): (usize, &MergedRun)| {
            let pieces = self.cuts.pieces(ranges.clone(), number);
            run.marks[pieces.end].bytes_before - run.marks[pieces.start].bytes_before
        };
        runs.map(bytes).sum()
    }

    /// The batches of a run that may have rows of these ranges.
    fn batches(&self, ranges: Range<usize>, run: usize) -> Range<usize> {
        self.runs[run].batches(&self.cuts.pieces(ranges, run))
    }

    fn slots(&self, range: usize) -> impl Iterator<Item = (usize, usize, &Slot)> {
        let runs = self.runs.iter().enumerate();
        runs.flat_map(move |(number, run)| {
            let batches = self.batches(range..range + 1, number);
            batches.map(move |batch| (number, batch, &run.slots[batch]))
        })
    }

    /// Begins to read what a range needs.
    fn begin(&self, range: usize) {
        self.slots(range).for_each(|(_, _, slot)| slot.begin());
    }

    /// The rows of a range in order. When they have been used, the range is to be released.
    fn in_order(&self, range: usize) -> Result<RowsInOrder> {
        let stop = self.job.stop();
        self.begin(range);
        let mut blocks = Vec::new();
        for (run, batch, slot) in self.slots(range) {
            stop.check()?;
            let block = slot.block(|batch| Block::new(batch, &self.job, &self.selection))?;
            let rows_before = |cut| self.rows_before(cut, run, batch, &block);
            let start = self.cuts.begin(range).map_or(0, rows_before);
            let end = self.cuts.end(range);
            let end = end.map_or(block.prefixes.len(), rows_before);
            if start < end {
                blocks.push((block, start..end));
            }
        }
        let numbered = || blocks.iter().enumerate();
        let entries = || {
            numbered().flat_map(|(batch, (block, rows))| {
                let entry = move |row| Entry::new(block.prefixes[row], batch as u32, row as u32);
                rows.clone().map(entry)
            })
        };
        let key = |entry: Entry| blocks[entry.batch()].0.key(entry.row());
        let order = order::sorted(
            entries,
            order::common_bits(entries()),
            &self.selection,
            &key,
            stop,
        )?;
        let batches: Vec<_> = blocks
            .iter()
            .map(|(block, _)| block.batch.clone())
            .collect();
        let gather = Arc::new(Gather::new(&self.job.schema, &batches));
        Ok(RowsInOrder::new(gather, order, self.row_bytes))
    }

    /// How many rows of a batch come before a cut.
    fn rows_before(&self, cut: Cut, run: usize, batch: usize, block: &Block) -> usize {
        let mark = &self.runs[cut.run].marks[cut.mark];
        if run == cut.run {
            return match batch {
                batch if batch < mark.batch => block.prefixes.len(),
                batch if batch == mark.batch => mark.row,
                _ => 0,
            };
        }
        let (prefix, rest) = (
            self.selection.prefix(&mark.key),
            self.selection.rest(&mark.key),
        );
        let is_before = |row: usize| {
            let key = || self.selection.rest(block.key(row)).cmp(rest);
            let order = block.prefixes[row].cmp(&prefix).then_with(key);
            order.then(run.cmp(&cut.run)).is_lt()
        };
        partition_point(block.prefixes.len(), is_before)
    }

    fn release(&self, range: usize) {
        self.slots(range).for_each(|(_, _, slot)| slot.release());
    }
}

impl Ranges for MergedRanges {
    fn range_count(&self) -> usize {
        self.cuts.range_count()
    }

    fn reserve(&mut self, count_max: usize) -> usize {
        let mut count = 1;
        while count < count_max {
            let missing = self.bytes(count + 1).saturating_sub(self.charge.bytes());
            if !self.charge.try_grow(missing) {
                break;
            }
            count += 1;
        }
        count
    }

    fn rows(&self, range: usize) -> Result<Vec<RecordBatch>> {
        let rows = self.in_order(range)?;
        let batches = rows.batches(self.job.options.batch_row_count, self.job.stop())?;
        self.release(range);
        Ok(batches)
    }

    fn stats(&self) -> SortStats {
        SortStats {
            used_bytes_max: self.job.grant.used_bytes_max() + self.stats.used_bytes_max,
            ..self.stats
        }
    }
}

/// How many of `count` numbers from 0 on are before the others.
fn partition_point(count: usize, is_before: impl Fn(usize) -> bool) -> usize {
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

/// Several runs as one, range after range.
pub(super) struct Merge {
    ranges: MergedRanges,
    /// Whether there is memory for reading what the next range needs while rows of this one are handed on.
    reads_ahead: bool,
    next: usize,
    rows: Option<RowsInOrder>,
}

impl Merge {
    pub(super) fn new(mut ranges: MergedRanges) -> Self {
        Self {
            reads_ahead: ranges.reserve(2) == 2,
            ranges,
            next: 0,
            rows: None,
        }
    }

    pub(super) fn survey(&self) -> &KeySurvey {
        self.ranges.survey()
    }

    /// The next rows, at most as many. `None`: there are no more, or none is wanted.
    pub(super) fn next_batch(&mut self, row_count_max: usize) -> Result<Option<RecordBatch>> {
        if row_count_max == 0 {
            return Ok(None);
        }
        loop {
            if let Some(rows) = &mut self.rows {
                let (bytes, stop) = (self.ranges.batch_bytes, self.ranges.job.stop());
                let batch = rows.next_batch(bytes, row_count_max, stop)?;
                if batch.is_some() {
                    return Ok(batch);
                }
                self.rows = None;
                self.ranges.release(self.next - 1);
            }
            if self.next == self.ranges.range_count() {
                return Ok(None);
            }
            self.rows = Some(self.ranges.in_order(self.next)?);
            self.next += 1;
            if self.reads_ahead && self.next < self.ranges.range_count() {
                self.ranges.begin(self.next);
            }
        }
    }
}
