//! What a thread does for a pair that several threads join.

use std::mem::take;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::cursor::Cursor;
use super::layout::Block;
use super::pair::{Pair, Shared};
use super::run::{Run, Stage, Table, Turn};
use crate::Result;
use crate::partitions::Scatter;

/// A turn of a pair. If it is dropped before it has ended, the pair cannot be joined any more.
pub struct Share {
    run: Arc<Run>,
    turn: Turn,
    /// What the turn has come to: the next stage, and pairs that remain.
    stage: Option<Stage>,
    pairs: Vec<Pair>,
    has_ended: bool,
}

impl Share {
    pub fn new(run: &Arc<Run>, turn: Turn) -> Self {
        Self {
            run: Arc::clone(run),
            turn,
            stage: None,
            pairs: Vec::new(),
            has_ended: false,
        }
    }

    /// The next batch of output. `None`: the turn can end. The cursor and what sorts rows are the thread's.
    pub fn next(
        &mut self,
        shared: &Shared,
        cursor: &mut Cursor,
        scatter: &mut Scatter,
    ) -> Result<Option<RecordBatch>> {
        shared.environment.stop.check()?;
        let run = &self.run;
        match &mut self.turn {
            Turn::Divide(side, block) => {
                if let Some(block) = block.take() {
                    run.divide(*side, &block.wait()?, shared, scatter)?;
                }
                Ok(None)
            }
            Turn::Probe(table, number, block) => {
                if let Some(block) = block.take() {
                    begin(run, shared, table, &block.wait()?, cursor, scatter)?;
                    run.recall(*number, &mut cursor.matched);
                }
                let probing = shared.probing(&table.tables, run.build.other(), table.is_last);
                let batch = cursor.next(probing)?;
                if batch.is_none() && !table.is_last {
                    run.keep(*number, &cursor.matched);
                }
                Ok(batch)
            }
            Turn::Join(idx, piece) => {
                if piece.is_none() {
                    *piece = run.take_piece(*idx, shared)?.map(Box::new);
                }
                match piece {
                    Some(piece) => piece.next(shared, cursor),
                    None => Ok(None),
                }
            }
            Turn::Scan(table, scan) => {
                scan.next(shared.probing(&table.tables, run.build.other(), table.is_last))
            }
            Turn::Change(stage) => {
                if let Some(stage) = stage.take() {
                    self.stage = Some(run.change(stage, shared, &mut self.pairs)?);
                }
                Ok(None)
            }
            Turn::Ended => Ok(None),
        }
    }

    /// The pairs that remain, which others should know about before the turn ends.
    pub fn take_pairs(&mut self) -> Vec<Pair> {
        take(&mut self.pairs)
    }

    /// Ends the turn; the pair, for the next one.
    pub fn end(mut self) -> Arc<Run> {
        self.turn = Turn::Ended;
        self.run.give_back(self.stage.take());
        self.has_ended = true;
        Arc::clone(&self.run)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.has_ended {
            self.turn = Turn::Ended;
            self.run.give_back(Some(Stage::Ended));
        }
    }
}

/// Begins to probe with a block.
fn begin(
    run: &Run,
    shared: &Shared,
    table: &Table,
    block: &Block,
    cursor: &mut Cursor,
    scatter: &mut Scatter,
) -> Result<()> {
    let rows = &mut cursor.rows;
    rows.set_block(shared.plan.layout(run.build.other()), block)?;
    run.spill_others(&table.tables, block, rows.keys.hashes(), scatter)?;
    cursor.start(shared.probing(&table.tables, run.build.other(), table.is_last));
    Ok(())
}
