//! Batches of few rows, collected until they are worth a batch.

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;

use crate::Result;
use crate::batches::{held_bytes, needed_bytes, own};

/// Batches with this many rows or bytes are not small.
const ROW_COUNT: usize = 1024;
pub(super) const BYTES: u64 = 16 << 10;
/// Copies of few rows may have buffers several times as large as they need.
const HELD_BYTES: u64 = 4 * BYTES;

#[derive(Default)]
pub(super) struct SmallBatches {
    batches: Vec<RecordBatch>,
    row_count: usize,
    bytes: u64,
    held_bytes: u64,
}

impl SmallBatches {
    /// A batch that is large enough, made of this one and those before, if they are.
    pub(super) fn add(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        // A slice keeps all of what it is a slice of.
        let batch = own(batch)?;
        self.row_count += batch.num_rows();
        self.bytes += needed_bytes(&batch);
        self.held_bytes += held_bytes(&batch);
        self.batches.push(batch);
        if self.row_count < ROW_COUNT && self.bytes < BYTES && self.held_bytes < HELD_BYTES {
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
