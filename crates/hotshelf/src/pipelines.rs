//! The latest runs of pipelines, as `pipelines()` shows them.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;
use hotshelf_cache::ScanCounters;
use hotshelf_cache::tuner::TunerThread;
use parking_lot::Mutex;

/// Runs that are remembered.
const RUNS_MAX: usize = 4096;

/// What runs a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    /// One operator from the scan to the aggregation: its throughput is measured.
    Star,
    /// DataFusion's operators above a scan: what they take is estimated from the gaps between the scan's polls.
    Scan,
}

impl Operator {
    pub fn name(self) -> &'static str {
        match self {
            Self::Star => "star",
            Self::Scan => "scan",
        }
    }
}

/// One run of one pipeline as its workers counted it.
#[derive(Debug, Clone)]
pub(crate) struct PipelineRun {
    pub query: u64,
    pub pipeline: u32,
    pub template: u64,
    pub table: String,
    pub operator: Operator,
    pub workers: u32,
    pub row_groups: u64,
    pub row_groups_pruned: u64,
    /// Rows of the row groups that were read, before filters.
    pub rows_in: u64,
    /// Rows that came out of the scan, or passed a star's look-ups and filters.
    pub rows_kept: u64,
    /// Bytes of the segments that were processed.
    pub encoded_bytes: u64,
    /// Bytes of the arrays that were decoded from them.
    pub decoded_bytes: u64,
    pub counters: ScanCounters,
    /// Time that workers computed, summed over workers, in nanoseconds.
    pub busy_ns: u64,
    /// Time that workers waited for reads, summed over workers, in nanoseconds.
    pub wait_ns: u64,
    /// From the first worker's start to the last one's end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Whether all row groups were taken; not if the query was cancelled or had enough.
    pub finished: bool,
}

impl PipelineRun {
    /// Bytes per second that the workers would process together if input were always there (`P_bw` of HPCache).
    pub fn bandwidth(&self, bytes: u64) -> f64 {
        if self.busy_ns == 0 {
            return 0.0;
        }
        f64::from(self.workers) * bytes as f64 / (self.busy_ns as f64 * 1e-9)
    }

    /// The throughput in encoded and in decoded bytes, for EXPLAIN ANALYZE.
    pub fn describe(&self) -> String {
        format!(
            "P_bw={:.2} GB/s encoded, {:.2} GB/s decoded",
            self.bandwidth(self.encoded_bytes) * 1e-9,
            self.bandwidth(self.decoded_bytes) * 1e-9
        )
    }
}

/// What learns of runs.
#[derive(Clone)]
pub(crate) struct Observers {
    pub tuner: Option<Arc<TunerThread>>,
    pub log: Arc<PipelineLog>,
}

impl Observers {
    pub fn new(tuner: &Option<Arc<TunerThread>>, log: &Arc<PipelineLog>) -> Self {
        Self {
            tuner: tuner.clone(),
            log: log.clone(),
        }
    }
}

/// The runs, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PipelineLog {
    runs: Mutex<VecDeque<PipelineRun>>,
}

impl PipelineLog {
    pub fn add(&self, run: PipelineRun) {
        let mut runs = self.runs.lock();
        if runs.len() == RUNS_MAX {
            runs.pop_front();
        }
        runs.push_back(run);
    }

    pub fn runs(&self) -> Vec<PipelineRun> {
        self.runs.lock().iter().cloned().collect()
    }
}

/// Bytes of the values of an array: what decoding wrote, whatever the buffers behind it hold besides.
pub(crate) fn decoded_bytes(array: &dyn Array) -> u64 {
    let rows = array.len() as u64;
    let text = |bytes: usize| bytes as u64 + rows * 4;
    match array.data_type() {
        DataType::Boolean => rows.div_ceil(8),
        DataType::Utf8 => text(spanned(array.as_string::<i32>().value_offsets())),
        DataType::Binary => text(spanned(array.as_binary::<i32>().value_offsets())),
        DataType::Utf8View => 16 * rows + array.as_string_view().total_buffer_bytes_used() as u64,
        DataType::BinaryView => 16 * rows + array.as_binary_view().total_buffer_bytes_used() as u64,
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            decoded_bytes(dictionary.keys()) + decoded_bytes(dictionary.values().as_ref())
        }
        other => match other.primitive_width() {
            Some(width) => rows * width as u64,
            None => array.to_data().get_slice_memory_size().unwrap_or(0) as u64,
        },
    }
}

fn spanned(offsets: &[i32]) -> usize {
    match offsets {
        [first, .., last] => (last - first) as usize,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, BooleanArray, Int32Array, StringArray, StringViewArray};

    #[test]
    fn decoded_bytes_are_those_of_the_values() {
        let long = "a text too long to fit in its view";
        let cases: [(ArrayRef, u64); 4] = [
            (Arc::new(Int32Array::from(vec![1, 2, 3])), 12),
            (Arc::new(BooleanArray::from(vec![true; 9])), 2),
            (Arc::new(StringArray::from(vec!["ab", "c", ""])), 3 + 12),
            (
                Arc::new(StringViewArray::from(vec!["ab", long])),
                32 + long.len() as u64,
            ),
        ];
        for (array, bytes) in cases {
            assert_eq!(decoded_bytes(&array), bytes, "{}", array.data_type());
            assert_eq!(decoded_bytes(&array.slice(0, 0)), 0);
        }
    }

    #[test]
    fn the_log_forgets_the_oldest_runs() {
        let log = PipelineLog::default();
        for query in 0..RUNS_MAX as u64 + 3 {
            log.add(PipelineRun {
                query,
                pipeline: 0,
                template: 0,
                table: String::new(),
                operator: Operator::Star,
                workers: 2,
                row_groups: 0,
                row_groups_pruned: 0,
                rows_in: 0,
                rows_kept: 0,
                encoded_bytes: 10,
                decoded_bytes: 20,
                counters: ScanCounters::default(),
                busy_ns: 4,
                wait_ns: 0,
                elapsed_ns: 2,
                finished: true,
            });
        }
        let runs = log.runs();
        assert_eq!((runs.len(), runs[0].query), (RUNS_MAX, 3));
        assert_eq!(runs[0].bandwidth(10), 5e9);
    }
}
