//! Blocks of rows on disk.

use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{LargeBinaryArray, LargeListArray, RecordBatch, UInt64Array};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::layout::Block;
use crate::Result;
use crate::spill::{PendingBatch, SpilledBatch};

static WORD: LazyLock<FieldRef> =
    LazyLock::new(|| Arc::new(Field::new("word", DataType::UInt64, false)));

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let words = Field::new("words", DataType::LargeList(Arc::clone(&WORD)), false);
    let heap = Field::new("heap", DataType::LargeBinary, false);
    Arc::new(Schema::new(vec![words, heap]))
});

/// A block is a row of a list of words and a string of bytes.
pub fn block_schema() -> SchemaRef {
    Arc::clone(&SCHEMA)
}

/// The block as a batch of one row.
pub fn to_batch(block: Block) -> Result<RecordBatch> {
    let words = UInt64Array::from(block.words);
    let offsets = OffsetBuffer::from_lengths([words.len()]);
    let words = LargeListArray::try_new(Arc::clone(&WORD), offsets, Arc::new(words), None)?;
    let offsets = OffsetBuffer::from_lengths([block.heap.len()]);
    let heap = LargeBinaryArray::try_new(offsets, Buffer::from_vec(block.heap), None)?;
    let columns = vec![Arc::new(words) as _, Arc::new(heap) as _];
    Ok(RecordBatch::try_new(block_schema(), columns)?)
}

fn to_block(batch: &RecordBatch) -> Block {
    let words = batch.column(0).as_list::<i64>().value(0);
    Block {
        words: words.as_primitive::<UInt64Type>().values().to_vec(),
        heap: batch.column(1).as_binary::<i64>().value(0).to_vec(),
    }
}

/// The rows of a partition on disk.
#[derive(Clone, Default)]
pub struct Spilled {
    pub batches: Vec<SpilledBatch>,
    pub rows: u64,
    pub bytes: u64,
}

/// Reads blocks one by one, the next one ahead.
pub struct BlockReader {
    batches: std::vec::IntoIter<SpilledBatch>,
    ahead: Option<PendingBatch>,
}

impl BlockReader {
    pub fn new(spilled: Spilled) -> Self {
        let mut batches = spilled.batches.into_iter();
        let ahead = batches.next().map(|batch| batch.start_read());
        Self { batches, ahead }
    }

    /// The next block.
    pub fn read(&mut self) -> Result<Option<Block>> {
        let Some(pending) = self.ahead.take() else {
            return Ok(None);
        };
        self.ahead = self.batches.next().map(|batch| batch.start_read());
        Ok(Some(to_block(&pending.wait()?)))
    }
}
