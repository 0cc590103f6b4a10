//! The build side of a pair in tables of as many rows as fit, one after the other.

use std::sync::Arc;

use arrow_buffer::BooleanBuffer;
use parking_lot::Mutex;

use super::layout::Block;
use super::pair::Shared;
use super::part::PartOptions;
use super::spec::Side;
use super::spilled::{BlockReader, Spilled};
use super::table::Tables;
use crate::Result;
use crate::memory::{Charge, Grant};

/// What a block's marks take besides their bits.
const MARKS_BYTES: u64 = 64;

/// Rows of the build side that have not been in a table.
pub struct Queue {
    reader: BlockReader,
    /// A block that was read and did not fit.
    block: Option<Block>,
}

impl Queue {
    pub fn new(built: Spilled, grant: &Arc<Grant>) -> Self {
        Self {
            reader: BlockReader::new(built.batches, grant),
            block: None,
        }
    }

    /// Whether no rows remain.
    pub fn is_empty(&self) -> bool {
        self.block.is_none()
    }

    /// A table of as many rows as fit, and of the join's minimum and one block at least.
    pub fn load(&mut self, shared: &Shared, side: Side, options: PartOptions) -> Result<Tables> {
        let grant = &shared.grant;
        let stride = options.layout.stride();
        let mut chunks: Vec<Block> = Vec::new();
        let (mut rows, mut heap_bytes) = (0, 0);
        let mut charge = Charge::adopt(grant, 0);
        loop {
            shared.environment.stop.check()?;
            let block = match self.block.take() {
                Some(block) => Some(block),
                None => self.reader.read()?,
            };
            let Some(block) = block else {
                break;
            };
            let added = block.words.len() / stride;
            let needed = options.bytes(rows + added) - options.bytes(rows) + block.memory_bytes();
            if !charge.try_grow(needed) {
                if !chunks.is_empty() && charge.bytes() >= grant.minimum_bytes() {
                    self.block = Some(block);
                    break;
                }
                charge.grow(needed);
            }
            rows += added;
            heap_bytes += block.heap.capacity() as u64;
            chunks.push(block);
        }
        let mut part = options.build(chunks, charge);
        shared.environment.stop.check()?;
        part.keep(options.bytes(rows) + heap_bytes);
        Ok(Tables::single(shared.plan.layout(side), part, options))
    }
}

/// Which probe rows have had partners in the tables so far, by block. Threads with different blocks share it.
pub struct Matched {
    blocks: Vec<Mutex<Option<BooleanBuffer>>>,
    _charge: Charge,
}

impl Matched {
    /// For the blocks of the side that probes, whose partners matter or not.
    pub fn new(probe: &Spilled, matters: bool, shared: &Shared) -> Self {
        let blocks = if matters { probe.batches.len() } else { 0 };
        let bytes = match matters {
            true => probe.rows.div_ceil(8) + blocks as u64 * MARKS_BYTES,
            false => 0,
        };
        let mut charge = Charge::adopt(&shared.grant, 0);
        charge.grow(bytes);
        Self {
            blocks: (0..blocks).map(|_| Mutex::default()).collect(),
            _charge: charge,
        }
    }

    /// Sets the marks of a block's rows to what they were.
    pub fn recall(&self, number: usize, matched: &mut [bool]) {
        let Some(marks) = self.blocks.get(number) else {
            return;
        };
        if let Some(marks) = &*marks.lock() {
            let marks = matched.iter_mut().zip(marks);
            marks.for_each(|(matched, mark)| *matched = mark);
        }
    }

    /// Keeps the marks of a block's rows, those that it had included.
    pub fn keep(&self, number: usize, matched: &[bool]) {
        if let Some(marks) = self.blocks.get(number) {
            let kept = BooleanBuffer::collect_bool(matched.len(), |row| matched[row]);
            *marks.lock() = Some(kept);
        }
    }
}
