//! Blocks of rows on disk.

use std::collections::VecDeque;
use std::iter::Enumerate;
use std::mem::take;
use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, LargeBinaryArray, RecordBatch};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::layout::Block;
use super::packed::{pack, unpack};
use crate::Result;
use crate::memory::{Charge, Grant};
use crate::spill::{PendingBatch, SpilledBatch};

/// Blocks that are read ahead.
const AHEAD: usize = 2;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let field = |name| Field::new(name, DataType::LargeBinary, false);
    Arc::new(Schema::new(vec![field("words"), field("heap")]))
});

/// A block is a row of packed words and the heap.
pub fn block_schema() -> SchemaRef {
    Arc::clone(&SCHEMA)
}

/// The block, of rows of `stride` words, as a batch of one row. Its heap is taken.
pub fn to_batch(block: &mut Block, stride: usize) -> Result<RecordBatch> {
    let column = |bytes: Vec<u8>| -> Result<ArrayRef> {
        let offsets = OffsetBuffer::from_lengths([bytes.len()]);
        let column = LargeBinaryArray::try_new(offsets, Buffer::from_vec(bytes), None)?;
        Ok(Arc::new(column))
    };
    let columns = vec![
        column(pack(&block.words, stride))?,
        column(take(&mut block.heap))?,
    ];
    Ok(RecordBatch::try_new(block_schema(), columns)?)
}

fn to_block(batch: &RecordBatch) -> Block {
    let bytes = |column: usize| batch.column(column).as_binary::<i64>().value(0);
    Block {
        words: unpack(bytes(0)),
        heap: bytes(1).to_vec(),
    }
}

/// The rows of a partition on disk.
#[derive(Clone, Default)]
pub struct Spilled {
    pub batches: Vec<SpilledBatch>,
    pub rows: u64,
    pub bytes: u64,
}

impl Spilled {
    /// Whether there is memory for all rows now, and for `more_bytes`.
    pub fn fits(&self, grant: &Arc<Grant>, more_bytes: u64) -> bool {
        Charge::adopt(grant, 0).try_grow(self.bytes + more_bytes)
    }
}

/// A block that is being read, and charged until it has been.
pub struct PendingBlock {
    batch: PendingBatch,
    _charge: Charge,
}

impl PendingBlock {
    /// Waits until the block is there.
    pub fn wait(self) -> Result<Block> {
        Ok(to_block(&self.batch.wait()?))
    }
}

/// Reads blocks one by one, numbered, and some ahead.
pub struct BlockReader {
    batches: Enumerate<std::vec::IntoIter<SpilledBatch>>,
    ahead: VecDeque<(usize, PendingBlock)>,
    grant: Arc<Grant>,
}

impl BlockReader {
    pub fn new(batches: Vec<SpilledBatch>, grant: &Arc<Grant>) -> Self {
        Self {
            batches: batches.into_iter().enumerate(),
            ahead: VecDeque::new(),
            grant: Arc::clone(grant),
        }
    }

    /// The next block.
    pub fn read(&mut self) -> Result<Option<Block>> {
        let next = self.next();
        next.map(|(_, block)| block.wait()).transpose()
    }
}

impl Iterator for BlockReader {
    type Item = (usize, PendingBlock);

    fn next(&mut self) -> Option<Self::Item> {
        let missing = AHEAD + 1 - self.ahead.len();
        let more = self.batches.by_ref().take(missing);
        let more = more.map(|(number, batch)| {
            let mut charge = Charge::adopt(&self.grant, 0);
            charge.grow(batch.read_bytes());
            let block = PendingBlock {
                batch: batch.start_read(),
                _charge: charge,
            };
            (number, block)
        });
        self.ahead.extend(more);
        self.ahead.pop_front()
    }
}
