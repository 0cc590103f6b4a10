//! One run of one pipeline, as the engine measured it.

use crate::key::ColumnId;

/// What one run of a pipeline read and how fast its workers were. Reported when the run ends, and as often as
/// wanted before (with what is known so far).
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Number of the query; runs of one query have the same age.
    pub query: u64,
    /// Number of the pipeline in its query.
    pub pipeline: u32,
    /// Fingerprint of the plan without literals.
    pub template: u64,
    /// The columns the pipeline reads, with the charged bytes of each that remain after pruning, for the whole
    /// run even while it is under way.
    pub columns: Vec<(ColumnId, u64)>,
    /// Of those bytes, how many were processed so far.
    pub processed_bytes: u64,
    /// Charged bytes that were read from storage for the run so far.
    pub storage_bytes: u64,
    /// Time that workers spent processing (not waiting for input), summed over workers, in nanoseconds.
    pub busy_ns: u64,
    /// Time that workers waited for input, summed over workers, in nanoseconds.
    pub wait_ns: u64,
    /// How many workers ran the pipeline.
    pub worker_count: u32,
    /// How much the query's time matters; 1 is normal.
    pub priority: f64,
    /// Whether the run has ended.
    pub finished: bool,
}

impl Observation {
    /// The pipeline's own throughput `P_bw` (§4.1): the rate, in bytes per second, at which all workers together
    /// would process input that is always there. `None` before anything was measured.
    pub fn processing_bandwidth(&self) -> Option<f64> {
        let busy_s = self.busy_ns as f64 * 1e-9;
        let bandwidth = f64::from(self.worker_count) * self.processed_bytes as f64 / busy_s;
        (bandwidth.is_finite() && bandwidth > 0.0).then_some(bandwidth)
    }

    /// The priority, as far as it makes sense.
    pub(crate) fn weight(&self) -> f64 {
        if self.priority.is_nan() {
            return 1.0;
        }
        self.priority.clamp(0.0, 1e9)
    }

    /// The time of the run in seconds: busy and waiting, shared by the workers.
    pub fn run_s(&self) -> Option<f64> {
        let worker_s = (self.busy_ns as f64 + self.wait_ns as f64) * 1e-9;
        (self.worker_count > 0).then(|| worker_s / f64::from(self.worker_count))
    }
}

/// A pipeline that runs now and can be asked how it is doing.
pub trait RunningPipeline: Send + Sync {
    /// What it did so far; nothing before its first row group and after its end.
    fn observe(&self) -> Option<Observation>;
}
