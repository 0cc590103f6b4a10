//! Several runs as one, with one batch of each in memory.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_row::Rows;
use arrow_select::interleave::interleave_record_batch;

use super::job::Job;
use super::run::Run;
use super::survey::{KeySurvey, Selection};
use super::tournament::Tournament;
use crate::Result;
use crate::batches::without_unused_values;
use crate::spill::{PendingBatch, write_bytes};

/// No merge reads more runs than this at once: opening it would take longer than a pass saves.
const FAN_IN_MAX: usize = 1024;
/// How many batches are read ahead.
const AHEAD_COUNT_MAX: u64 = 8;

/// Memory for merging the first of several runs, as many as the broker lends memory for now, and at least two. It is
/// held until the merge takes it over, so that sorts that share a broker do not count the same bytes twice.
pub(super) struct Reserved {
    job: Arc<Job>,
    run_count: usize,
    bytes: u64,
}

impl Reserved {
    pub(super) fn new(job: &Arc<Job>, runs: &[Run]) -> Self {
        let mut bytes = work_bytes(runs);
        job.grant.grow(bytes);
        let mut run_count = 0;
        for run in runs.iter().take(FAN_IN_MAX) {
            let more = run.cursor_bytes();
            if run_count < 2 {
                job.grant.grow(more);
            } else if !job.grant.try_grow(more) {
                break;
            }
            bytes += more;
            run_count += 1;
        }
        Self {
            job: Arc::clone(job),
            run_count,
            bytes,
        }
    }

    pub(super) fn run_count(&self) -> usize {
        self.run_count
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.job.grant.shrink(self.bytes);
    }
}

/// The memory that a merge needs besides its cursors: a batch that comes out and is perhaps written, batches whose
/// rows are in it, and the bytes of a batch that is being decoded.
fn work_bytes(runs: &[Run]) -> u64 {
    let batch_bytes = batch_bytes(runs);
    3 * batch_bytes + write_bytes(batch_bytes)
}

fn batch_bytes(runs: &[Run]) -> u64 {
    runs.iter().map(Run::batch_bytes).max().unwrap_or(0)
}

/// Several runs as one. The run with the lower number comes first where keys are equal.
pub(super) struct Merge {
    job: Arc<Job>,
    cursors: Vec<RunCursor>,
    tournament: Tournament,
    survey: KeySurvey,
    selection: Selection,
    batch_bytes: u64,
    /// How many batches are read ahead, and may be.
    ahead_count: u64,
    ahead_count_max: u64,
    /// Batches of which the next batch that comes out has rows, and where the rows are.
    sources: Vec<RecordBatch>,
    places: Vec<(usize, usize)>,
    charged_bytes: u64,
}

/// The place in one run.
struct RunCursor {
    run: Run,
    pending: Option<PendingBatch>,
    /// `None`: the run has ended.
    keys: Option<Rows>,
    batch: RecordBatch,
    /// The number of `batch` among the merge's sources.
    source: usize,
    row: usize,
    /// The size of a row of the batch, on average.
    row_bytes: u64,
    prefix: u64,
    charged_bytes: u64,
}

impl Merge {
    /// Begins to merge runs, with the memory that was reserved for them.
    pub(super) fn open(mut reserved: Reserved, runs: Vec<Run>) -> Result<Self> {
        let job = Arc::clone(&reserved.job);
        let mut survey = KeySurvey::default();
        runs.iter().for_each(|run| survey.add_all(run.survey()));
        let mut merge = Self {
            job: Arc::clone(&job),
            cursors: Vec::with_capacity(runs.len()),
            tournament: Tournament::new(0, |_, _| false),
            selection: survey.selection(),
            survey,
            batch_bytes: batch_bytes(&runs),
            ahead_count: 0,
            ahead_count_max: 0,
            sources: Vec::new(),
            places: Vec::new(),
            charged_bytes: std::mem::take(&mut reserved.bytes),
        };
        let needed = work_bytes(&runs) + runs.iter().map(Run::cursor_bytes).sum::<u64>();
        merge.charge(needed.saturating_sub(merge.charged_bytes));
        for run in runs {
            let charged_bytes = run.cursor_bytes();
            merge.cursors.push(RunCursor {
                pending: run.batches.front().map(|batch| batch.start_read()),
                run,
                keys: None,
                batch: RecordBatch::new_empty(Arc::clone(&job.schema)),
                source: 0,
                row: 0,
                row_bytes: 0,
                prefix: 0,
                charged_bytes,
            });
        }
        merge.reserve_ahead();
        (0..merge.cursors.len()).try_for_each(|cursor| merge.load(cursor))?;
        merge.forget_sources();
        merge.tournament = Tournament::new(merge.cursors.len(), |a, b| {
            comes_first(&merge.cursors, a, b, merge.selection.is_complete())
        });
        Ok(merge)
    }

    pub(super) fn survey(&self) -> &KeySurvey {
        &self.survey
    }

    fn charge(&mut self, bytes: u64) {
        self.job.grant.grow(bytes);
        self.charged_bytes += bytes;
    }

    /// Takes memory for reading ahead as far as the broker lends it.
    fn reserve_ahead(&mut self) {
        let bytes = self.cursors.iter().map(|cursor| cursor.run.batch_bytes());
        let bytes = bytes.max().unwrap_or(0);
        while self.ahead_count_max < AHEAD_COUNT_MAX && self.job.grant.try_grow(bytes) {
            self.charged_bytes += bytes;
            self.ahead_count_max += 1;
        }
    }

    /// The next rows, at most as many. `None`: all runs have ended, or no row is wanted.
    pub(super) fn next_batch(&mut self, row_count_max: usize) -> Result<Option<RecordBatch>> {
        self.job.stop().check()?;
        if row_count_max == 0 {
            return Ok(None);
        }
        let (mut bytes, mut finished_bytes) = (0, 0);
        while self.places.len() < row_count_max && bytes.max(finished_bytes) <= self.batch_bytes {
            let winner = self.tournament.winner();
            let cursor = &mut self.cursors[winner];
            let Some(keys) = &cursor.keys else {
                break;
            };
            self.places.push((cursor.source, cursor.row));
            bytes += cursor.row_bytes;
            cursor.row += 1;
            if cursor.row < keys.num_rows() {
                cursor.prefix = self.selection.prefix(keys.row(cursor.row).data());
            } else {
                finished_bytes += cursor.charged_bytes;
                self.load(winner)?;
            }
            let cursors = &self.cursors;
            let is_complete = self.selection.is_complete();
            self.tournament
                .replay(|a, b| comes_first(cursors, a, b, is_complete));
        }
        if self.places.is_empty() {
            return Ok(None);
        }
        let sources: Vec<&RecordBatch> = self.sources.iter().collect();
        let batch = interleave_record_batch(&sources, &self.places)?;
        self.forget_sources();
        Ok(Some(without_unused_values(&batch)?))
    }

    /// Keeps the batches at which cursors are, and no others.
    fn forget_sources(&mut self) {
        self.places.clear();
        self.sources.clear();
        for (source, cursor) in self.cursors.iter_mut().enumerate() {
            cursor.source = source;
            self.sources.push(cursor.batch.clone());
        }
    }

    /// Moves a cursor to the next batch of its run.
    fn load(&mut self, cursor: usize) -> Result<()> {
        self.job.stop().check()?;
        let cursor = &mut self.cursors[cursor];
        let Some(spilled) = cursor.run.batches.pop_front() else {
            cursor.keys = None;
            cursor.batch = RecordBatch::new_empty(Arc::clone(&self.job.schema));
            return Ok(());
        };
        let pending = cursor.pending.take();
        self.ahead_count = self
            .ahead_count
            .saturating_sub(u64::from(pending.is_some()));
        let batch = pending.unwrap_or_else(|| spilled.start_read()).wait()?;
        let keys = self.job.encoder.keys(&batch)?;
        let used_bytes = spilled.raw_bytes() + keys.size() as u64;
        let missing = used_bytes.saturating_sub(cursor.charged_bytes);
        cursor.charged_bytes += missing;
        self.job.grant.grow(missing);
        self.charged_bytes += missing;
        cursor.prefix = self.selection.prefix(keys.row(0).data());
        cursor.row = 0;
        cursor.row_bytes = spilled.raw_bytes() / batch.num_rows() as u64;
        cursor.keys = Some(keys);
        cursor.batch = batch;
        cursor.source = self.sources.len();
        self.sources.push(cursor.batch.clone());
        self.read_ahead();
        Ok(())
    }

    /// Begins to read the batches that are needed next: those of the runs whose batches in memory end first.
    fn read_ahead(&mut self) {
        while self.ahead_count < self.ahead_count_max {
            let waiting = self
                .cursors
                .iter_mut()
                .filter(|cursor| cursor.may_read_ahead());
            let first = waiting.min_by(|a, b| a.last_key().cmp(&b.last_key()));
            let Some(cursor) = first else {
                return;
            };
            cursor.pending = cursor.run.batches.front().map(|batch| batch.start_read());
            self.ahead_count += 1;
        }
    }
}

impl Drop for Merge {
    fn drop(&mut self) {
        self.job.grant.shrink(self.charged_bytes);
    }
}

impl RunCursor {
    fn may_read_ahead(&self) -> bool {
        self.keys.is_some() && self.pending.is_none() && !self.run.batches.is_empty()
    }

    fn last_key(&self) -> Option<&[u8]> {
        let keys = self.keys.as_ref()?;
        Some(keys.row(keys.num_rows() - 1).data())
    }
}

/// Whether the row of cursor `a` comes before that of cursor `b`. Runs that have ended come last.
fn comes_first(cursors: &[RunCursor], a: usize, b: usize, is_complete: bool) -> bool {
    let (first, second) = (&cursors[a], &cursors[b]);
    let (Some(keys), Some(others)) = (&first.keys, &second.keys) else {
        return first.keys.is_some() || second.keys.is_none() && a < b;
    };
    let prefixes = first.prefix.cmp(&second.prefix);
    let key = || match is_complete {
        true => Ordering::Equal,
        false => keys.row(first.row).cmp(&others.row(second.row)),
    };
    prefixes.then_with(key).then(a.cmp(&b)).is_lt()
}
