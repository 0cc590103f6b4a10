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

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::block::{Block, Blocks, Slot};
use super::cuts::{self, Cut};
use super::division::{Division, partition_point, work_bytes};
use super::gather::Gather;
use super::held::{self, RowsInOrder};
use super::job::Job;
use super::order::{self, Entry};
use super::run::{self, Run, RunWriter, WrittenBatch};
use super::survey::{KeySurvey, Selection};
use super::{Ranges, SortStats};
use crate::memory::Charge;
use crate::spill::SpillFile;
use crate::threads::in_turns;
use crate::{OperatorError, Result};

/// No merge reads more runs than this at once: opening it would take longer than a pass saves.
const FAN_IN_MAX: usize = 1024;

/// Memory for merging the first of several runs, as many as the broker lends memory for now, and at least two. It is
/// held until the merge takes it over, so that sorts that share a broker do not count the same bytes twice.
pub(super) struct Reserved {
    job: Arc<Job>,
    run_count: usize,
    /// The ranges of these runs.
    division: Division,
    /// How many ranges may be merged at once.
    range_count: usize,
    charge: Charge,
}

impl Reserved {
    /// With memory for several threads, if that is little more than for one, and for writing what comes of it.
    pub(super) fn new(job: &Arc<Job>, runs: &[Run], threads: usize) -> Result<Self> {
        let mut charge = Charge::adopt(&job.grant, 0);
        let batch_bytes = runs.iter().map(Run::batch_bytes).max().unwrap_or(0);
        charge.grow(work_bytes(batch_bytes));
        let keeps_keys = !survey(runs).selection().is_complete();
        let mut run_count = 0;
        for run in runs.iter().take(FAN_IN_MAX) {
            let more = run.loaded_bytes_max(keeps_keys);
            if run_count < 2 {
                charge.grow(more);
            } else if !charge.try_grow(more) {
                break;
            }
            run_count += 1;
        }
        // Ranges need some more than a batch of each run.
        loop {
            let runs = &runs[..run_count];
            let division = division(job, runs, &survey(runs).selection())?;
            let (range_count, bytes) = division.at_once(runs, threads, job.stop())?;
            let written_bytes = division.write_bytes(range_count.min(threads));
            let at_hand = held::write_bytes_at_hand(&job.options);
            let needed = bytes + written_bytes.saturating_sub(at_hand);
            let missing = needed.saturating_sub(charge.bytes());
            if run_count <= 2 {
                charge.grow(missing);
            } else if !charge.try_grow(missing) {
                let fewer = run_count as u64 * charge.bytes() / needed;
                run_count = (fewer as usize).clamp(2, run_count - 1);
                continue;
            }
            charge.shrink_to(needed);
            return Ok(Self {
                job: Arc::clone(job),
                run_count,
                division,
                range_count,
                charge,
            });
        }
    }

    pub(super) fn run_count(&self) -> usize {
        self.run_count
    }
}

/// In which bits the keys of runs differ.
fn survey(runs: &[Run]) -> KeySurvey {
    let mut survey = KeySurvey::default();
    runs.iter().for_each(|run| survey.add_all(run.survey()));
    survey
}

fn division(job: &Job, runs: &[Run], selection: &Selection) -> Result<Division> {
    Division::new(
        runs,
        !selection.is_complete(),
        job.options.limit,
        job.stop(),
    )
}

/// Several runs in ranges. Where keys are equal, the rows of the run with the lower number come first.
pub struct MergedRanges {
    job: Arc<Job>,
    /// Runs whose batches are in `blocks`.
    runs: Vec<Run>,
    blocks: Vec<Blocks>,
    division: Division,
    /// How many ranges may be merged at once.
    at_once: usize,
    survey: KeySurvey,
    selection: Selection,
    /// The size of batches that are made by merging.
    target_bytes: u64,
    row_bytes: u64,
    charge: Charge,
    stats: SortStats,
}

impl MergedRanges {
    /// Begins to merge runs: the first ones of those that memory was reserved for, or all of these.
    pub(super) fn new(reserved: Reserved, mut runs: Vec<Run>, stats: SortStats) -> Result<Self> {
        let survey = survey(&runs);
        let selection = survey.selection();
        let job = reserved.job;
        let division = match reserved.run_count == runs.len() {
            true => reserved.division,
            false => division(&job, &runs, &selection)?,
        };
        let blocks = runs
            .iter_mut()
            .map(|run| Blocks::new(std::mem::take(&mut run.batches)));
        let blocks = blocks.collect();
        let bytes: u64 = runs.iter().map(Run::bytes).sum();
        let row_count: usize = runs.iter().map(Run::row_count).sum();
        Ok(Self {
            target_bytes: runs.iter().map(Run::target_bytes).max().unwrap_or(0),
            row_bytes: bytes / row_count.max(1) as u64 + 1,
            at_once: reserved.range_count,
            charge: reserved.charge,
            job,
            runs,
            blocks,
            division,
            survey,
            selection,
            stats,
        })
    }

    /// The batches of all runs that may have rows of a range, each with the numbers of its run and in its run, and
    /// without a place once all ranges that need it are released.
    fn slots(&self, range: usize) -> impl Iterator<Item = (usize, usize, Option<Arc<Slot>>)> {
        self.batches_of(range).map(move |(number, batch)| {
            let range_count = || self.division.ranges_of(&self.runs[number], number, batch);
            let slot = self.blocks[number].slot(batch, range_count);
            (number, batch, slot)
        })
    }

    fn batches_of(&self, range: usize) -> impl Iterator<Item = (usize, usize)> {
        let runs = self.runs.iter().enumerate();
        runs.flat_map(move |(number, run)| {
            let batches = self.division.batches(range, run, number);
            batches.map(move |batch| (number, batch))
        })
    }

    /// Begins to read what a range needs, if there is such a range and it is not released.
    fn begin(&self, range: usize) {
        if range < self.division.range_count {
            let slots = self.slots(range).filter_map(|(_, _, slot)| slot);
            slots.for_each(|slot| slot.begin());
        }
    }

    /// The rows of a range in order. When they have been used, the range is to be released.
    fn in_order(&self, range: usize) -> Result<RowsInOrder> {
        let stop = self.job.stop();
        let slots: Vec<_> = self.slots(range).collect();
        // All reads begin before the first is waited for.
        let begun = slots.iter().filter_map(|(_, _, slot)| slot.as_ref());
        begun.for_each(|slot| slot.begin());
        let mut blocks = Vec::new();
        for (run, batch, slot) in slots {
            stop.check()?;
            let slot = slot.ok_or(OperatorError::Internal("a range of a merge began again"))?;
            let block = slot.block(|batch| Block::new(batch, &self.job, &self.selection))?;
            let rows_before = |cut| self.rows_before(cut, run, batch, &block);
            let start = self.division.cuts.begin(range).map_or(0, rows_before);
            let end = self.division.cuts.end(range);
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
        let marks = &self.runs[cut.run()].marks;
        if run == cut.run() {
            return match batch < marks.batch(cut.mark()) {
                true => block.prefixes.len(),
                false => 0,
            };
        }
        let (selection, is_lower_run) = (&self.selection, run < cut.run());
        let mark = marks.key(cut.mark());
        let marked = (selection.prefix(mark.bytes), selection.rest(mark.bytes));
        let is_before = |row: usize| {
            let key = (block.prefixes[row], selection.rest(block.key(row)));
            cuts::is_before(key, marked, mark.is_whole && is_lower_run)
        };
        partition_point(block.prefixes.len(), is_before)
    }

    fn release(&self, range: usize) {
        self.batches_of(range)
            .for_each(|(number, batch)| self.blocks[number].release(batch));
    }

    /// Writes all rows as one run. Up to this many threads merge and write them.
    pub(super) fn write(
        self,
        file: &Arc<SpillFile>,
        mut writer: RunWriter,
        threads: usize,
    ) -> Result<Run> {
        let stop = self.job.stop();
        let merged = |range: usize| {
            let mut rows = self.in_order(range)?;
            if self.at_once > threads {
                self.begin(range + 1);
            }
            let mut written = Vec::new();
            while let Some(batch) = rows.next_batch(self.target_bytes, run::BATCH_ROWS_MAX, stop)? {
                written.push(WrittenBatch::write(&self.job, file, &batch)?);
            }
            self.release(range);
            Ok(written)
        };
        let add = |written: Vec<WrittenBatch>| {
            written.into_iter().for_each(|batch| writer.add(batch));
            Ok(())
        };
        in_turns(threads.min(self.at_once), self.range_count(), merged, add)?;
        Ok(writer.finish(self.survey))
    }
}

impl Ranges for MergedRanges {
    fn range_count(&self) -> usize {
        self.division.range_count
    }

    fn reserve(&mut self, count_max: usize) -> usize {
        let mut count = count_max.max(1);
        loop {
            // If it was stopped, the first range ends with that.
            let Ok(needed) = self.division.bytes(&self.runs, count, self.job.stop()) else {
                return 1;
            };
            let missing = needed.saturating_sub(self.charge.bytes());
            let is_least = count == 1;
            if is_least {
                self.charge.grow(missing);
            }
            if is_least || self.charge.try_grow(missing) {
                self.charge.shrink_to(needed);
                return count;
            }
            count = count.div_ceil(2);
        }
    }

    fn rows(&self, range: usize) -> Result<Vec<RecordBatch>> {
        let rows = self.in_order(range)?;
        let row_count_max = self.job.options.batch_row_count;
        let batches = rows.batches(row_count_max, self.job.stop())?;
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

    /// The next rows, at most as many. `None`: there are no more, or none is wanted.
    pub(super) fn next_batch(&mut self, row_count_max: usize) -> Result<Option<RecordBatch>> {
        if row_count_max == 0 {
            return Ok(None);
        }
        loop {
            if let Some(rows) = &mut self.rows {
                let (bytes, stop) = (self.ranges.target_bytes, self.ranges.job.stop());
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
            if self.reads_ahead {
                self.ranges.begin(self.next);
            }
        }
    }
}
