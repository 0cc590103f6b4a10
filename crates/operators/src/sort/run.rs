//! A sorted run: batches in a file, written in order, and what is remembered of their keys.

use std::ops::Range;
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

/// The keys of marks take at most one byte for this many bytes of rows. Above that, batches are not marked.
const KEY_PARTS: u64 = 64;
/// The bytes of the first mark's key.
const FIRST_KEY_BYTES: usize = 64;

/// Rows in order, in a file.
pub(super) struct Run {
    pub(super) batches: Vec<SpilledBatch>,
    /// The sizes of the batches.
    pub(super) sizes: Vec<BatchSize>,
    /// The first row, the first rows of most batches, and the last row.
    pub(super) marks: Vec<Mark>,
    /// The bytes of a row's key in memory, on average.
    key_row_bytes: u64,
    /// The size that batches were to have.
    target_bytes: u64,
    survey: KeySurvey,
    charge: Charge,
}

pub(super) struct BatchSize {
    /// Its memory.
    bytes: u64,
    pub(super) row_count: usize,
}

/// A row of a run, and what tells it from the rows before.
///
/// Keys of rows before it are less than `key`, and its own is not, except where its key is theirs: then `key` is that.
pub(super) struct Mark {
    /// Its key, or the beginning of it. No row's key is the beginning of another one.
    pub(super) key: Box<[u8]>,
    pub(super) is_whole: bool,
    /// The batch that it is the first row of. For the last mark, their number.
    pub(super) batch: usize,
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

    pub(super) fn row_count(&self) -> usize {
        self.sizes.iter().map(|size| size.row_count).sum()
    }

    /// The memory of all batches.
    pub(super) fn bytes(&self) -> u64 {
        self.sizes.iter().map(|size| size.bytes).sum()
    }

    /// The memory of the largest batch.
    pub(super) fn batch_bytes(&self) -> u64 {
        let bytes = self.sizes.iter().map(|size| size.bytes);
        bytes.max().unwrap_or(0)
    }

    /// The memory of the largest batch, as [`Run::loaded_bytes`] counts it.
    pub(super) fn loaded_bytes_max(&self, keeps_keys: bool) -> u64 {
        let batches = 0..self.sizes.len();
        let bytes = batches.map(|batch| self.loaded_bytes(batch..batch + 1, keeps_keys));
        bytes.max().unwrap_or(0)
    }

    /// The memory of batches, of a number for each of their keys, and of the keys if they are kept.
    pub(super) fn loaded_bytes(&self, batches: Range<usize>, keeps_keys: bool) -> u64 {
        let key_bytes = if keeps_keys { self.key_row_bytes } else { 0 };
        let row_bytes = size_of::<u64>() as u64 + key_bytes;
        let sizes = self.sizes[batches].iter();
        let bytes = sizes.map(|size| size.bytes + size.row_count as u64 * row_bytes);
        bytes.sum()
    }

    /// The batches with the rows between these marks.
    pub(super) fn batches_between(&self, marks: Range<usize>) -> Range<usize> {
        self.marks[marks.start].batch..self.marks[marks.end].batch
    }

    /// The size that batches were to have.
    pub(super) fn target_bytes(&self) -> u64 {
        self.target_bytes
    }

    /// What its marks are charged.
    #[cfg(test)]
    pub(super) fn charged_bytes(&self) -> u64 {
        self.charge.bytes()
    }

    /// The same run, whose marks the grant of another job counts.
    pub(super) fn charged_to(mut self, job: &Job) -> Self {
        let mut charge = Charge::adopt(&job.grant, 0);
        charge.grow(self.charge.bytes());
        self.charge = charge;
        self
    }
}

/// Writes a run.
pub(super) struct RunWriter {
    job: Arc<Job>,
    file: Arc<SpillFile>,
    run: Run,
    bytes: u64,
    /// The bytes of the marks' keys.
    mark_bytes: u64,
    last: Option<Mark>,
}

impl RunWriter {
    /// A run of batches of about `target_bytes`.
    pub(super) fn new(
        job: &Arc<Job>,
        file: Arc<SpillFile>,
        key_row_bytes: u64,
        target_bytes: u64,
    ) -> Self {
        Self {
            job: Arc::clone(job),
            file,
            run: Run {
                batches: Vec::new(),
                sizes: Vec::new(),
                marks: Vec::new(),
                key_row_bytes,
                target_bytes,
                survey: KeySurvey::default(),
                charge: Charge::adopt(&job.grant, 0),
            },
            bytes: 0,
            mark_bytes: 0,
            last: None,
        }
    }

    /// Writes the next rows: at least one.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.job.stop().check()?;
        let spilled = self.file.write(batch)?;
        let row_count = batch.num_rows();
        let row_bytes = spilled.raw_bytes() / row_count as u64 + size_of::<Entry>() as u64;
        let ends = UInt32Array::from(vec![0, row_count as u32 - 1]);
        let keys = self.job.encoder.keys(&take_record_batch(batch, &ends)?)?;
        let [first, last] = [0, 1].map(|end| keys.row(end).data());
        let len = match &self.last {
            Some(before) => differing_len(&before.key, first),
            None => first.len().min(FIRST_KEY_BYTES),
        };
        let mark = |key: &[u8], len: usize, batch: usize, bytes_before: u64| Mark {
            key: key[..len].into(),
            is_whole: len == key.len(),
            batch,
            bytes_before,
        };
        let number = self.run.batches.len();
        let key_bytes = self.mark_bytes + len as u64;
        if key_bytes <= self.bytes / KEY_PARTS || self.run.marks.is_empty() {
            self.mark_bytes = key_bytes;
            self.keep(mark(first, len, number, self.bytes));
        }
        self.bytes += row_count as u64 * row_bytes;
        self.last = Some(mark(last, last.len(), number + 1, self.bytes));
        self.run.sizes.push(BatchSize {
            bytes: spilled.raw_bytes(),
            row_count,
        });
        self.run.batches.push(spilled);
        Ok(())
    }

    fn keep(&mut self, mark: Mark) {
        let bytes = size_of::<Mark>() + mark.key.len();
        self.run.charge.grow(bytes as u64);
        self.run.marks.push(mark);
    }

    pub(super) fn finish(mut self, survey: KeySurvey) -> Run {
        if let Some(last) = self.last.take() {
            self.keep(last);
        }
        self.run.survey = survey;
        self.run
    }
}

/// How much of a key tells it from the one before it: all of it, if they are equal.
pub(super) fn differing_len(before: &[u8], key: &[u8]) -> usize {
    let equal = before.iter().zip(key).take_while(|(a, b)| a == b);
    key.len().min(equal.count() + 1)
}
