//! Groups in memory, found by their keys.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::groups::{Directory, GROUPS_MAX, GroupKeys};
use super::mixed::Texts;
use super::output::Output;
use super::plan::Plan;
use super::spec::Accumulate;
use crate::keys::Keys;
use crate::memory::{Charge, Grant};
use crate::partitions::Scatter;
use crate::{Result, TableShelf};

/// Space for the rows in work, reused from batch to batch.
#[derive(Default)]
pub struct Work {
    pub keys: Keys,
    groups: Vec<usize>,
    pub hashes: Vec<u64>,
    pub scatter: Scatter,
}

impl Work {
    /// How many of the rows that were added last belong to the first groups.
    pub fn rows_before(&self, group: usize) -> usize {
        self.groups.iter().filter(|&&found| found < group).count()
    }

    pub fn bytes(&self) -> u64 {
        let words = self.groups.capacity() + self.hashes.capacity();
        (self.keys.memory_bytes() + self.scatter.memory_bytes() + 8 * words) as u64
    }
}

/// Groups with what the aggregates know about them.
pub struct Table {
    plan: Arc<Plan>,
    directory: Directory,
    stored: GroupKeys,
    accumulators: Vec<Box<dyn Accumulate>>,
    /// The rows that were added since the table was empty.
    rows: u64,
    /// Once the table has more groups, most of what it holds takes twice the memory.
    comfortable_groups: usize,
    charge: Charge,
    /// Where keys and their directory are, and how many groups were last put there.
    shelf: Option<Arc<dyn TableShelf>>,
    placed_groups: usize,
}

impl Table {
    pub fn new(
        plan: &Arc<Plan>,
        grant: &Arc<Grant>,
        shelf: Option<&Arc<dyn TableShelf>>,
    ) -> Result<Self> {
        Ok(Self {
            shelf: shelf.cloned(),
            placed_groups: 0,
            plan: Arc::clone(plan),
            directory: Directory::default(),
            stored: GroupKeys::new(plan.encoder.shape()),
            accumulators: plan.accumulators()?,
            rows: 0,
            comfortable_groups: 0,
            charge: Charge::adopt(grant, 0),
        })
    }

    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// The rows that were added since the table was empty.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// What the grant lends for it.
    pub fn charged_bytes(&self) -> u64 {
        self.charge.bytes()
    }

    fn bytes(&self) -> u64 {
        let accumulators = self.accumulators.iter().map(|one| one.bytes());
        self.directory.bytes() + self.stored.bytes() + accumulators.sum::<u64>()
    }

    /// Whether there is memory for rows that come to this many bytes, even if each is a group of its own. Nothing has
    /// to happen with that memory.
    pub fn has_room(&mut self, rows: usize, bytes: u64) -> bool {
        let groups = self.len() + rows;
        if groups > GROUPS_MAX {
            return false;
        }
        let needed = self.needed_bytes(groups, bytes);
        needed <= self.charge.bytes() || self.charge.try_grow(needed - self.charge.bytes())
    }

    /// As [`Self::has_room`], whatever the broker thinks of it.
    pub fn make_room(&mut self, rows: usize, bytes: u64) {
        let needed = self.needed_bytes(self.len() + rows, bytes);
        self.charge.grow(needed.saturating_sub(self.charge.bytes()));
    }

    fn needed_bytes(&self, groups: usize, bytes: u64) -> u64 {
        let held = self.bytes();
        let grown = if groups > self.comfortable_groups {
            2 * held
        } else {
            held
        };
        grown.max(held + bytes)
    }

    /// Adds rows of the input: to the groups of their keys, or each as a group that may have the key of another one.
    /// After the latter the table is of use only for [`Self::take_groups`].
    pub fn add_input(
        &mut self,
        input: &RecordBatch,
        finds_groups: bool,
        work: &mut Work,
    ) -> Result<()> {
        self.plan.keys(input, &mut work.keys)?;
        if finds_groups {
            self.find(work);
        } else {
            work.groups.clear();
            let groups = self.len()..self.len() + input.num_rows();
            work.groups.extend(groups);
            self.stored.push_all(&work.keys);
        }
        work.keys.release();
        let len = self.len();
        let accumulators = &mut self.accumulators;
        self.plan
            .add_input(accumulators, input, &work.groups, len)?;
        self.note_rows(input.num_rows());
        if finds_groups {
            self.use_shelf(input.num_rows());
        }
        Ok(())
    }

    /// Adds groups with their states.
    pub fn add_groups(&mut self, added: &RecordBatch, work: &mut Work) -> Result<()> {
        let keys = self.plan.group_keys(added);
        self.plan.encoder.read(keys, &mut work.keys)?;
        self.find(work);
        work.keys.release();
        let len = self.len();
        let accumulators = &mut self.accumulators;
        self.plan
            .add_groups(accumulators, added, &work.groups, len)?;
        self.note_rows(added.num_rows());
        self.use_shelf(added.num_rows());
        Ok(())
    }

    fn find(&mut self, work: &mut Work) {
        let Work { keys, groups, .. } = work;
        self.directory.find(&mut self.stored, keys, groups);
    }

    fn note_rows(&mut self, rows: usize) {
        self.rows += rows as u64;
        if self.len() > self.comfortable_groups {
            self.comfortable_groups = self.len().next_power_of_two();
        }
        let bytes = self.bytes();
        self.charge.grow(bytes.saturating_sub(self.charge.bytes()));
        self.charge.shrink_to(bytes);
    }

    /// Waits for the groups of rows to be found and changed on the shelf, and puts there what came, an eighth of all
    /// groups at a time.
    fn use_shelf(&mut self, rows: usize) {
        let Some(shelf) = &self.shelf else {
            return;
        };
        shelf.update(self.bytes(), rows as u64);
        let groups = self.stored.len();
        if groups > self.placed_groups + self.placed_groups / 8 {
            self.directory.put_on(&**shelf);
            self.stored.put_on(&**shelf);
            self.placed_groups = groups;
        }
    }

    /// The groups with their states, and what the grant lends for them. The table is empty afterwards.
    pub fn take_groups(&mut self) -> Result<(RecordBatch, Charge)> {
        let stored = self.clear();
        let mut columns = stored.into_columns(&self.plan.encoder)?;
        for accumulator in &mut self.accumulators {
            columns.extend(accumulator.state()?);
        }
        Ok((self.plan.groups_of(columns)?, self.take_charge()))
    }

    /// The output for all groups. The table is empty afterwards.
    pub fn take_output(&mut self) -> Result<Output> {
        let stored = self.clear();
        let rows = stored.len();
        let mut columns = stored.decode(&self.plan.encoder, Texts::Shared)?;
        for accumulator in &mut self.accumulators {
            if self.plan.spec.phase.writes_states() {
                columns.extend(accumulator.state()?);
            } else {
                columns.push(accumulator.evaluate()?);
            }
        }
        let charge = self.take_charge();
        Ok(Output::new(&self.plan, columns, rows, charge))
    }

    /// Forgets all groups, except what the accumulators know, and returns their keys.
    fn clear(&mut self) -> GroupKeys {
        self.directory = Directory::default();
        self.rows = 0;
        self.comfortable_groups = 0;
        self.placed_groups = 0;
        let empty = GroupKeys::new(self.plan.encoder.shape());
        std::mem::replace(&mut self.stored, empty)
    }

    fn take_charge(&mut self) -> Charge {
        let empty = self.charge.empty();
        std::mem::replace(&mut self.charge, empty)
    }
}
