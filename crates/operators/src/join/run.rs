//! Joining a pair of spilled partitions, by any number of threads.
//!
//! The smaller one is built, with further bits of the hash: what does not fit is spilled again. Rows that no bits
//! divide, because they have one key, are joined by block nested loop: as many as fit, then all rows of the other side.
//!
//! Either goes through stages. A stage consists of turns, which threads take until there are none: blocks that are
//! divided, blocks that probe, rows of the table that are returned. When all turns have ended, one thread makes the
//! next stage.

use std::mem::{replace, take};
use std::sync::Arc;

use parking_lot::Mutex;

use super::layout::Block;
use super::pair::{Pair, Shared, is_skewed, spilled_pairs};
use super::part::PartOptions;
use super::piece::Piece;
use super::queue::{Matched, Queue};
use super::scan::{Scan, next_scan};
use super::spec::Side;
use super::spilled::{BlockReader, PendingBlock, Spilled};
use super::store::RowStore;
use super::table::Tables;
use crate::Result;
use crate::partitions::{PARTITION_BITS, PARTITIONS, Scatter, partition_of};

/// A pair that is being joined. Threads share it.
pub struct Run {
    pub build: Side,
    level: u32,
    has_keys: bool,
    is_large: bool,
    probe: Mutex<Spilled>,
    not_held: NotHeld,
    state: Mutex<State>,
}

/// What the table does not hold of the build side.
enum NotHeld {
    /// Spilled partitions of both sides, and how many rows they had together.
    Divided {
        stores: Box<[RowStore; 2]>,
        totals: [u64; 2],
    },
    /// Rows that come next.
    Queued {
        queue: Mutex<Queue>,
        matched: Matched,
    },
}

struct State {
    stage: Stage,
    /// Turns that have been taken and have not ended.
    taken: usize,
}

/// What there is to do.
pub enum Stage {
    /// Nothing yet.
    Begun,
    /// Blocks of the build side are divided.
    Dividing(BlockReader),
    /// So are those of the other side, if there is memory for both.
    Spreading(BlockReader),
    /// Then each thread joins partitions of its own, from the next one on.
    Joining(usize),
    /// Blocks of the other side probe.
    Probing {
        table: Table,
        reader: BlockReader,
    },
    /// Rows of the table that are returned apart from pairs, from a row of a part on.
    Scanning {
        table: Table,
        part: usize,
        row: usize,
    },
    /// A thread makes the next stage.
    Changing,
    Ended,
}

/// A table of the pair.
#[derive(Clone)]
pub struct Table {
    pub tables: Arc<Tables>,
    /// Whether there is no other one for the same rows that probe.
    pub is_last: bool,
}

/// Part of a stage.
pub enum Turn {
    /// A block of this side.
    Divide(Side, Option<PendingBlock>),
    /// With a block of this number.
    Probe(Table, usize, Option<PendingBlock>),
    /// A partition, once it is begun.
    Join(usize, Option<Box<Piece>>),
    Scan(Table, Scan),
    /// Makes the next stage.
    Change(Option<Stage>),
    Ended,
}

impl Run {
    pub fn new(pair: Pair, shared: &Shared) -> Self {
        shared.counts.note_pair(pair.level);
        let (build, level, has_keys) = (pair.build_side(), pair.level, pair.has_keys);
        let (is_whole, is_large) = (pair.is_whole(shared), pair.is_large(shared));
        let [built, probe] = pair.into_sides();
        let (not_held, stage) = if is_whole {
            let matters = shared.plan.marks(build.other());
            let not_held = NotHeld::Queued {
                matched: Matched::new(&probe, matters, shared),
                queue: Mutex::new(Queue::new(built, &shared.grant)),
            };
            (not_held, Stage::Begun)
        } else {
            let store = |side| {
                let layout = shared.plan.layout(side);
                RowStore::new(layout, &shared.environment, &shared.grant, level, false)
            };
            let not_held = NotHeld::Divided {
                stores: Box::new([build, build.other()].map(store)),
                totals: [built.rows, probe.rows],
            };
            (
                not_held,
                Stage::Dividing(BlockReader::new(built.batches, &shared.grant)),
            )
        };
        Self {
            build,
            level,
            has_keys,
            is_large,
            probe: Mutex::new(probe),
            not_held,
            state: Mutex::new(State { stage, taken: 0 }),
        }
    }

    /// Whether it may be larger than memory, so that no other pair should be joined at once.
    pub fn is_large(&self) -> bool {
        self.is_large
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.state.lock().stage, Stage::Ended)
    }

    /// A turn, which is to be given back by [`Self::give_back`]. `None`: there is none until others have ended, or no
    /// more.
    pub fn take(&self) -> Option<Turn> {
        let mut state = self.state.lock();
        let turn = match &mut state.stage {
            Stage::Ended => return None,
            Stage::Begun | Stage::Changing => None,
            Stage::Dividing(reader) => {
                let next = reader.next();
                next.map(|(_, block)| Turn::Divide(self.build, Some(block)))
            }
            Stage::Spreading(reader) => {
                let next = reader.next();
                next.map(|(_, block)| Turn::Divide(self.build.other(), Some(block)))
            }
            Stage::Joining(next) if *next < PARTITIONS => {
                *next += 1;
                Some(Turn::Join(*next - 1, None))
            }
            Stage::Joining(_) => None,
            Stage::Probing { table, reader } => {
                let next = reader.next();
                next.map(|(number, block)| Turn::Probe(table.clone(), number, Some(block)))
            }
            Stage::Scanning { table, part, row } => {
                next_scan(&table.tables, part, row).map(|scan| Turn::Scan(table.clone(), scan))
            }
        };
        let turn = match turn {
            Some(turn) => turn,
            None if state.taken > 0 => return None,
            None => Turn::Change(Some(replace(&mut state.stage, Stage::Changing))),
        };
        state.taken += 1;
        Some(turn)
    }

    /// Ends a turn, and begins the next stage if the turn has made it.
    pub fn give_back(&self, next: Option<Stage>) {
        let mut state = self.state.lock();
        state.taken -= 1;
        if let Some(stage) = next {
            state.stage = stage;
        }
    }

    /// Makes the next stage. After the last one, pairs that remain are in `pairs`.
    pub fn change(&self, stage: Stage, shared: &Shared, pairs: &mut Vec<Pair>) -> Result<Stage> {
        match (stage, &self.not_held) {
            (Stage::Probing { table, .. }, _) if shared.plan.marks(self.build) => {
                let (part, row) = (0, 0);
                Ok(Stage::Scanning { table, part, row })
            }
            (Stage::Dividing(_), NotHeld::Divided { stores, totals }) => {
                let [build, probe] = &**stores;
                if self.is_for_pieces(build, totals[0], shared) {
                    let batches = take(&mut self.probe.lock().batches);
                    return Ok(Stage::Spreading(BlockReader::new(batches, &shared.grant)));
                }
                probe.spill_all()?;
                let tables = Tables::build(build, shared.plan.marks(self.build), 1)?;
                Ok(self.probing(tables, true, shared))
            }
            (Stage::Spreading(_), NotHeld::Divided { stores, .. }) => {
                stores[1].finish()?;
                Ok(Stage::Joining(0))
            }
            (Stage::Begun, NotHeld::Queued { queue, .. }) => self.load(queue, shared),
            (
                Stage::Probing { table, .. } | Stage::Scanning { table, .. },
                NotHeld::Queued { queue, .. },
            ) if !table.is_last => {
                shared.counts.note_pass();
                // Its memory is for the next one.
                drop(table);
                self.load(queue, shared)
            }
            (_, NotHeld::Divided { stores, totals }) => {
                let [build, probe] = &**stores;
                probe.finish()?;
                let found = spilled_pairs([build, probe], self.build, *totals, &shared.plan);
                pairs.extend(found);
                Ok(Stage::Ended)
            }
            (_, NotHeld::Queued { .. }) => Ok(Stage::Ended),
        }
    }

    fn load(&self, queue: &Mutex<Queue>, shared: &Shared) -> Result<Stage> {
        let mut queue = queue.lock();
        let options = self.part_options(self.level, shared);
        let tables = queue.load(shared, self.build, options)?;
        Ok(self.probing(tables, queue.is_empty(), shared))
    }

    /// Those of tables of rows that were divided this often.
    fn part_options<'a>(&self, level: u32, shared: &'a Shared) -> PartOptions<'a> {
        PartOptions {
            layout: shared.plan.layout(self.build),
            stop: &shared.environment.stop,
            skip_bits: PARTITION_BITS * level,
            marks: shared.plan.marks(self.build),
            has_keys: self.has_keys,
            shelf: shared.environment.table_shelf.as_deref(),
        }
    }

    /// Whether all rows fit at once, divided, and no thread gets most of them: its partition would be larger than its
    /// caches, and the others would wait for it.
    fn is_for_pieces(&self, build: &RowStore, total: u64, shared: &Shared) -> bool {
        let Some(rows) = build.most_rows().filter(|&rows| !is_skewed(rows, total)) else {
            return false;
        };
        let table_bytes = self
            .part_options(self.level + 1, shared)
            .bytes(rows as usize);
        self.probe.lock().fits(&shared.grant, table_bytes)
    }

    /// Takes a partition of the rows that were divided in memory.
    pub fn take_piece(&self, idx: usize, shared: &Shared) -> Result<Option<Piece>> {
        let NotHeld::Divided { stores, .. } = &self.not_held else {
            return Ok(None);
        };
        let options = self.part_options(self.level + 1, shared);
        Piece::take([&stores[0], &stores[1]], idx, self.build, options, shared)
    }

    /// All rows that probe do so with this table.
    fn probing(&self, tables: Tables, is_last: bool, shared: &Shared) -> Stage {
        let mut probe = self.probe.lock();
        // Blocks that are not read again are freed as soon as they have probed.
        let batches = match is_last {
            true => take(&mut probe.batches),
            false => probe.batches.clone(),
        };
        let tables = Arc::new(tables);
        Stage::Probing {
            table: Table { tables, is_last },
            reader: BlockReader::new(batches, &shared.grant),
        }
    }

    /// Divides a block of a side by further bits of the hash.
    pub fn divide(
        &self,
        side: Side,
        block: &Block,
        shared: &Shared,
        scatter: &mut Scatter,
    ) -> Result<()> {
        let NotHeld::Divided { stores, .. } = &self.not_held else {
            return Ok(());
        };
        let layout = shared.plan.layout(side);
        let store = &stores[usize::from(side != self.build)];
        let rows = block.words.chunks_exact(layout.stride());
        let hashes: Vec<u64> = rows.map(|row| layout.hash(row)).collect();
        store.append(scatter, block, &hashes, None, false)
    }

    /// Spills the rows that probe whose partners are not in the table.
    pub fn spill_others(
        &self,
        tables: &Tables,
        block: &Block,
        hashes: &[u64],
        scatter: &mut Scatter,
    ) -> Result<()> {
        let NotHeld::Divided { stores, .. } = &self.not_held else {
            return Ok(());
        };
        if tables.is_complete() {
            return Ok(());
        }
        scatter.sort(hashes, |_, hash| {
            (!tables.is_resident(hash)).then(|| partition_of(hash, self.level))
        });
        stores[1].append_sorted(scatter, block)
    }

    /// Sets the marks of rows of a block that probes to what they were with the table before.
    pub fn recall(&self, number: usize, marks: &mut [bool]) {
        if let NotHeld::Queued { matched, .. } = &self.not_held {
            matched.recall(number, marks);
        }
    }

    /// Keeps the marks of rows of a block for the next table.
    pub fn keep(&self, number: usize, marks: &[bool]) {
        if let NotHeld::Queued { matched, .. } = &self.not_held {
            matched.keep(number, marks);
        }
    }
}
