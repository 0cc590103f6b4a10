//! A sorted run: batches in a file, written in order and read back in order.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::job::Job;
use super::survey::KeySurvey;
use crate::Result;
use crate::spill::{SpillFile, SpilledBatch};

/// The sizes of batches in runs, in bytes. Less wastes pages, and more gains nothing.
pub(super) const BATCH_BYTES_MIN: u64 = 4 << 10;
pub(super) const BATCH_BYTES_MAX: u64 = 512 << 10;
pub(super) const BATCH_ROWS_MAX: usize = 1 << 16;

/// Rows in order, in a file.
pub(super) struct Run {
    pub(super) batches: VecDeque<SpilledBatch>,
    /// The bytes of a row's key in memory, on average.
    key_row_bytes: u64,
    survey: KeySurvey,
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

    /// The memory of a batch of it with its keys, whether or not the batch was compressed.
    pub(super) fn cursor_bytes(&self) -> u64 {
        let bytes = |batch: &SpilledBatch| {
            batch.raw_bytes() + batch.row_count() as u64 * self.key_row_bytes
        };
        self.batches.iter().map(bytes).max().unwrap_or(0)
    }
}

/// Writes a run.
pub(super) struct RunWriter {
    job: Arc<Job>,
    file: Arc<SpillFile>,
    run: Run,
}

impl RunWriter {
    pub(super) fn new(job: &Arc<Job>, file: Arc<SpillFile>, key_row_bytes: u64) -> Self {
        Self {
            job: Arc::clone(job),
            file,
            run: Run {
                batches: VecDeque::new(),
                key_row_bytes,
                survey: KeySurvey::default(),
            },
        }
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.job.stop().check()?;
        self.run.batches.push_back(self.file.write(batch)?);
        Ok(())
    }

    pub(super) fn finish(mut self, survey: KeySurvey) -> Run {
        self.run.survey = survey;
        self.run
    }
}
