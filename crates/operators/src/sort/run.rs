//! A sorted run: batches in a file, written in order, and what is remembered of their keys.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;

use super::job::Job;
use super::marks::{MarkedKey, Marks};
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
    sizes: Vec<BatchSize>,
    pub(super) marks: Marks,
    /// The bytes of a row's key in memory, on average.
    key_row_bytes: u64,
    /// The size that batches were to have.
    target_bytes: u64,
    survey: KeySurvey,
    charge: Charge,
}

/// The size of a batch.
struct BatchSize {
    /// Its memory.
    bytes: u64,
    row_count: usize,
}

impl Run {
    pub(super) fn key_row_bytes(&self) -> u64 {
        self.key_row_bytes
    }

    pub(super) fn survey(&self) -> &KeySurvey {
        &self.survey
    }

    pub(super) fn batch_count(&self) -> usize {
        self.sizes.len()
    }

    pub(super) fn row_count(&self) -> usize {
        self.sizes.iter().map(|size| size.row_count).sum()
    }

    /// How many rows come before each batch, and how many there are.
    pub(super) fn first_rows(&self) -> Vec<usize> {
        let ends = self.sizes.iter().scan(0, |end, size| {
            *end += size.row_count;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
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
        self.marks.batch(marks.start)..self.marks.batch(marks.end)
    }

    /// The size that batches were to have.
    pub(super) fn target_bytes(&self) -> u64 {
        self.target_bytes
    }

    /// What is charged for it.
    #[cfg(test)]
    pub(super) fn charged_bytes(&self) -> u64 {
        self.charge.bytes()
    }

    /// The same run, which the grant of another job counts.
    pub(super) fn charged_to(mut self, job: &Job) -> Self {
        let mut charge = Charge::adopt(&job.grant, 0);
        charge.grow(self.charge.bytes());
        self.charge = charge;
        self
    }
}

/// A batch of a run in its file, and the keys of its first and last rows.
pub(super) struct WrittenBatch {
    spilled: SpilledBatch,
    ends: arrow_row::Rows,
}

impl WrittenBatch {
    /// Writes rows that are in order: at least one.
    pub(super) fn write(job: &Job, file: &Arc<SpillFile>, batch: &RecordBatch) -> Result<Self> {
        job.stop().check()?;
        let ends = UInt32Array::from(vec![0, batch.num_rows() as u32 - 1]);
        Ok(Self {
            ends: job.encoder.keys(&take_record_batch(batch, &ends)?)?,
            spilled: file.write(batch)?,
        })
    }
}

/// Makes a run of batches.
pub(super) struct RunWriter {
    run: Run,
    bytes: u64,
    /// The bytes of the marks' keys.
    mark_bytes: u64,
    /// The key of the last row.
    last: Vec<u8>,
}

impl RunWriter {
    /// A run of batches of about `target_bytes`.
    pub(super) fn new(job: &Job, key_row_bytes: u64, target_bytes: u64) -> Self {
        Self {
            run: Run {
                batches: Vec::new(),
                sizes: Vec::new(),
                marks: Marks::default(),
                key_row_bytes,
                target_bytes,
                survey: KeySurvey::default(),
                charge: Charge::adopt(&job.grant, 0),
            },
            bytes: 0,
            mark_bytes: 0,
            last: Vec::new(),
        }
    }

    /// Adds the next rows.
    pub(super) fn add(&mut self, written: WrittenBatch) {
        let WrittenBatch { spilled, ends } = written;
        let [first, last] = [0, 1].map(|end| ends.row(end).data());
        let len = match self.run.batches.is_empty() {
            true => first.len().min(FIRST_KEY_BYTES),
            false => differing_len(&self.last, first),
        };
        let key_bytes = self.mark_bytes + len as u64;
        if key_bytes <= self.bytes / KEY_PARTS || self.run.marks.is_empty() {
            self.mark_bytes = key_bytes;
            self.mark(first, len);
        }
        self.last.clear();
        self.last.extend_from_slice(last);
        let size = BatchSize {
            bytes: spilled.raw_bytes(),
            row_count: spilled.row_count(),
        };
        let row_bytes = size.bytes / size.row_count.max(1) as u64 + size_of::<Entry>() as u64;
        self.bytes += size.row_count as u64 * row_bytes;
        let held_bytes = SpilledBatch::HELD_BYTES + size_of::<BatchSize>() as u64;
        self.run.charge.grow(held_bytes);
        self.run.sizes.push(size);
        self.run.batches.push(spilled);
    }

    fn mark(&mut self, key: &[u8], len: usize) {
        let key = MarkedKey {
            bytes: &key[..len],
            is_whole: len == key.len(),
        };
        self.run.charge.grow(Marks::mark_bytes(key));
        let batch = self.run.batches.len();
        self.run.marks.push(key, batch, self.bytes);
    }

    pub(super) fn finish(mut self, survey: KeySurvey) -> Run {
        let last = std::mem::take(&mut self.last);
        self.mark(&last, last.len());
        self.run.marks.end();
        self.run.batches.shrink_to_fit();
        self.run.sizes.shrink_to_fit();
        self.run.survey = survey;
        self.run
    }
}

/// How much of a key tells it from the one before it: all of it, if they are equal.
pub(super) fn differing_len(before: &[u8], key: &[u8]) -> usize {
    let equal = before.iter().zip(key).take_while(|(a, b)| a == b);
    key.len().min(equal.count() + 1)
}
