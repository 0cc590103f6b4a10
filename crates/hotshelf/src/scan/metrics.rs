//! What a scan counts, for `EXPLAIN ANALYZE`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, Time,
};
use hotshelf_cache::ScanCounters;
use hotshelf_cache::model::Observation;
use parking_lot::Mutex;

use super::queue::ScanQueue;
use crate::pipelines::PipelineRun;

/// What a scan counts, as `EXPLAIN ANALYZE` shows it.
#[derive(Clone)]
pub(crate) struct ScanMetrics {
    pub(super) baseline: BaselineMetrics,
    bytes_cache: Count,
    bytes_storage: Count,
    bytes_shared: Count,
    bytes_pruned: Count,
    row_groups_pruned: Count,
    /// The pipeline's throughput in MB/s of encoded and of decoded bytes, reported by its last worker.
    p_bw_encoded: Gauge,
    p_bw_decoded: Gauge,
    /// Time in which the worker waited for a read.
    pub(super) io_wait: Time,
    /// Time in which it filtered and decoded.
    pub(super) decode: Time,
    /// Time between handing out a batch and being asked for the next: the work above the scan.
    pub(super) downstream: Time,
    reported: Arc<Mutex<Reported>>,
    /// For what only one worker reports.
    set: ExecutionPlanMetricsSet,
    partition: usize,
}

/// What of the scan-wide counters went into the metrics already.
#[derive(Default)]
pub(crate) struct Reported {
    counters: ScanCounters,
    row_groups_pruned: u64,
    bytes_pruned: u64,
}

impl ScanMetrics {
    pub fn new(
        set: &ExecutionPlanMetricsSet,
        partition: usize,
        reported: Arc<Mutex<Reported>>,
    ) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(set).counter(name, partition);
        let gauge = |name: &'static str| MetricBuilder::new(set).gauge(name, partition);
        let time = |name: &'static str| MetricBuilder::new(set).subset_time(name, partition);
        Self {
            baseline: BaselineMetrics::new(set, partition),
            bytes_cache: counter("bytes_cache"),
            bytes_storage: counter("bytes_storage"),
            bytes_shared: counter("bytes_shared"),
            bytes_pruned: counter("bytes_pruned"),
            row_groups_pruned: counter("row_groups_pruned"),
            p_bw_encoded: gauge("p_bw_encoded_mb_s"),
            p_bw_decoded: gauge("p_bw_decoded_mb_s"),
            io_wait: time("io_wait"),
            decode: time("decode"),
            downstream: time("downstream"),
            reported,
            set: set.clone(),
            partition,
        }
    }

    /// The pipeline's throughput.
    pub(super) fn report_throughput(&self, run: &PipelineRun) {
        let mb_s = |bytes| (run.bandwidth(bytes) * 1e-6) as usize;
        self.p_bw_encoded.set(mb_s(run.encoded_bytes));
        self.p_bw_decoded.set(mb_s(run.decoded_bytes));
    }

    /// How often the worker ran on the processors near its table's shelf, where the table is to be read from there.
    pub(super) fn report_near(&self, polls: usize) {
        let metric = MetricBuilder::new(&self.set).counter("near_polls", self.partition);
        metric.add(polls);
    }

    /// How long the pipeline ran, and what the tuner had predicted when it began.
    pub(super) fn report_run(&self, run: &Observation, predicted_s: Option<f64>) {
        let report = |name: &'static str, seconds: Option<f64>| {
            let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            if let Some(time) = time {
                let metric = MetricBuilder::new(&self.set).subset_time(name, self.partition);
                metric.add_duration(time);
            }
        };
        report("pipeline_time", run.run_s());
        report("predicted_time", predicted_s);
    }

    /// Adds what the whole scan counted since the last report.
    pub(super) fn report(&self, queue: &ScanQueue) {
        let mut reported = self.reported.lock();
        let pruned = &queue.work.pruned;
        let now = Reported {
            counters: queue.context.counters(),
            row_groups_pruned: pruned.row_groups.load(Ordering::Relaxed),
            bytes_pruned: pruned.bytes.load(Ordering::Relaxed),
        };
        // A scan that runs a second time counts from zero, while streams of its first run may still end.
        let (new, old) = (&now.counters, &reported.counters);
        let add = |metric: &Count, new: u64, old: u64| metric.add(new.saturating_sub(old) as usize);
        add(&self.bytes_cache, new.bytes_cache, old.bytes_cache);
        add(&self.bytes_storage, new.bytes_storage, old.bytes_storage);
        add(&self.bytes_shared, new.bytes_shared, old.bytes_shared);
        let (row_groups, bytes) = (reported.row_groups_pruned, reported.bytes_pruned);
        add(&self.row_groups_pruned, now.row_groups_pruned, row_groups);
        add(&self.bytes_pruned, now.bytes_pruned, bytes);
        *reported = now;
    }
}
