//! A partition of a pair whose rows were divided in memory: one thread joins it, in its caches.

use std::collections::VecDeque;

use arrow_array::RecordBatch;

use super::cursor::Cursor;
use super::layout::Block;
use super::pair::Shared;
use super::part::PartOptions;
use super::scan::{Scan, next_scan};
use super::spec::Side;
use super::spilled::BlockReader;
use super::store::RowStore;
use super::table::{Tables, part_of};
use crate::Result;
use crate::memory::Charge;

/// A partition that a thread joins.
pub struct Piece {
    build: Side,
    tables: Tables,
    /// Rows that probe, and what is lent for them.
    blocks: VecDeque<Block>,
    charge: Charge,
    /// Those that were spilled after all.
    spilled: BlockReader,
    is_probing: bool,
    scan: Option<Scan>,
    /// The part and row of the table that are returned next, apart from pairs.
    next: (usize, usize),
}

impl Piece {
    /// The rows of partition `idx`, of the side that is built and of the other one. None if there are none.
    pub fn take(
        [built, probing]: [&RowStore; 2],
        idx: usize,
        build: Side,
        options: PartOptions,
        shared: &Shared,
    ) -> Result<Option<Self>> {
        let spilled = probing.take_spilled(idx).unwrap_or_default();
        let held = probing.take_resident(idx).unwrap_or_default();
        let charge = Charge::adopt(&shared.grant, held.held_bytes);
        let rows = built.take_resident(idx).expect("rows that are in memory");
        if rows.rows + held.rows + spilled.rows == 0 {
            shared.grant.shrink(rows.held_bytes);
            return Ok(None);
        }
        shared.counts.note_piece();
        let mut lent = charge.empty();
        lent.grow(options.bytes(rows.rows as usize));
        let part = part_of(rows, lent, &options, &shared.grant);
        shared.environment.stop.check()?;
        Ok(Some(Self {
            build,
            tables: Tables::single(shared.plan.layout(build), part, options),
            blocks: held.chunks.into(),
            charge,
            spilled: BlockReader::new(spilled.batches, &shared.grant),
            is_probing: false,
            scan: None,
            next: (0, 0),
        }))
    }

    /// The next batch of output.
    pub fn next(&mut self, shared: &Shared, cursor: &mut Cursor) -> Result<Option<RecordBatch>> {
        let side = self.build.other();
        loop {
            shared.environment.stop.check()?;
            if self.is_probing {
                let batch = cursor.next(shared.probing(&self.tables, side, true))?;
                if batch.is_some() {
                    return Ok(batch);
                }
                self.is_probing = false;
            }
            if let Some(block) = self.next_block()? {
                cursor.rows.set_block(shared.plan.layout(side), &block)?;
                cursor.start(shared.probing(&self.tables, side, true));
                self.is_probing = true;
                continue;
            }
            if !shared.plan.marks(self.build) {
                return Ok(None);
            }
            let mut scan = self.scan.take();
            if scan.is_none() {
                scan = next_scan(&self.tables, &mut self.next.0, &mut self.next.1);
            }
            let Some(mut scan) = scan else {
                return Ok(None);
            };
            let batch = scan.next(shared.probing(&self.tables, side, true))?;
            if batch.is_some() {
                self.scan = Some(scan);
                return Ok(batch);
            }
        }
    }

    fn next_block(&mut self) -> Result<Option<Block>> {
        let Some(block) = self.blocks.pop_front() else {
            return self.spilled.read();
        };
        let bytes = self.charge.bytes().saturating_sub(block.memory_bytes());
        self.charge.shrink_to(bytes);
        Ok(Some(block))
    }
}
