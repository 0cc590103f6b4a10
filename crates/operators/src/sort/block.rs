//! Batches of runs, each in memory while ranges need it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_row::Rows;
use parking_lot::Mutex;

use super::job::Job;
use super::survey::Selection;
use crate::Result;
use crate::spill::{PendingBatch, SpilledBatch};

/// A batch and the keys of its rows.
pub(super) struct Block {
    pub(super) batch: RecordBatch,
    pub(super) prefixes: Vec<u64>,
    /// `None`: the prefixes say it all.
    keys: Option<Rows>,
}

impl Block {
    pub(super) fn new(batch: RecordBatch, job: &Job, selection: &Selection) -> Result<Self> {
        let keys = job.encoder.keys(&batch)?;
        let prefixes = keys.iter().map(|key| selection.prefix(key.data()));
        Ok(Self {
            prefixes: prefixes.collect(),
            keys: (!selection.is_complete()).then_some(keys),
            batch,
        })
    }

    /// The key of a row. Empty: its prefix says it all.
    pub(super) fn key(&self, row: usize) -> &[u8] {
        let keys = self.keys.as_ref();
        keys.map_or(&[], |keys| keys.row(row).data())
    }
}

/// The batches of a run. Threads share them.
pub(super) struct Blocks(Mutex<State>);

struct State {
    /// `None`: it has a slot, or no range needs it any more.
    spilled: Vec<Option<SpilledBatch>>,
    /// The batches that ranges have begun with and not released.
    slots: HashMap<usize, Used>,
}

struct Used {
    slot: Arc<Slot>,
    /// How many ranges need it, or will.
    range_count: usize,
}

impl Blocks {
    pub(super) fn new(batches: Vec<SpilledBatch>) -> Self {
        Self(Mutex::new(State {
            spilled: batches.into_iter().map(Some).collect(),
            slots: HashMap::new(),
        }))
    }

    /// The place of a batch in memory, which this many ranges need. `None`: all of them have released it.
    pub(super) fn slot(
        &self,
        batch: usize,
        range_count: impl FnOnce() -> usize,
    ) -> Option<Arc<Slot>> {
        let mut state = self.0.lock();
        if let Some(used) = state.slots.get(&batch) {
            return Some(Arc::clone(&used.slot));
        }
        let slot = Arc::new(Slot::new(state.spilled[batch].take()?));
        let used = Used {
            slot: Arc::clone(&slot),
            range_count: range_count(),
        };
        state.slots.insert(batch, used);
        Some(slot)
    }

    /// Notes that a range does not need a batch any more.
    pub(super) fn release(&self, batch: usize) {
        let mut state = self.0.lock();
        let used = state.slots.get_mut(&batch);
        let is_last = used.is_some_and(|used| {
            used.range_count = used.range_count.saturating_sub(1);
            used.range_count == 0
        });
        if is_last {
            state.slots.remove(&batch);
        }
    }
}

/// A batch of a run.
pub(super) struct Slot {
    spilled: SpilledBatch,
    read: Mutex<Read>,
}

#[derive(Default)]
struct Read {
    pending: Option<PendingBatch>,
    block: Option<Arc<Block>>,
}

impl Slot {
    fn new(spilled: SpilledBatch) -> Self {
        Self {
            spilled,
            read: Mutex::default(),
        }
    }

    /// Begins to read it.
    pub(super) fn begin(&self) {
        let mut read = self.read.lock();
        if read.block.is_none() && read.pending.is_none() {
            read.pending = Some(self.spilled.start_read());
        }
    }

    /// What the first thread to come makes of the batch. The others wait for it.
    pub(super) fn block(
        &self,
        make: impl FnOnce(RecordBatch) -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let mut read = self.read.lock();
        if let Some(block) = &read.block {
            return Ok(Arc::clone(block));
        }
        let pending = read.pending.take();
        let pending = pending.unwrap_or_else(|| self.spilled.start_read());
        let block = Arc::new(make(pending.wait()?)?);
        Ok(Arc::clone(read.block.insert(block)))
    }
}
