//! Batches of few rows, collected until they are worth a batch.

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;

use crate::Result;
use crate::batches::needed_bytes;

/// Batches with this many rows or bytes are not small.
const ROW_COUNT: usize = 1024;
pub(super) const BYTES: u64 = 16 << 10;

#[derive(Default)]
pub(super) struct SmallBatches {
    batches: Vec<RecordBatch>,
    row_count: usize,
    bytes: u64,
}

impl SmallBatches {
    /// A batch that is large enough, made of this one and those before, if they are.
    pub(super) fn add(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        self.row_count += batch.num_rows();
        self.bytes += needed_bytes(&batch);
        self.batches.push(batch);
        if self.row_count < ROW_COUNT && self.bytes < BYTES {
            return Ok(None);
        }
        self.take()
    }

    /// What there is, as one batch.
    pub(super) fn take(&mut self) -> Result<Option<RecordBatch>> {
        let batches = std::mem::take(self).batches;
        Ok(match &*batches {
            [] => None,
            [one] => Some(one.clone()),
            [first, ..] => Some(concat_batches(&first.schema(), &batches)?),
        })
    }
}
