//! What the workers of one execution of a scan did: counted while they run, and reported as a pipeline's run and as an
//! observation for the cache's tuner (HPCache §4.1).

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use arrow::array::RecordBatch;
use hotshelf_cache::model::Observation;
use hotshelf_cache::{ColumnId, ScanContext};
use parking_lot::Mutex;

use super::file::Morsel;
use super::plan::ScanPlan;
use crate::index::Selected;
use crate::pipelines::{PipelineRun, decoded_bytes};

/// What the workers of a scan did so far.
#[derive(Default)]
pub(crate) struct Work {
    /// Bytes in memory that each column's segments took, by index in the table.
    column_bytes: Mutex<BTreeMap<usize, u64>>,
    /// Row groups that workers are done with.
    row_groups: AtomicU64,
    /// Row groups that were filtered, and those of them in which rows survived.
    filtered: AtomicU64,
    matched: AtomicU64,
    pub pruned: Pruned,
    pub narrowing: NarrowedRows,
    pub busy_ns: AtomicU64,
    pub wait_ns: AtomicU64,
    /// Rows that were tested without an Elf's answer, and what filters and look-ups took for them.
    tested_rows: AtomicU64,
    testing_ns: AtomicU64,
    rows_in: AtomicU64,
    rows_kept: AtomicU64,
    decoded_bytes: AtomicU64,
    begun: OnceLock<Instant>,
    elapsed_ns: AtomicU64,
    /// Whether a worker found no more row groups.
    drained: AtomicBool,
    /// Workers that read, and those of them that have not ended.
    workers: AtomicU32,
    workers_remaining: AtomicU32,
}

/// Rows that were tested by what became known while the query ran, and those that passed.
#[derive(Default)]
pub(crate) struct NarrowedRows {
    tested: AtomicU64,
    passed: AtomicU64,
}

/// This many rows show whether testing more pays: it does where at most the second part of them passes.
const NARROWING_TRIAL_ROWS: u64 = 1 << 18;
const NARROWING_PART_MAX: f64 = 0.75;

impl NarrowedRows {
    /// Counts rows.
    pub fn add(&self, tested: usize, passed: usize) {
        self.tested.fetch_add(tested as u64, Ordering::Relaxed);
        self.passed.fetch_add(passed as u64, Ordering::Relaxed);
    }

    /// Whether enough rows are dropped, as far as was seen.
    pub fn pays(&self) -> bool {
        let tested = self.tested.load(Ordering::Relaxed);
        let passed = self.passed.load(Ordering::Relaxed);
        tested < NARROWING_TRIAL_ROWS || passed as f64 <= NARROWING_PART_MAX * tested as f64
    }
}

/// What was skipped. Reads of a part of it may have begun.
#[derive(Default)]
pub(crate) struct Pruned {
    pub row_groups: AtomicU64,
    pub bytes: AtomicU64,
}

impl Pruned {
    /// Counts a row group.
    pub fn add(&self, bytes: u64) {
        self.row_groups.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Work {
    /// A worker begins. True for the first.
    pub fn enter(&self) -> bool {
        self.begun.get_or_init(Instant::now);
        self.workers_remaining.fetch_add(1, Ordering::Relaxed);
        self.workers.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// A worker ends. True for the last.
    pub fn leave(&self) -> bool {
        let elapsed = self.begun.get().map(Instant::elapsed);
        let elapsed_ns = elapsed.unwrap_or_default().as_nanos() as u64;
        self.elapsed_ns.fetch_max(elapsed_ns, Ordering::Relaxed);
        self.workers_remaining.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Workers that have begun, at least one.
    pub fn worker_count(&self) -> usize {
        self.workers.load(Ordering::Relaxed).max(1) as usize
    }

    /// Row groups that workers are done with.
    pub fn row_group_count(&self) -> usize {
        self.row_groups.load(Ordering::Relaxed) as usize
    }

    /// Whether workers are still reading.
    pub fn is_under_way(&self) -> bool {
        self.workers_remaining.load(Ordering::Acquire) > 0
    }

    /// Notes that there are no more row groups to take.
    pub fn drain(&self) {
        self.drained.store(true, Ordering::Relaxed);
    }

    /// Whether all row groups were taken. If not, the query was cancelled, failed, or had enough.
    pub fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed)
    }

    /// Counts a row group that was filtered.
    pub fn filter(&self) {
        self.filtered.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what testing the rows of a row group took. Where an Elf has chosen some of them, that says nothing about
    /// scans: rows are decoded with their neighbours.
    pub fn test(&self, morsel: &Morsel, took_ns: f64) {
        if matches!(morsel.selected, Selected::Unknown) {
            let rows = morsel.rows.end - morsel.rows.start;
            self.tested_rows.fetch_add(rows, Ordering::Relaxed);
            self.testing_ns.fetch_add(took_ns as u64, Ordering::Relaxed);
        }
    }

    /// Tells the price book what testing rows took.
    pub fn teach(&self, plan: &ScanPlan) {
        let rows = self.tested_rows.load(Ordering::Relaxed) as f64;
        let done = plan
            .work_per_row()
            .map(|(unit, count)| (unit, rows * count as f64));
        let took_ns = self.testing_ns.load(Ordering::Relaxed) as f64;
        plan.prices.learn(&done, took_ns);
    }

    /// Counts one in which rows survived.
    pub fn survive(&self) {
        self.matched.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether rows survive in most row groups, as far as was seen.
    pub fn rows_usually_survive(&self) -> bool {
        let filtered = self.filtered.load(Ordering::Relaxed);
        filtered < 4 || self.matched.load(Ordering::Relaxed) * 2 > filtered
    }

    /// Counts rows that came from an index.
    pub fn cover(&self, rows: usize) {
        self.rows_in.fetch_add(rows as u64, Ordering::Relaxed);
        self.keep(rows);
    }

    /// Counts rows that went on.
    pub fn keep(&self, rows: usize) {
        self.rows_kept.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Counts what was decoded.
    pub fn decode_bytes(&self, bytes: u64) {
        self.decoded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a decoded batch.
    pub fn decode_batch(&self, batch: &RecordBatch) {
        let columns = batch.columns().iter();
        self.decode_bytes(columns.map(|column| decoded_bytes(column)).sum());
    }

    /// Counts a row group that a worker is done with, and what it read of it.
    pub fn finish(&self, morsel: &Morsel, columns: &[usize]) {
        let map = &morsel.file.file.map;
        let rows = morsel.rows.end - morsel.rows.start;
        self.rows_in.fetch_add(rows, Ordering::Relaxed);
        self.row_groups.fetch_add(1, Ordering::Relaxed);
        let mut column_bytes = self.column_bytes.lock();
        for &column in columns {
            let segments = map.data_segments(column, morsel.row_group_idx);
            *column_bytes.entry(column).or_default() += segments
                .iter()
                .filter(|idx| map.starts_in(**idx, morsel.row_group_idx))
                .map(|idx| map.charged_bytes(*idx))
                .sum::<u64>();
        }
    }

    /// All that was counted.
    pub fn run(&self, plan: &ScanPlan, context: &ScanContext) -> PipelineRun {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        PipelineRun {
            query: context.query,
            pipeline: context.pipeline,
            template: context.template,
            table: plan.table.clone(),
            operator: plan.operator,
            workers: self.workers.load(Ordering::Relaxed),
            row_groups: load(&self.row_groups),
            row_groups_pruned: load(&self.pruned.row_groups),
            rows_in: load(&self.rows_in),
            rows_kept: load(&self.rows_kept),
            encoded_bytes: self.column_bytes.lock().values().sum(),
            decoded_bytes: load(&self.decoded_bytes),
            counters: context.counters(),
            busy_ns: load(&self.busy_ns),
            wait_ns: load(&self.wait_ns),
            elapsed_ns: load(&self.elapsed_ns),
            finished: self.is_drained(),
        }
    }

    /// The same for the tuner, if anything was read. Where the run is not over, what it will have read is estimated
    /// as if the row groups to come were like those so far.
    pub fn observation(&self, plan: &ScanPlan, context: &ScanContext) -> Option<Observation> {
        let is_over = !self.is_under_way();
        let growth = match is_over {
            true => 1.0,
            false => self.growth(plan),
        };
        let column_bytes = self.column_bytes.lock();
        let columns: Vec<(ColumnId, u64)> = column_bytes
            .iter()
            .map(|(column, bytes)| (plan.column_ids[*column], (*bytes as f64 * growth) as u64))
            .collect();
        let processed_bytes = column_bytes.values().sum();
        (processed_bytes > 0).then(|| Observation {
            query: context.query,
            pipeline: context.pipeline,
            template: context.template,
            columns,
            processed_bytes,
            storage_bytes: context.counters().bytes_storage,
            busy_ns: self.busy_ns.load(Ordering::Relaxed),
            wait_ns: self.wait_ns.load(Ordering::Relaxed),
            worker_count: self.workers.load(Ordering::Relaxed),
            priority: plan.priority,
            finished: is_over && self.is_drained(),
        })
    }

    /// The bytes of the whole run for each byte read so far.
    fn growth(&self, plan: &ScanPlan) -> f64 {
        let done = self.row_groups.load(Ordering::Relaxed);
        let pruned = self.pruned.row_groups.load(Ordering::Relaxed);
        let files = plan.files.iter();
        let all: usize = files.map(|file| file.row_group_count()).sum();
        let remaining = (all as u64).saturating_sub(done + pruned) as f64;
        let match_share = done as f64 / (done + pruned).max(1) as f64;
        1.0 + remaining * match_share / done.max(1) as f64
    }
}
