//! Batches of runs, each in memory while ranges need it.

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

/// A batch of a run. Threads share it.
pub(super) struct Slot(Mutex<State>);

struct State {
    /// How many ranges need it, or will.
    needed_count: usize,
    /// `None`: no range needs it any more.
    spilled: Option<SpilledBatch>,
    pending: Option<PendingBatch>,
    block: Option<Arc<Block>>,
}

impl Slot {
    pub(super) fn new(spilled: SpilledBatch) -> Self {
        Self(Mutex::new(State {
            needed_count: 0,
            spilled: Some(spilled),
            pending: None,
            block: None,
        }))
    }

    /// Notes that one more range will need it.
    pub(super) fn need(&mut self) {
        self.0.get_mut().needed_count += 1;
    }

    /// Begins to read it.
    pub(super) fn begin(&self) {
        let mut state = self.0.lock();
        if state.block.is_none() && state.pending.is_none() {
            state.pending = state.spilled.as_ref().map(SpilledBatch::start_read);
        }
    }

    /// What the first thread to come makes of the batch. The others wait for it.
    pub(super) fn block(
        &self,
        make: impl FnOnce(RecordBatch) -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let mut state = self.0.lock();
        if let Some(block) = &state.block {
            return Ok(Arc::clone(block));
        }
        let pending = state.pending.take();
        let pending = pending.or_else(|| state.spilled.as_ref().map(SpilledBatch::start_read));
        let batch = pending.expect("a range needs it").wait()?;
        let block = Arc::new(make(batch)?);
        Ok(Arc::clone(state.block.insert(block)))
    }

    /// Notes that a range does not need it any more.
    pub(super) fn release(&self) {
        let mut state = self.0.lock();
        state.needed_count -= 1;
        if state.needed_count == 0 {
            state.block = None;
            state.spilled = None;
        }
    }
}
