//! Aggregation by groups that never fails for lack of memory.
//!
//! ```
//! # use std::sync::Arc;
//! # use arrow_array::{ArrayRef, Int64Array, RecordBatch};
//! # use hotshelf_operators::aggregate::{AggregateSpec, HashAggregate, Phase};
//! # use hotshelf_operators::memory::FixedPool;
//! # use hotshelf_operators::spill::{SpillFolder, SpillOptions};
//! # use hotshelf_operators::{Environment, Stop};
//! # use hotshelf_tier::io::{IoEngine, IoOptions};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let spill = SpillOptions { path: folder.path().to_path_buf(), limit_bytes: 1 << 30 };
//! # let environment = Environment {
//! #     broker: FixedPool::new(1 << 20),
//! #     spill: SpillFolder::open(spill, IoEngine::start(IoOptions::default())?)?,
//! #     spilled: hotshelf_operators::spill::uncounted(),
//! #     stop: Stop::default(),
//! #     table_shelf: None,
//! # };
//! let numbers = |numbers: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(numbers)) };
//! let rows = RecordBatch::try_from_iter([("n", numbers(vec![5, 3, 5, 5]))])?;
//! let spec = AggregateSpec {
//!     input: rows.schema(),
//!     keys: vec![0],
//!     aggregates: vec![],
//!     phase: Phase::Single,
//!     schema: rows.schema(),
//! };
//! let aggregation = HashAggregate::try_new(spec, &environment, 1)?;
//! let mut worker = aggregation.worker()?; // one for each thread
//! worker.push(rows)?;
//! worker.finish()?;
//! let groups = worker.next_batch()?.expect("two groups");
//! assert_eq!(groups.column(0), &numbers(vec![5, 3]));
//! assert!(worker.next_batch()?.is_none());
//! # Ok(())
//! # }
//! ```
//!
//! | file | answers |
//! |---|---|
//! | `spec` | what an aggregation is to do |
//! | `plan` | where its columns are |
//! | `carried` | what groups carry without being found by it |
//! | `job` | what its parts have in common |
//! | `encoder` | what keys look like |
//! | `groups` | which group has a key |
//! | `mixed` | where keys with texts are |
//! | `table` | what is known about groups in memory |
//! | `store` | where groups wait, by partition, and which are spilled |
//! | `merge` | how the groups of partitions are put together |
//! | `output` | groups that are handed out |
//! | `partial` | groups of one thread's rows, for others to merge |
//! | `numbers` | groups numbered for those who aggregate themselves |
//!
//! A worker that is alone, as each of Hotshelf's plans is with its partition of the input, keeps up to 4 GB of groups
//! in one table until the broker refuses; otherwise a worker's table has no more groups than
//! the core's cache has room for. Then they go to 64 partitions by the upper bits of the hash, with their states. A
//! partition merges what it gets as soon as that is worth loading its own table
//! to the cache, so that memory is needed for groups, and not for rows. Where hardly any row meets its group in a
//! worker's table, the next rows are not looked up there. When the broker refuses, a partition's groups are spilled:
//! one that is on disk already if it has enough to write, otherwise the largest.
//!
//! When all workers have finished, they take the partitions, one at a time each. One that does not fit is divided by
//! the next bits of the hash. No thread ever waits for memory: a piece of input, small tables and at most 16 KiB of
//! each partition are lent as an overdraft if need be. A group whose state alone does not fit is one, too.

mod carried;
mod encoder;
mod groups;
mod job;
mod merge;
mod mixed;
mod numbers;
mod output;
mod partial;
mod plan;
mod spec;
mod store;
mod table;
#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow_array::RecordBatch;
use parking_lot::{Condvar, Mutex};

use crate::batches::{pieces, with_schema};
use crate::memory::{Charge, Grant};
use crate::{Environment, OperatorError, Result};
use job::{Counts, Limits, Shared};
use merge::{Merged, Task};
pub use numbers::GroupNumbers;
use output::Output;
pub use partial::PartialAggregate;
use plan::Plan;
pub use spec::{Accumulate, Aggregate, AggregateFunction, AggregateSpec, Phase};
use store::{MEETING_PARTS, Store};
use table::{Table, Work};

/// How often a thread that waits for the others looks whether it should stop.
const STOP_CHECK: Duration = Duration::from_millis(20);
/// After a table in which hardly any row met its group, this many times as many rows are not looked up.
const BLIND_FACTOR: u64 = 8;

/// What an aggregation did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AggregateStats {
    /// Rows pushed.
    pub row_count: u64,
    /// Rows that became groups without being looked up in a worker's table.
    pub blind_row_count: u64,
    /// Groups that workers' tables gave to partitions.
    pub scattered_count: u64,
    /// Groups that were spilled, each time counted.
    pub spilled_count: u64,
    /// How often a group's partition was divided at most.
    pub level_max: u64,
    /// The most memory in use at once, in bytes.
    pub used_bytes_max: u64,
}

/// An aggregation. Threads share it.
pub struct HashAggregate {
    shared: Arc<Shared>,
    store: Arc<Store>,
    workers: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Workers that have not finished.
    working: usize,
    /// Whether a worker was dropped before it finished, so that groups are not complete.
    is_abandoned: bool,
    tasks: Vec<Task>,
}

impl HashAggregate {
    /// An aggregation whose rows come through `workers` workers. Output begins when each of them has finished, so all
    /// of them must be made.
    ///
    /// # Errors
    /// Columns that do not fit together, and if Arrow has no row format for a key's type.
    pub fn try_new(
        spec: AggregateSpec,
        environment: &Environment,
        workers: usize,
    ) -> Result<Arc<Self>> {
        Self::with_limits(spec, environment, workers, Limits::default())
    }

    fn with_limits(
        spec: AggregateSpec,
        environment: &Environment,
        workers: usize,
        limits: Limits,
    ) -> Result<Arc<Self>> {
        let grant = Grant::open(&*environment.broker, "aggregation", limits.minimum_bytes);
        let shared = Arc::new(Shared {
            plan: Arc::new(Plan::try_new(spec)?),
            environment: environment.clone(),
            grant: Arc::new(grant),
            limits,
            counts: Counts::default(),
            file: OnceLock::new(),
        });
        Ok(Arc::new(Self {
            store: Store::new(&shared, 0, None),
            shared,
            workers,
            state: Mutex::new(State {
                working: workers,
                is_abandoned: false,
                tasks: Vec::new(),
            }),
            changed: Condvar::new(),
        }))
    }

    /// What takes rows from a thread.
    ///
    /// # Errors
    /// Those of the functions.
    pub fn worker(self: &Arc<Self>) -> Result<Worker> {
        let grant = &self.shared.grant;
        Ok(Worker {
            table: Some(self.shared.table()?),
            work: Work::default(),
            work_charge: Charge::adopt(grant, 0),
            blind_rows: 0,
            is_blind: false,
            output: None,
            aggregation: Arc::clone(self),
        })
    }

    /// What the aggregation did so far.
    pub fn stats(&self) -> AggregateStats {
        let counts = &self.shared.counts;
        AggregateStats {
            row_count: counts.rows.load(Relaxed),
            blind_row_count: counts.blind_rows.load(Relaxed),
            scattered_count: counts.scattered_groups.load(Relaxed),
            spilled_count: counts.spilled_rows.load(Relaxed),
            level_max: counts.level_max.load(Relaxed),
            used_bytes_max: self.shared.grant.used_bytes_max(),
        }
    }

    fn finish_worker(&self) {
        let mut state = self.state.lock();
        state.working -= 1;
        if state.working == 0 {
            state.tasks = merge::tasks(&self.store);
            self.changed.notify_all();
        }
    }

    fn next_task(&self) -> Result<Option<Task>> {
        let mut state = self.state.lock();
        loop {
            self.shared.environment.stop.check()?;
            if state.is_abandoned {
                return Err(OperatorError::Stopped);
            }
            if state.working == 0 {
                return Ok(state.tasks.pop());
            }
            self.changed.wait_for(&mut state, STOP_CHECK);
        }
    }
}

/// Takes rows, and then a share of the output.
pub struct Worker {
    aggregation: Arc<HashAggregate>,
    /// The table, until there are no more rows.
    table: Option<Table>,
    work: Work,
    work_charge: Charge,
    /// Rows that will not be looked up.
    blind_rows: u64,
    /// Whether rows are not looked up in the table as it is now.
    is_blind: bool,
    output: Option<Output>,
}

impl Worker {
    /// Adds rows, or states.
    ///
    /// # Errors
    /// Those of spilling and of the functions, columns that are not those of the schema, if Arrow cannot encode a key,
    /// and [`Stopped`](OperatorError::Stopped), also after [`Self::finish`].
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let mut table = self.table.take().ok_or(OperatorError::Stopped)?;
        let batch = with_schema(batch, &self.shared().plan.spec.input)?;
        let added = pieces(&batch).try_for_each(|piece| self.add(&piece, &mut table));
        self.table = Some(table);
        added
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.aggregation.shared
    }

    fn add(&mut self, piece: &RecordBatch, table: &mut Table) -> Result<()> {
        let shared = Arc::clone(self.shared());
        shared.environment.stop.check()?;
        let (rows, bytes) = (piece.num_rows(), shared.plan.bytes_of_input(piece));
        while !table.has_room(rows, bytes) {
            if self.aggregation.store.spill_some()? {
                continue;
            }
            if table.charged_bytes() >= shared.limits.table_bytes_min {
                self.flush(table)?;
            }
            table.make_room(rows, bytes);
        }
        table.add_input(piece, !self.is_blind, &mut self.work)?;
        self.note_work();
        shared.counts.rows.fetch_add(rows as u64, Relaxed);
        if self.is_blind {
            self.blind_rows = self.blind_rows.saturating_sub(rows as u64);
            shared.counts.blind_rows.fetch_add(rows as u64, Relaxed);
        }
        if table.charged_bytes() >= self.table_bytes_max() {
            self.flush(table)?;
        }
        Ok(())
    }

    /// Whether all groups are in this worker's table.
    fn is_alone(&self) -> bool {
        self.aggregation.workers == 1 && !self.aggregation.store.is_used()
    }

    /// Whether a table that has all groups becomes output as it is: where there is memory for both.
    fn makes_output_at_once(&self, table: &mut Table) -> bool {
        let has_all = self.is_alone() && !self.is_blind && table.len() > 0;
        let (bytes, limits) = (table.charged_bytes(), &self.shared().limits);
        let has_room = bytes <= limits.output_bytes_max && table.has_room(0, bytes);
        has_all && (bytes <= limits.output_bytes || has_room)
    }

    /// Who has no others to share with keeps many groups in one table while there is memory for it.
    fn table_bytes_max(&self) -> u64 {
        let limits = &self.shared().limits;
        match self.is_alone() {
            true => limits.table_bytes.max(limits.alone_table_bytes),
            false => limits.table_bytes,
        }
    }

    /// Gives the table's groups to partitions.
    fn flush(&mut self, table: &mut Table) -> Result<()> {
        if table.len() == 0 {
            return Ok(());
        }
        let (rows, groups) = (table.rows(), table.len() as u64);
        let has_met_few = rows - groups < rows / MEETING_PARTS;
        if !self.is_blind && has_met_few {
            self.blind_rows = BLIND_FACTOR * rows;
        }
        self.is_blind = self.blind_rows > 0;
        let counts = &self.shared().counts;
        counts.scattered_groups.fetch_add(groups, Relaxed);
        let (groups, _charge) = table.take_groups()?;
        self.aggregation.store.append_all(&groups, &mut self.work)?;
        self.note_work();
        Ok(())
    }

    fn note_work(&mut self) {
        let bytes = self.work.bytes();
        let more = bytes.saturating_sub(self.work_charge.bytes());
        self.work_charge.grow(more);
    }

    /// Notes that there are no more rows.
    ///
    /// # Errors
    /// Those of [`Self::push`].
    pub fn finish(&mut self) -> Result<()> {
        let Some(mut table) = self.table.take() else {
            return Ok(());
        };
        let done = if self.makes_output_at_once(&mut table) {
            table.take_output().map(|output| self.output = Some(output))
        } else {
            self.flush(&mut table)
        };
        if done.is_err() {
            self.table = Some(table);
            return done;
        }
        self.aggregation.finish_worker();
        Ok(())
    }

    /// Whether [`Self::next_batch`] has only to hand out what is there: it neither waits nor merges.
    pub fn has_output(&self) -> bool {
        self.output.as_ref().is_some_and(Output::has_rows)
    }

    /// The next batch of output, after [`Self::finish`]. This waits until all workers have finished.
    ///
    /// # Errors
    /// Those of [`Self::push`], and [`Stopped`](OperatorError::Stopped) if a worker was dropped before it finished.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(output) = &mut self.output
                && let Some(batch) = output.next_batch()?
            {
                return Ok(Some(batch));
            }
            self.output = None;
            let Some(task) = self.aggregation.next_task()? else {
                return Ok(None);
            };
            match task.run(&Arc::clone(self.shared()), &mut self.work)? {
                Merged::Output(output) => self.output = Some(output),
                Merged::Divided(tasks) => self.aggregation.state.lock().tasks.extend(tasks),
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.table.is_some() {
            self.aggregation.state.lock().is_abandoned = true;
            self.aggregation.changed.notify_all();
        }
    }
}
