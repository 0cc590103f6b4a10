//! Replays traces of queries against a modelled machine, with the real cache, policies and tuner.
//!
//! Time is virtual: a [`Machine`] says how long transfers and processing take, everything that decides is the code
//! that runs in the product. Nothing here is a measurement of this machine; every number is *simulated*.

mod benchmarks;
mod clairvoyant;
mod device;
mod items;
mod mixes;
mod paper;
pub mod replay;
mod shelves;
#[cfg(test)]
mod tests;

pub use benchmarks::{Benchmark, Order, benchmark_trace};
pub use device::Machine;
pub use items::{TraceItem, with_items};
pub use mixes::{Mix, mix_trace};
pub use paper::{paper_alternation, paper_claims, paper_machine, paper_query, paper_sequence};

pub use clairvoyant::least_s;
pub use shelves::{ShelfMachine, best_fixed_s, simulate_best_fixed, simulate_shelves};

use hotshelf_cache::model::Observation;
use hotshelf_cache::tune::Method;
use hotshelf_cache::tuner::{
    StorageProgress, Tuner, TunerInput, TunerOptions, TunerStats, TunerStep,
};
use hotshelf_cache::{
    CacheManager, CacheOptions, ColumnId, FileId, PolicyKind, ReadDone, ReadHandle, ScanContext,
    ScanCounters, SegmentFuture, SegmentInfo, SegmentKey, SegmentKind, SegmentReader, keep_order,
};

use crate::policy::{CachePolicy, mix};
use crate::solve::PAPER;
use bytes::Bytes;
use device::Run;
use items::Items;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A query of a trace: one pipeline over whole columns.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceQuery {
    /// Its template's name.
    pub name: &'static str,
    /// The columns it reads.
    pub columns: Vec<ColumnId>,
    /// The rate at which it would process input that is always there, in bytes per second.
    pub processing_bandwidth: f64,
    /// How much its time matters.
    pub priority: f64,
    /// What else it uses, by index in the trace's items, before it reads columns.
    pub items: Vec<usize>,
}

/// Columns and the queries that read them, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Sizes in bytes.
    pub columns: BTreeMap<ColumnId, u64>,
    /// Size of a segment in bytes. Larger than in reality makes simulations faster.
    pub segment_bytes: u64,
    /// What queries use besides columns.
    pub items: Vec<TraceItem>,
    /// The queries.
    pub queries: Vec<TraceQuery>,
}

/// What is simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// The cache's policy.
    pub policy: CachePolicy,
    /// The cache's budget in bytes.
    pub budget_bytes: u64,
    /// Independently locked (and evicted) parts of the cache.
    pub partitions: usize,
    /// The tuner; only policies that are tuned have one.
    pub tuner: TunerOptions,
    /// Its model.
    pub model: SetupModel,
    /// Whether all columns are in memory at the start (as far as they fit).
    pub is_warm: bool,
    /// Whether each query reads the row groups in an order of its own, as workers do that keep no common order.
    pub is_shuffled: bool,
    /// Whether the tuner values items other than columns, or leaves them what they have.
    pub are_items_known: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            policy: CachePolicy::HpCache,
            budget_bytes: 1 << 30,
            partitions: 8,
            tuner: TunerOptions::default(),
            model: SetupModel::Fitting,
            is_warm: false,
            is_shuffled: false,
            are_items_known: true,
        }
    }
}

impl Setup {
    /// The tuner's method: the one that was asked for, or the one that the policy is made for.
    fn method(&self) -> Option<Method> {
        match self.model {
            SetupModel::Fitting => self.policy.method(),
            SetupModel::Shared => None,
            SetupModel::Paper => Some(PAPER),
        }
    }
}

/// The model that a simulated tuner works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetupModel {
    /// The one that the policy is made for.
    #[default]
    Fitting,
    /// The product's.
    Shared,
    /// The paper's.
    Paper,
}

/// One simulated query.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedQuery {
    /// Its template's name.
    pub name: &'static str,
    /// Its time in virtual seconds.
    pub time_s: f64,
    /// Bytes found in memory.
    pub bytes_cache: u64,
    /// Bytes read from storage.
    pub bytes_storage: u64,
    /// What the tuner predicted at the query's start, in seconds; nothing for templates it did not know.
    pub predicted_s: Option<f64>,
}

/// What the tuner thought of the query under way at one of its steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Number of the query in the trace.
    pub query_idx: usize,
    /// Virtual time since the trace began, in seconds.
    pub at_s: f64,
    /// Predicted time of the query under the placement in force, in seconds.
    pub predicted_s: f64,
    /// Predicted time with everything in memory, in seconds.
    pub in_memory_s: f64,
}

/// A simulated trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// What the tuner predicted while queries ran, in order.
    pub predictions: Vec<Prediction>,
    /// The queries in order.
    pub queries: Vec<SimulatedQuery>,
    /// What the tuner did.
    pub tuner: TunerStats,
}

impl Simulated {
    /// The time of all queries in virtual seconds.
    pub fn total_s(&self) -> f64 {
        self.queries.iter().map(|query| query.time_s).sum()
    }
}

/// Replays a trace.
pub fn simulate(machine: &Machine, trace: &Trace, setup: &Setup) -> Simulated {
    let mut simulator = Simulator::new(machine, trace, setup);
    if setup.is_warm {
        simulator.warm();
    }
    let queries = (0..trace.queries.len()).map(|query_idx| simulator.query(query_idx));
    Simulated {
        queries: queries.collect(),
        tuner: simulator.tuner.stats(),
        predictions: simulator.predictions,
    }
}

/// The virtual time in seconds of a query of a trace when `share` of each column is in memory, evenly spread, and the
/// cache does not change.
pub fn simulate_placed(machine: &Machine, trace: &Trace, query_idx: usize, share: f64) -> f64 {
    let query = &trace.queries[query_idx];
    let segment_bytes = trace.segment_bytes.max(1);
    let count = |column: &ColumnId| {
        let bytes = trace.columns.get(column).copied().unwrap_or(0);
        bytes.div_ceil(segment_bytes)
    };
    let counts: Vec<u64> = query.columns.iter().map(count).collect();
    let mut run = Run::new(machine, 0.0, query.processing_bandwidth);
    for row_group_idx in 0..counts.iter().copied().max().unwrap_or(0) {
        let there = counts
            .iter()
            .filter(|count| row_group_idx < **count)
            .count();
        let bytes = there as u64 * segment_bytes;
        let place = keep_order(FileId(0), row_group_idx as u32);
        match place < share {
            true => run.row_group(0, bytes),
            false => run.row_group(bytes, 0),
        }
    }
    run.now_s() + machine.setup_s
}

struct Simulator<'a> {
    machine: &'a Machine,
    trace: &'a Trace,
    setup: &'a Setup,
    cache: Arc<CacheManager>,
    tuner: Tuner,
    items: Items,
    /// The first segment of each column.
    first_segments: BTreeMap<ColumnId, u32>,
    now_s: f64,
    next_step_s: f64,
    storage: StorageProgress,
    predictions: Vec<Prediction>,
}

impl<'a> Simulator<'a> {
    fn new(machine: &'a Machine, trace: &'a Trace, setup: &'a Setup) -> Self {
        let cache = CacheManager::new(CacheOptions {
            budget_bytes: setup.budget_bytes,
            policy: PolicyKind::None,
            event_log_capacity: 0,
            partitions: setup.partitions,
            transit_bytes: None,
            segment_bytes_min: 0,
        });
        setup.policy.put_in_force(&cache);
        let mut segments = Vec::new();
        let mut first_segments = BTreeMap::new();
        for (column, bytes) in &trace.columns {
            first_segments.insert(*column, segments.len() as u32);
            let segment_count = bytes.div_ceil(trace.segment_bytes.max(1));
            segments.extend((0..segment_count as u32).map(|row_group_idx| SegmentInfo {
                column: *column,
                row_group_idx,
                charged_bytes: trace.segment_bytes,
                kind: SegmentKind::Data,
            }));
        }
        cache.add_file(Arc::new(NoDevice), segments);
        Self {
            machine,
            trace,
            setup,
            items: Items::new(trace, &cache),
            cache,
            tuner: Tuner::new(TunerOptions {
                memory_bandwidth: machine.memory_bandwidth,
                method: setup.method(),
                ..setup.tuner.clone()
            }),
            first_segments,
            now_s: 0.0,
            next_step_s: 0.0,
            storage: StorageProgress::default(),
            predictions: Vec::new(),
        }
    }

    fn warm(&mut self) {
        let scan = Arc::new(ScanContext::new(u64::MAX, 0, 0));
        let columns: Vec<ColumnId> = self.trace.columns.keys().copied().collect();
        for row_group_idx in 0..self.row_group_count(&columns) {
            drop(self.read(&scan, &columns, row_group_idx));
        }
    }

    fn row_group_count(&self, columns: &[ColumnId]) -> u32 {
        let sizes = columns
            .iter()
            .filter_map(|column| self.trace.columns.get(column));
        let longest = sizes.max().copied().unwrap_or(0);
        longest.div_ceil(self.trace.segment_bytes.max(1)) as u32
    }

    /// Requests a row group's segments. The futures are ready at once: the device is the model's business.
    fn read(
        &self,
        scan: &Arc<ScanContext>,
        columns: &[ColumnId],
        row_group_idx: u32,
    ) -> Vec<Bytes> {
        let there = columns.iter().filter(|column| {
            let bytes = self.trace.columns.get(column).copied().unwrap_or(0);
            u64::from(row_group_idx) < bytes.div_ceil(self.trace.segment_bytes.max(1))
        });
        let requests = there.map(|column| {
            let key = SegmentKey {
                file: FileId(0),
                segment_idx: self.first_segments[column] + row_group_idx,
            };
            self.cache.request(key, scan)
        });
        requests.filter_map(ready).collect()
    }

    /// The row groups of a query in the order in which they are read.
    fn row_groups(&self, query_idx: usize) -> Vec<u32> {
        let count = self.row_group_count(&self.trace.queries[query_idx].columns);
        let mut row_groups: Vec<u32> = (0..count).collect();
        if self.setup.is_shuffled {
            let draw = |idx: &u32| mix((query_idx as u64) << 32 | u64::from(*idx));
            row_groups.sort_by_key(draw);
        }
        row_groups
    }

    fn query(&mut self, query_idx: usize) -> SimulatedQuery {
        let query = &self.trace.queries[query_idx];
        let template = template(query.name);
        let scan = Arc::new(ScanContext::new(query_idx as u64, 0, template));
        let predicted_s = self.tuner.predicted_s(template, 0);
        let begins_s = self.now_s + self.items.take(self.trace, query, self.now_s);
        let mut run = Run::new(self.machine, begins_s, query.processing_bandwidth);
        let mut ahead: VecDeque<Vec<Bytes>> = VecDeque::new();
        let row_group_bytes = self.trace.segment_bytes * query.columns.len() as u64;
        let ahead_count = (self.machine.lookahead_bytes / row_group_bytes.max(1)).max(1) as usize;
        for row_group_idx in self.row_groups(query_idx) {
            let before = scan.counters();
            ahead.push_back(self.read(&scan, &query.columns, row_group_idx));
            if ahead.len() > ahead_count {
                ahead.pop_front();
            }
            let after = scan.counters();
            let missing_bytes = after.bytes_storage - before.bytes_storage;
            run.row_group(missing_bytes, after.bytes_cache - before.bytes_cache);
            self.storage.bytes += missing_bytes;
            while run.now_s() >= self.next_step_s {
                self.tune(query_idx, &run, after, false);
            }
        }
        drop(ahead);
        let counters = scan.counters();
        self.tune(query_idx, &run, counters, true);
        let time_s = run.now_s() - self.now_s + self.machine.setup_s;
        self.storage.reading_ns += nanos(run.storage_busy_s());
        self.storage.wait_ns += nanos(run.wait_s());
        self.now_s += time_s;
        SimulatedQuery {
            name: query.name,
            time_s,
            bytes_cache: counters.bytes_cache,
            bytes_storage: counters.bytes_storage,
            predicted_s,
        }
    }

    /// A step of the tuner in the middle or at the end of a query.
    fn tune(&mut self, query_idx: usize, run: &Run<'_>, counters: ScanCounters, finished: bool) {
        let period_s = self.setup.tuner.period_ms.max(1) as f64 * 1e-3;
        if !finished {
            self.next_step_s += period_s;
        }
        if !self.setup.policy.is_tuned() {
            return;
        }
        let query = &self.trace.queries[query_idx];
        let size = |column: &ColumnId| {
            (
                *column,
                self.trace.columns.get(column).copied().unwrap_or(0),
            )
        };
        let observation = Observation {
            query: query_idx as u64,
            pipeline: 0,
            template: template(query.name),
            columns: query.columns.iter().map(size).collect(),
            processed_bytes: run.processed_bytes(),
            storage_bytes: counters.bytes_storage,
            busy_ns: nanos(run.busy_s()),
            wait_ns: nanos(run.wait_s()),
            worker_count: 1,
            priority: query.priority,
            finished,
        };
        let sizes = self.cache.column_sizes();
        let resident = self.cache.resident_bytes();
        let budget = self.cache.budget();
        let (uses, capacity_bytes) = match self.setup.are_items_known {
            true => {
                let kept_bytes = budget.limit_bytes() - budget.transit_bytes();
                (self.items.uses(), kept_bytes)
            }
            false => (Vec::new(), budget.capacity_bytes()),
        };
        let input = TunerInput {
            observations: &[observation],
            storage: StorageProgress {
                reading_ns: self.storage.reading_ns + nanos(run.storage_busy_s()),
                wait_ns: self.storage.wait_ns + nanos(run.wait_s()),
                ..self.storage
            },
            sizes: &sizes,
            resident: &resident,
            capacity_bytes,
            policy: self.setup.policy.resembles(),
            between: &[],
            uses: &uses,
            use_s: run.now_s(),
        };
        if let TunerStep::Placed(placement) = self.tuner.step(nanos(run.now_s()), &input) {
            self.cache.set_placement(placement);
        }
        self.cache.price_board().publish(&self.tuner.prices());
        let template = template(query.name);
        if let (Some(predicted_s), Some(in_memory_s)) = (
            self.tuner.predicted_s(template, 0),
            self.tuner.predicted_with(template, 0, |_| 1.0),
        ) {
            self.predictions.push(Prediction {
                query_idx,
                at_s: run.now_s(),
                predicted_s,
                in_memory_s,
            });
        }
    }
}

/// A template's fingerprint: equal names, equal templates.
fn template(name: &str) -> u64 {
    let fold = |hash: u64, byte: u8| mix(hash ^ u64::from(byte));
    name.bytes().fold(0x5eed, fold)
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

pub(crate) fn ready(mut future: SegmentFuture) -> Option<Bytes> {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(&mut future).poll(&mut context) {
        Poll::Ready(result) => result.ok(),
        Poll::Pending => None,
    }
}

/// A reader whose bytes are there at once and empty: only their charge counts.
pub(crate) struct NoDevice;

struct NoHandle;

impl ReadHandle for NoHandle {}

impl SegmentReader for NoDevice {
    fn read(&self, _segment_idx: u32, done: ReadDone) -> Box<dyn ReadHandle> {
        done(Ok(Bytes::new()));
        Box::new(NoHandle)
    }
}
