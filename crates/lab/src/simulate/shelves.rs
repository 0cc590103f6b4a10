//! Memory over local disk over remote storage, each of the upper two with a cache of its own: the product's cache and
//! policies twice, and its tuner over all three.
//!
//! A segment that is in no cache comes from remote storage; on its way it is offered to the disk's cache and to
//! memory's. Policies that are not tuned decide on each shelf for themselves.

use super::items::Items;
use super::{NoDevice, Trace, TraceQuery, nanos, ready, template};
use crate::policy::CachePolicy;
use crate::solve::exact;
use hotshelf_cache::model::{ItemUse, Observation, Problem, Shelf, TemplateTerm};
use hotshelf_cache::tune::{Solution, TuneError};
use hotshelf_cache::tuner::{
    StorageProgress, Tuner, TunerInput, TunerOptions, TunerStats, TunerStep,
};
use hotshelf_cache::{
    CacheManager, CacheOptions, ColumnId, FileId, PolicyKind, ScanContext, SegmentInfo, SegmentKey,
    SegmentKind,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A machine with three shelves, memory first. The budgets are those of the upper two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShelfMachine {
    /// Memory, disk, remote.
    pub shelves: [Shelf; 3],
    /// Bytes under way ahead of processing.
    pub lookahead_bytes: u64,
}

impl ShelfMachine {
    /// A small machine with this much memory, four times as much disk, and remote storage: 125 MB/s, 25 ms latency.
    pub fn small(memory_bytes: f64) -> Self {
        let shelf = |bandwidth, latency_s, in_flight, budget_bytes| Shelf {
            bandwidth,
            latency_s,
            in_flight,
            budget_bytes,
        };
        Self {
            shelves: [
                shelf(14.6e9, 0.0, 1.0, memory_bytes),
                shelf(1.5e9, 1e-4, 32.0, 4.0 * memory_bytes),
                shelf(125e6, 0.025, 16.0, f64::INFINITY),
            ],
            lookahead_bytes: 64_000_000,
        }
    }
}

/// A trace simulated on three shelves.
#[derive(Debug, Clone, PartialEq)]
pub struct ShelvesRun {
    /// The time of each query in virtual seconds.
    pub query_s: Vec<f64>,
    /// Bytes that came from memory, disk and remote storage.
    pub bytes: [u64; 3],
    /// What the tuner did.
    pub tuner: TunerStats,
}

impl ShelvesRun {
    /// The time of all queries in virtual seconds.
    pub fn total_s(&self) -> f64 {
        self.query_s.iter().sum()
    }
}

/// Replays a trace on three shelves.
pub fn simulate_shelves(machine: &ShelfMachine, trace: &Trace, policy: CachePolicy) -> ShelvesRun {
    Simulator::new(machine, trace, policy).run()
}

/// The time in virtual seconds that a trace would take with the best placement that never changes, which lies there
/// from the start: made with the whole trace known. No policy can reach it, for caches begin empty.
///
/// # Errors
/// [`TuneError`] if the exact solver gives up.
pub fn best_fixed_s(machine: &ShelfMachine, trace: &Trace) -> Result<f64, TuneError> {
    Ok(best_fixed(machine, trace)?.1.total_s)
}

/// Replays a trace with that placement in force from the first query on and caches that begin empty.
///
/// # Errors
/// [`TuneError`] if the exact solver gives up.
pub fn simulate_best_fixed(machine: &ShelfMachine, trace: &Trace) -> Result<ShelvesRun, TuneError> {
    let (problem, solution) = best_fixed(machine, trace)?;
    let mut simulator = Simulator::new(machine, trace, CachePolicy::HpCache);
    simulator.is_tuned = false;
    for (shelf, cache) in simulator.caches.iter().enumerate() {
        cache.set_placement(solution.placement_on(&problem, shelf));
    }
    Ok(simulator.run())
}

fn best_fixed(machine: &ShelfMachine, trace: &Trace) -> Result<(Problem, Solution), TuneError> {
    let term = |query: &TraceQuery| TemplateTerm {
        template: template(query.name),
        pipeline: 0,
        weight: 1.0,
        columns: query
            .columns
            .iter()
            .map(|column| (*column, trace.columns[column] as f64))
            .collect(),
        processing_bandwidth: query.processing_bandwidth,
        run_s: None,
    };
    let mut terms: Vec<TemplateTerm> = Vec::new();
    for term in trace.queries.iter().map(term) {
        match terms
            .iter_mut()
            .find(|known| known.template == term.template)
        {
            Some(known) => known.weight += 1.0,
            None => terms.push(term),
        }
    }
    let shelves = machine.shelves.to_vec();
    let mut problem = Problem::new(&terms, &trace.columns, shelves);
    let segment_bytes = trace.segment_bytes as f64;
    let items = problem.items.iter_mut();
    items.for_each(|item| item.request_bytes = segment_bytes);
    let solution = exact(&problem)?;
    Ok((problem, solution))
}

struct Simulator<'a> {
    machine: &'a ShelfMachine,
    trace: &'a Trace,
    policy: CachePolicy,
    is_tuned: bool,
    /// Memory's and the disk's.
    caches: [Arc<CacheManager>; 2],
    /// What is in each of them besides columns.
    items: [Items; 2],
    tuner: Tuner,
    first_segments: BTreeMap<ColumnId, u32>,
    now_s: f64,
    next_step_s: f64,
    remote: StorageProgress,
    bytes: [u64; 3],
}

/// One query under way: two devices and the processors side by side, with a bounded number of bytes between them.
struct Run {
    delivered_s: [f64; 3],
    processed_s: f64,
    window: VecDeque<(f64, u64)>,
    window_bytes: u64,
    bytes: [u64; 3],
    busy_s: f64,
    wait_s: f64,
    remote_s: f64,
}

impl Run {
    fn row_group(
        &mut self,
        machine: &ShelfMachine,
        processing: f64,
        bytes: [u64; 3],
        requests: [u64; 3],
    ) {
        let all: u64 = bytes.iter().sum();
        self.window_bytes += all;
        let mut may_start_s = 0.0f64;
        while self.window_bytes > machine.lookahead_bytes.max(all) {
            let Some((processed_s, left)) = self.window.pop_front() else {
                break;
            };
            self.window_bytes -= left;
            may_start_s = processed_s;
        }
        let mut arrived_s = 0.0f64;
        for (idx, shelf) in machine.shelves.iter().enumerate().skip(1) {
            if bytes[idx] > 0 {
                let read_s = bytes[idx] as f64 / shelf.bandwidth
                    + requests[idx] as f64 * shelf.latency_s / shelf.in_flight;
                self.delivered_s[idx] = self.delivered_s[idx].max(may_start_s) + read_s;
                arrived_s = arrived_s.max(self.delivered_s[idx]);
                self.remote_s += if idx == 2 { read_s } else { 0.0 };
            }
        }
        let by_memory_s = all as f64 / machine.shelves[0].bandwidth;
        let process_s = by_memory_s.max(all as f64 / processing);
        self.wait_s += (arrived_s - self.processed_s).max(0.0);
        self.processed_s = self.processed_s.max(arrived_s) + process_s;
        self.busy_s += process_s;
        self.window.push_back((self.processed_s, all));
        self.bytes
            .iter_mut()
            .zip(bytes)
            .for_each(|(sum, bytes)| *sum += bytes);
    }
}

impl<'a> Simulator<'a> {
    fn new(machine: &'a ShelfMachine, trace: &'a Trace, policy: CachePolicy) -> Self {
        let mut segments = Vec::new();
        let mut first_segments = BTreeMap::new();
        for (column, bytes) in &trace.columns {
            first_segments.insert(*column, segments.len() as u32);
            let count = bytes.div_ceil(trace.segment_bytes.max(1)) as u32;
            segments.extend((0..count).map(|row_group_idx| SegmentInfo {
                column: *column,
                row_group_idx,
                charged_bytes: trace.segment_bytes,
                kind: SegmentKind::Data,
            }));
        }
        let cache = |shelf: usize| {
            let cache = CacheManager::new(CacheOptions {
                budget_bytes: machine.shelves[shelf].budget_bytes as u64,
                policy: PolicyKind::None,
                event_log_capacity: 0,
                partitions: 4,
                transit_bytes: Some(0),
                segment_bytes_min: 0,
            });
            policy.put_in_force(&cache);
            cache.add_file(Arc::new(NoDevice), segments.clone());
            cache
        };
        let caches = [cache(0), cache(1)];
        Self {
            machine,
            trace,
            policy,
            is_tuned: policy.is_tuned(),
            items: caches.each_ref().map(|cache| Items::new(trace, cache)),
            caches,
            tuner: Tuner::new(TunerOptions {
                memory_bandwidth: machine.shelves[0].bandwidth,
                ..TunerOptions::default()
            }),
            first_segments,
            now_s: 0.0,
            next_step_s: 0.0,
            remote: StorageProgress::default(),
            bytes: [0; 3],
        }
    }

    fn run(mut self) -> ShelvesRun {
        let query_s = (0..self.trace.queries.len()).map(|query_idx| self.query(query_idx));
        ShelvesRun {
            query_s: query_s.collect(),
            bytes: self.bytes,
            tuner: self.tuner.stats(),
        }
    }

    fn segment_count(&self, column: ColumnId) -> u64 {
        let bytes = self.trace.columns.get(&column).copied().unwrap_or(0);
        bytes.div_ceil(self.trace.segment_bytes.max(1))
    }

    /// The shelf on which a segment is found. All caches above are offered it.
    fn read(&self, key: SegmentKey, scan: &Arc<ScanContext>) -> usize {
        for (shelf, cache) in self.caches.iter().enumerate() {
            let before = scan.counters().bytes_cache;
            drop(ready(cache.request(key, scan)));
            if scan.counters().bytes_cache > before {
                return shelf;
            }
        }
        self.caches.len()
    }

    fn query(&mut self, query_idx: usize) -> f64 {
        let query = &self.trace.queries[query_idx];
        let scan = Arc::new(ScanContext::new(query_idx as u64, 0, template(query.name)));
        let [memory, disk] = &self.items;
        let asked = (self.trace, query);
        let items_s = memory.take_through(disk, asked, self.now_s, |bytes| self.below_s(bytes));
        let begins_s = self.now_s + items_s;
        let mut run = Run {
            delivered_s: [begins_s; 3],
            processed_s: begins_s,
            window: VecDeque::new(),
            window_bytes: 0,
            bytes: [0; 3],
            busy_s: 0.0,
            wait_s: 0.0,
            remote_s: 0.0,
        };
        let counts = query
            .columns
            .iter()
            .map(|column| self.segment_count(*column));
        for row_group_idx in 0..counts.max().unwrap_or(0) {
            let (mut bytes, mut requests) = ([0; 3], [0; 3]);
            for column in &query.columns {
                if row_group_idx < self.segment_count(*column) {
                    let key = SegmentKey {
                        file: FileId(0),
                        segment_idx: self.first_segments[column] + row_group_idx as u32,
                    };
                    let shelf = self.read(key, &scan);
                    bytes[shelf] += self.trace.segment_bytes;
                    requests[shelf] += 1;
                }
            }
            run.row_group(self.machine, query.processing_bandwidth, bytes, requests);
            while run.processed_s >= self.next_step_s {
                self.next_step_s += 0.2;
                self.tune(query_idx, &run, false);
            }
        }
        self.tune(query_idx, &run, true);
        self.remote = self.progress(&run);
        self.bytes
            .iter_mut()
            .zip(run.bytes)
            .for_each(|(sum, bytes)| *sum += bytes);
        let time_s = run.processed_s - self.now_s;
        self.now_s = run.processed_s;
        time_s
    }

    /// What an item takes from the disk and from remote storage, in seconds.
    fn below_s(&self, bytes: u64) -> [f64; 2] {
        [1, 2].map(|idx: usize| {
            let shelf = &self.machine.shelves[idx];
            shelf.latency_s + bytes as f64 / shelf.bandwidth
        })
    }

    /// What queries use besides columns, as the tuner knows it.
    fn uses(&self) -> Vec<ItemUse> {
        let of_shelves = |item: ItemUse| {
            let [disk_s, remote_s] = self.below_s(item.bytes);
            ItemUse {
                home: 2,
                use_s: [0.0, disk_s, remote_s, 0.0],
                ..item
            }
        };
        self.items[0].uses().into_iter().map(of_shelves).collect()
    }

    /// What remote storage did, the query under way included.
    fn progress(&self, run: &Run) -> StorageProgress {
        StorageProgress {
            bytes: self.remote.bytes + run.bytes[2],
            reading_ns: self.remote.reading_ns + nanos(run.remote_s),
            wait_ns: self.remote.wait_ns + nanos(run.wait_s),
        }
    }

    fn tune(&mut self, query_idx: usize, run: &Run, finished: bool) {
        if !self.is_tuned {
            return;
        }
        let query = &self.trace.queries[query_idx];
        let size = |column: &ColumnId| (*column, self.trace.columns[column]);
        let observation = Observation {
            query: query_idx as u64,
            pipeline: 0,
            template: template(query.name),
            columns: query.columns.iter().map(size).collect(),
            processed_bytes: run.bytes.iter().sum(),
            storage_bytes: run.bytes[2],
            busy_ns: nanos(run.busy_s),
            wait_ns: nanos(run.wait_s),
            worker_count: 1,
            priority: query.priority,
            finished,
        };
        let sizes = self.caches[0].column_sizes();
        let resident = self.caches[0].resident_bytes();
        let uses = self.uses();
        let budget = self.caches[0].budget();
        let input = TunerInput {
            observations: &[observation],
            storage: self.progress(run),
            sizes: &sizes,
            resident: &resident,
            capacity_bytes: budget.limit_bytes() - budget.transit_bytes(),
            policy: self.policy.resembles(),
            between: &self.machine.shelves[1..2],
            uses: &uses,
            use_s: run.processed_s,
        };
        if let TunerStep::Placed(placement) = self.tuner.step(nanos(run.processed_s), &input) {
            self.caches[0].set_placement(placement);
            self.caches[1].set_placement(self.tuner.placement_on(1));
        }
        // Each cache has the price of its own shelf.
        let prices = self.tuner.prices();
        for (shelf, cache) in self.caches.iter().enumerate() {
            let mut of_shelf = prices;
            of_shelf.shelves[0] = prices.shelves[shelf];
            cache.price_board().publish(&of_shelf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{Benchmark, Order, benchmark_trace, with_items};

    #[test]
    fn three_shelves_are_used_and_price_beats_recency() {
        let mut trace = benchmark_trace(Benchmark::Ssb, Order::InTurn);
        trace.queries.truncate(20);
        trace.segment_bytes = 20_000_000;
        let run = |policy| simulate_shelves(&ShelfMachine::small(150e6), &trace, policy);
        let (priced, recent) = (run(CachePolicy::HpCache), run(CachePolicy::Lru));
        assert!(
            priced.bytes.iter().all(|bytes| *bytes > 0),
            "{:?}",
            priced.bytes
        );
        let (priced_s, recent_s) = (priced.total_s(), recent.total_s());
        assert!(priced_s < recent_s, "{priced_s} {recent_s}");
    }

    #[test]
    fn on_three_shelves_items_share_the_memory_and_price_still_beats_recency() {
        let mut trace = benchmark_trace(Benchmark::Ssb, Order::InTurn);
        trace.queries.truncate(20);
        trace.segment_bytes = 20_000_000;
        let machine = ShelfMachine::small(150e6);
        let trace = with_items(trace, 20_000_000, machine.shelves[2].bandwidth);
        let run = |policy| simulate_shelves(&machine, &trace, policy).total_s();
        let (priced_s, recent_s) = (run(CachePolicy::HpCache), run(CachePolicy::Lru));
        assert!(priced_s < recent_s, "{priced_s} {recent_s}");
        assert_eq!(
            priced_s,
            run(CachePolicy::HpCache),
            "simulations repeat exactly"
        );
    }
}
