//! A sorted run: batches in a file, written in order, and what is remembered of their keys.

use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;

use super::job::Job;
use super::order::Entry;
use super::survey::KeySurvey;
use crate::Result;
use crate::memory::Charge;
use crate::spill::{SpillFile, SpilledBatch};

/// The sizes of batches in runs, in bytes. Less wastes pages, and more gains nothing.
pub(super) const BATCH_BYTES_MIN: u64 = 4 << 10;
pub(super) const BATCH_BYTES_MAX: u64 = 512 << 10;
pub(super) const BATCH_ROWS_MAX: usize = 1 << 16;

/// At most this many keys of a batch are remembered, and one for at least this many bytes of rows.
const MARKS_PER_BATCH: u64 = 16;
const MARK_BYTES_MIN: u64 = 16 << 10;

/// Rows in order, in a file.
pub(super) struct Run {
    pub(super) batches: Vec<SpilledBatch>,
    /// The first row of every batch, some others, and the last row.
    pub(super) marks: Vec<Mark>,
    /// The bytes of a row's key in memory, on average.
    key_row_bytes: u64,
    survey: KeySurvey,
    pub(super) charge: Charge,
}

/// A row of a run whose key is remembered.
pub(super) struct Mark {
    pub(super) key: Box<[u8]>,
    pub(super) batch: usize,
    /// Its number in the batch. For the last mark, that of the row behind it.
    pub(super) row: usize,
    /// The memory of all rows of the run before it, with what is sorted.
    pub(super) bytes_before: u64,
}

impl Run {
    pub(super) fn key_row_bytes(&self) -> u64 {
        self.key_row_bytes
    }

    pub(super) fn survey(&self) -> &KeySurvey {
        &self.survey
    }

    /// The memory of the largest batch.
    pub(super) fn batch_bytes(&self) -> u64 {
        let bytes = self.batches.iter().map(SpilledBatch::raw_bytes);
        bytes.max().unwrap_or(0)
    }

    /// The memory of the largest batch with its keys.
    pub(super) fn loaded_bytes(&self) -> u64 {
        let bytes = |batch: &SpilledBatch| loaded_bytes(batch, self.key_row_bytes);
        self.batches.iter().map(bytes).max().unwrap_or(0)
    }

    /// The same run, whose marks the grant of another job counts.
    pub(super) fn charged_to(mut self, job: &Job) -> Self {
        let mut charge = Charge::adopt(&job.grant, 0);
        charge.grow(self.charge.bytes());
        self.charge = charge;
        self
    }
}

/// The memory of a batch, of a number for each of its keys, and of this many bytes of each key.
pub(super) fn loaded_bytes(batch: &SpilledBatch, key_row_bytes: u64) -> u64 {
    let row_bytes = size_of::<u64>() as u64 + key_row_bytes;
    batch.raw_bytes() + batch.row_count() as u64 * row_bytes
}

/// Writes a run.
pub(super) struct RunWriter {
    job: Arc<Job>,
    file: Arc<SpillFile>,
    run: Run,
    bytes: u64,
    last: Option<Mark>,
}

impl RunWriter {
    pub(super) fn new(job: &Arc<Job>, file: Arc<SpillFile>, key_row_bytes: u64) -> Self {
        Self {
            job: Arc::clone(job),
            file,
            run: Run {
                batches: Vec::new(),
                marks: Vec::new(),
                key_row_bytes,
                survey: KeySurvey::default(),
                charge: Charge::adopt(&job.grant, 0),
            },
            bytes: 0,
            last: None,
        }
    }

    /// Writes the next rows: at least one.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.job.stop().check()?;
        let spilled = self.file.write(batch)?;
        let row_count = batch.num_rows();
        let row_bytes = spilled.raw_bytes() / row_count as u64 + size_of::<Entry>() as u64;
        let mark_count = (row_count as u64 * row_bytes / MARK_BYTES_MIN).clamp(1, MARKS_PER_BATCH);
        let step = row_count.div_ceil(mark_count as usize);
        let marked = (0..row_count).step_by(step).chain([row_count - 1]);
        let marked = UInt32Array::from_iter_values(marked.map(|row| row as u32));
        let keys = self.job.encoder.keys(&take_record_batch(batch, &marked)?)?;
        let mark = |at: usize, row: usize| Mark {
            key: keys.row(at).data().into(),
            batch: self.run.batches.len(),
            row,
            bytes_before: self.bytes + row as u64 * row_bytes,
        };
        let last = keys.num_rows() - 1;
        let marks = (0..last).map(|at| mark(at, at * step));
        let bytes = marks.map(|mark| {
            let bytes = (size_of::<Mark>() + mark.key.len()) as u64;
            self.run.marks.push(mark);
            bytes
        });
        self.run.charge.grow(bytes.sum());
        self.last = Some(mark(last, row_count));
        self.bytes += row_count as u64 * row_bytes;
        self.run.batches.push(spilled);
        Ok(())
    }

    pub(super) fn finish(mut self, survey: KeySurvey) -> Run {
        self.run.marks.extend(self.last);
        self.run.survey = survey;
        self.run
    }
}
