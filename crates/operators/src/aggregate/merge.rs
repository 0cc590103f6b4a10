//! Merging the groups of partitions when all rows have arrived.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::job::Shared;
use super::output::Output;
use super::store::Store;
use super::table::{Table, Work};
use crate::Result;
use crate::batches::PIECE_ROWS;
use crate::memory::Charge;
use crate::partitions::PARTITION_BITS;
use crate::spill::SpilledBatch;

/// Partitions are divided this often. Then no bits of the hash remain.
const LEVELS_MAX: u32 = u64::BITS / PARTITION_BITS;

/// Partitions of a store that make output together.
pub struct Task {
    store: Arc<Store>,
    partitions: Vec<usize>,
}

/// What a task comes to.
pub enum Merged {
    Output(Output),
    /// The groups did not fit.
    Divided(Vec<Task>),
}

/// What remains to do for the groups of a store, the first task last.
pub fn tasks(store: &Arc<Store>) -> Vec<Task> {
    let bundles = store.bundles(PIECE_ROWS).into_iter();
    let task = |partitions| Task {
        store: Arc::clone(store),
        partitions,
    };
    bundles.map(task).collect()
}

struct GroupMerge<'a> {
    shared: &'a Arc<Shared>,
    store: Arc<Store>,
    table: Table,
    /// Has all groups once they did not fit into the table.
    divided: Option<Arc<Store>>,
    work: &'a mut Work,
}

impl Task {
    pub fn run(self, shared: &Arc<Shared>, work: &mut Work) -> Result<Merged> {
        let mut merge = GroupMerge {
            shared,
            table: shared.table()?,
            store: self.store,
            divided: None,
            work,
        };
        for idx in self.partitions {
            let mut partition = merge.store.take(idx);
            if let Some(table) = partition.table.take() {
                // Partitions with tables have tasks of their own.
                merge.table = table;
            }
            for chunk in partition.chunks {
                merge.add(&chunk.groups)?;
            }
            merge.add_spilled(partition.spilled)?;
        }
        match merge.divided {
            Some(store) => Ok(Merged::Divided(tasks(&store))),
            None if merge.table.len() == 0 => Ok(Merged::Divided(Vec::new())),
            None => Ok(Merged::Output(merge.table.take_output()?)),
        }
    }
}

impl GroupMerge<'_> {
    /// Adds batches, and reads the next one meanwhile.
    fn add_spilled(&mut self, spilled: Vec<SpilledBatch>) -> Result<()> {
        let grant = &self.shared.grant;
        let mut batches = spilled.into_iter().map(|batch| {
            let mut charge = Charge::adopt(grant, 0);
            charge.grow(batch.read_bytes());
            (batch.start_read(), charge)
        });
        let mut next = batches.next();
        while let Some((pending, charge)) = next {
            next = batches.next();
            let groups = pending.wait()?;
            self.add(&groups)?;
            drop((groups, charge));
        }
        Ok(())
    }

    fn add(&mut self, groups: &RecordBatch) -> Result<()> {
        self.shared.environment.stop.check()?;
        if let Some(store) = &self.divided {
            return store.append(groups, self.work);
        }
        let (rows, bytes) = (groups.num_rows(), self.shared.plan.bytes_of_groups(groups));
        while !self.table.has_room(rows, bytes) {
            if self.store.spill_some()? {
                continue;
            }
            if self.table.charged_bytes() >= self.shared.limits.minimum_bytes && self.can_divide() {
                return self.divide(groups);
            }
            self.table.make_room(rows, bytes);
            break;
        }
        self.table.add_groups(groups, self.work)
    }

    fn can_divide(&self) -> bool {
        self.store.level() + 1 < LEVELS_MAX && self.table.len() > 1
    }

    /// Gives all groups to a store that divides them by further bits of the hash.
    fn divide(&mut self, groups: &RecordBatch) -> Result<()> {
        let level = self.store.level() + 1;
        self.shared.counts.note_level(level);
        let store = Store::new(self.shared, level, Some(Arc::clone(&self.store)));
        let (held, _charge) = self.table.take_groups()?;
        store.append_all(&held, self.work)?;
        store.append(groups, self.work)?;
        self.divided = Some(store);
        Ok(())
    }
}
