//! A hash join that never fails for lack of memory.
//!
//! ```
//! # use std::sync::Arc;
//! # use arrow_array::{ArrayRef, Int64Array, RecordBatch};
//! # use hotshelf_operators::join::{HashJoin, JoinKind, JoinSpec, Side};
//! # use hotshelf_operators::keys::Nulls;
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
//! let left = RecordBatch::try_from_iter([("n", numbers(vec![1, 2, 3]))])?;
//! let right = RecordBatch::try_from_iter([("n", numbers(vec![2, 3, 4]))])?;
//! let spec = JoinSpec {
//!     left: left.schema(),
//!     right: right.schema(),
//!     on: vec![(0, 0)],
//!     kind: JoinKind::LeftAnti,
//!     nulls: Nulls::Distinct,
//!     null_aware: false,
//!     condition: None,
//!     output: vec![(Side::Left, 0)],
//!     schema: left.schema(),
//! };
//! let join = HashJoin::try_new(spec, &environment, 1)?;
//! join.builder().insert(left)?; // any number of threads, one builder each
//! join.finish_build(1)?;
//!
//! let mut prober = join.prober()?; // one for each of the threads that probe
//! let mut found = Vec::new();
//! prober.push(right)?;
//! found.extend(prober.next_batch()?); // until there is none, after each push
//! prober.finish()?;
//! while let Some(batch) = prober.next_batch()? {
//!     found.push(batch); // rows without a partner, and what was spilled
//! }
//! assert_eq!(found[0].column(0), &numbers(vec![1]));
//! # Ok(())
//! # }
//! ```
//!
//! | file | answers |
//! |---|---|
//! | `spec` | what a join is to do |
//! | `plan` | where its columns are stored, and how output is put together |
//! | `layout` | what a row looks like in memory and on disk |
//! | `store` | where rows wait, by partition, and which are spilled |
//! | `spilled` | blocks of rows on disk |
//! | `packed` | their words in fewer bytes |
//! | `part` | the table of one partition: the directory, and the rows by slot |
//! | `table` | those of all partitions |
//! | `prober` | what a thread does with right rows, and then with what remains |
//! | `key_parts` | which partition a key is in |
//! | `direct` | which keys have rows, where keys lie close together |
//! | `ordered` | rows in the order of such keys |
//! | `cursor` | how a batch probes, and which of its rows have no partner |
//! | `scan` | which rows of a table have none |
//! | `rounds` | which pairs are tested where it only matters whether a row has a partner |
//! | `pair` | spilled partitions of both sides |
//! | `rest` | what a thread does next when all right rows have arrived |
//! | `run` | how spilled partitions are joined, by stages |
//! | `share` | a thread's part in that |
//! | `piece` | a partition of a pair that a thread joins in its caches |
//! | `queue` | build sides that are larger than memory and cannot be divided |
//!
//! Left rows are divided into 64 partitions by the upper bits of the hash, or by ranges of keys that are numbers. While
//! the grant grows, all stay in memory; when the broker refuses, the largest partition is spilled. Right rows whose
//! partition is on disk are spilled, too. When all right rows have arrived, the threads take the spilled pairs, one at
//! a time each, and when there are fewer pairs than threads, they join them together. A pair is joined as the whole
//! was, with the next bits of the hash and with the smaller side built. No thread ever waits for memory: the buffers of
//! partitions on disk, at most 4 MiB for each pair in work or a 16th of the memory, and 1 MiB of its table are lent as
//! an overdraft if need be.

mod cursor;
mod direct;
mod key_parts;
mod layout;
mod ordered;
mod packed;
mod pair;
mod part;
mod piece;
mod plan;
mod prober;
mod queue;
mod rest;
mod rounds;
mod run;
mod scan;
mod share;
mod spec;
mod spilled;
mod store;
mod table;
#[cfg(test)]
mod tests;

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arrow_array::RecordBatch;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::batches::{pieces, with_schema};
use crate::memory::Grant;
use crate::partitions::{NO_KEY, Scatter};
use crate::{Environment, OperatorError, Result};
pub use cursor::Step;
use layout::Block;
use pair::{Pair, Shared, spilled_pairs};
use plan::{Plan, ProbeRows};
pub use prober::Prober;
use rest::{Next, Rest};
use run::Run;
use share::Share;
pub use spec::{Condition, JoinKind, JoinSpec, PairTest, Side};
use store::RowStore;
use table::Tables;

/// How often a thread that waits for the others looks whether it should stop.
const STOP_CHECK: Duration = Duration::from_millis(20);
/// What a join may use without a question, and what each thread has at least to join a spilled pair.
const MINIMUM_BYTES: u64 = 1 << 20;

/// What a join did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JoinStats {
    /// Left rows spilled while they arrived.
    pub spilled_left_rows: u64,
    /// Right rows spilled while they arrived.
    pub spilled_right_rows: u64,
    /// Pairs of spilled partitions that were joined, those of divided ones included.
    pub pair_count: u64,
    /// How often a row's partition was divided at most.
    pub level_max: u64,
    /// How often a partition was read again because the other one did not fit and could not be divided.
    pub pass_count: u64,
    /// Partitions of pairs whose rows were divided in memory.
    pub piece_count: u64,
    /// The most memory in use at once, in bytes.
    pub used_bytes_max: u64,
}

/// A join. Threads share it.
pub struct HashJoin {
    shared: Shared,
    build: RowStore,
    probe: RowStore,
    /// Right rows that came while left rows were spilled.
    probed_rows: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The table, until it is of no use.
    tables: Option<Arc<Tables>>,
    /// Probers that have not finished.
    probing: usize,
    /// Whether a prober was dropped before it finished, so that it is not known which rows have no partner.
    is_abandoned: bool,
    /// Whether rows that remain were lost, because what a thread did was dropped or failed.
    is_broken: bool,
    rest: Rest,
    /// How often there may have been new work for threads that wait, or a reason to end.
    changes: u64,
    /// Of tasks that wait for the next change.
    wakers: Vec<Waker>,
}

impl HashJoin {
    /// A join whose right rows come through `probers` probers. Rows that remain are returned only when each of them has
    /// finished or was dropped, so all of them must be made.
    ///
    /// # Errors
    /// Keys of different types, and if Arrow has no row format for a type.
    pub fn try_new(spec: JoinSpec, environment: &Environment, probers: usize) -> Result<Arc<Self>> {
        Self::with_minimum(spec, environment, probers, MINIMUM_BYTES)
    }

    fn with_minimum(
        spec: JoinSpec,
        environment: &Environment,
        probers: usize,
        minimum_bytes: u64,
    ) -> Result<Arc<Self>> {
        let plan = Plan::try_new(spec)?;
        let grant = Arc::new(Grant::open(&*environment.broker, "join", minimum_bytes));
        let store = |side, spills| RowStore::new(plan.layout(side), environment, &grant, 0, spills);
        Ok(Arc::new(Self {
            build: store(Side::Left, false),
            probe: store(Side::Right, true),
            probed_rows: AtomicU64::new(0),
            shared: Shared {
                environment: environment.clone(),
                grant,
                plan,
                counts: Arc::default(),
            },
            state: Mutex::new(State {
                tables: None,
                probing: probers,
                is_abandoned: false,
                is_broken: false,
                rest: Rest::default(),
                changes: 0,
                wakers: Vec::new(),
            }),
            changed: Condvar::new(),
        }))
    }

    /// What inserts left rows from a thread.
    pub fn builder(self: &Arc<Self>) -> Builder {
        Builder {
            join: Arc::clone(self),
            rows: ProbeRows::default(),
            block: Block::default(),
            scatter: Scatter::default(),
        }
    }

    /// Makes the table, with this many threads, when all rows of the left side are inserted.
    ///
    /// # Errors
    /// Those of spilling.
    pub fn finish_build(&self, threads: usize) -> Result<()> {
        let marks = self.shared.plan.marks(Side::Left);
        let tables = Tables::build(&self.build, marks, threads)?;
        self.state.lock().tables = Some(Arc::new(tables));
        Ok(())
    }

    /// What probes from a thread, after [`Self::finish_build`].
    ///
    /// # Errors
    /// [`OperatorError::Stopped`] if the table is gone, because all probers have finished.
    pub fn prober(self: &Arc<Self>) -> Result<Prober> {
        let tables = self.state.lock().tables.clone();
        let tables = tables.ok_or(OperatorError::Stopped)?;
        Ok(Prober::new(self, Some(tables)))
    }

    /// What takes part in what remains when all probers have finished, from a further thread.
    pub fn helper(self: &Arc<Self>) -> Prober {
        Prober::new(self, None)
    }

    /// How many spilled pairs wait for a thread.
    pub fn waiting_pair_count(&self) -> usize {
        self.state.lock().rest.waiting_pair_count()
    }

    /// What the join did so far.
    pub fn stats(&self) -> JoinStats {
        let [pair_count, level_max, pass_count, piece_count] = self.shared.counts.get();
        JoinStats {
            spilled_left_rows: self.build.spilled_rows(),
            spilled_right_rows: self.probe.spilled_rows(),
            pair_count,
            level_max,
            pass_count,
            piece_count,
            used_bytes_max: self.shared.grant.used_bytes_max(),
        }
    }

    /// Notes that a prober has no more rows, and says whether it is the last one. Then it is known what remains.
    fn finish_probing(&self) -> Result<bool> {
        let mut state = self.state.lock();
        let is_last = state.probing == 1;
        // No other prober has rows. Threads that look for work need the lock meanwhile.
        let written = match is_last {
            true => MutexGuard::unlocked(&mut state, || self.probe.finish()),
            false => Ok(()),
        };
        state.probing -= 1;
        if is_last {
            state.is_broken |= written.is_err();
            let tables = state.tables.take();
            self.add_rest(tables, &mut state.rest);
            self.note_change(state);
        }
        written.map(|()| is_last)
    }

    fn add_rest(&self, tables: Option<Arc<Tables>>, rest: &mut Rest) {
        let plan = &self.shared.plan;
        let totals = [self.build.row_count(), self.probed_rows.load(Relaxed)];
        let stores = [&self.build, &self.probe];
        rest.add_pairs(spilled_pairs(stores, Side::Left, totals, plan));
        if let Some(left) = self.build.take_spilled(NO_KEY) {
            let pair = Pair {
                left,
                right: spilled::Spilled::default(),
                level: 0,
                is_stuck: true,
                has_keys: false,
            };
            rest.add_pairs(pair.is_useful(plan).then_some(pair));
        }
        if let Some(tables) = tables.filter(|_| plan.marks(Side::Left)) {
            rest.add_scans(&tables);
        }
    }

    /// What a thread does next, that has worked on its `own` pair, and how many changes have led to that.
    fn next_work(&self, own: Option<&Arc<Run>>) -> Result<(Next, u64)> {
        self.shared.environment.stop.check()?;
        let mut state = self.state.lock();
        if state.is_broken {
            return Err(OperatorError::Stopped);
        }
        if state.is_abandoned {
            return Ok((Next::End, state.changes));
        }
        let next = match state.probing {
            0 => state.rest.next(own, &self.shared),
            _ => Next::Later,
        };
        Ok((next, state.changes))
    }

    /// Waits for a change after those that were `seen`, but not for long.
    fn wait(&self, seen: u64) {
        let mut state = self.state.lock();
        if state.changes == seen {
            self.changed.wait_for(&mut state, STOP_CHECK);
        }
    }

    /// Whether there was a change after those that were `seen`. If not, the next one wakes the task.
    fn poll_change(&self, seen: u64, context: &Context) -> Poll<()> {
        let mut state = self.state.lock();
        if state.changes != seen {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if !state.wakers.iter().any(|other| other.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        Poll::Pending
    }

    fn note_change(&self, mut state: MutexGuard<State>) {
        state.changes += 1;
        let wakers = take(&mut state.wakers);
        drop(state);
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Notes that rows are lost, so that no other thread ends as if there had been none.
    fn break_off(&self) {
        let mut state = self.state.lock();
        state.is_broken = true;
        self.note_change(state);
    }

    /// Notes that it is not known which rows have no partner.
    fn abandon(&self) {
        let mut state = self.state.lock();
        state.is_abandoned = true;
        self.note_change(state);
    }

    /// Ends a thread's turn, and says so to those that wait for it.
    fn end_share(&self, mut share: Share) -> Arc<Run> {
        let mut state = self.state.lock();
        state.rest.add_pairs(share.take_pairs());
        let run = share.end();
        self.note_change(state);
        run
    }
}

/// Inserts left rows.
pub struct Builder {
    join: Arc<HashJoin>,
    rows: ProbeRows,
    block: Block,
    scatter: Scatter,
}

impl Builder {
    /// Inserts the rows of a batch.
    ///
    /// # Errors
    /// Those of spilling, columns that are not those of the schema, and if Arrow cannot encode a column.
    pub fn insert(&mut self, batch: RecordBatch) -> Result<()> {
        let batch = with_schema(batch, &self.join.shared.plan.spec.left)?;
        for piece in pieces(&batch) {
            let plan = &self.join.shared.plan;
            plan.rows_of(Side::Left, &piece, true, &mut self.rows)?;
            let ProbeRows { keys, columns, .. } = &self.rows;
            plan.layout(Side::Left)
                .pack(keys, columns, &mut self.block)?;
            let keeps_no_key = plan.keeps_lonely(Side::Left);
            let (block, scatter) = (&self.block, &mut self.scatter);
            let build = &self.join.build;
            build.note_keys(keys);
            build.append(scatter, block, keys.hashes(), keys.valid(), keeps_no_key)?;
        }
        Ok(())
    }
}
