//! How long things take on the modelled machine.

use std::collections::VecDeque;

/// A machine as the model sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Of all drives together, in bytes per second.
    pub storage_bandwidth: f64,
    /// Of the memory, in bytes per second.
    pub memory_bandwidth: f64,
    /// How often a byte that comes from storage crosses the memory bus: written once, read once. Cached bytes
    /// cross it once.
    pub missing_byte_passes: f64,
    /// Bytes that the engine has under way ahead of processing.
    pub lookahead_bytes: u64,
    /// Time of a query outside its main pipeline, in seconds.
    pub setup_s: f64,
}

/// One pipeline run: two stages, storage and processing, with a bounded number of bytes between them.
pub(super) struct Run<'a> {
    machine: &'a Machine,
    processing_bandwidth: f64,
    /// When the storage has delivered all that was asked for so far.
    delivered_s: f64,
    /// When the pipeline has processed all of that.
    processed_s: f64,
    /// Row groups under way or processed lately: when each was processed, and its bytes.
    window: VecDeque<(f64, u64)>,
    window_bytes: u64,
    processed_bytes: u64,
    busy_s: f64,
    wait_s: f64,
    storage_busy_s: f64,
}

impl<'a> Run<'a> {
    pub(super) fn new(machine: &'a Machine, start_s: f64, processing_bandwidth: f64) -> Self {
        Self {
            machine,
            processing_bandwidth,
            delivered_s: start_s,
            processed_s: start_s,
            window: VecDeque::new(),
            window_bytes: 0,
            processed_bytes: 0,
            busy_s: 0.0,
            wait_s: 0.0,
            storage_busy_s: 0.0,
        }
    }

    /// The next row group: its missing bytes are read as soon as the look-ahead allows, then it is processed.
    pub(super) fn row_group(&mut self, missing_bytes: u64, cached_bytes: u64) {
        let bytes = missing_bytes + cached_bytes;
        self.window_bytes += bytes;
        let mut may_start_s = 0.0f64;
        while self.window_bytes > self.machine.lookahead_bytes.max(bytes) {
            let Some((processed_s, processed_bytes)) = self.window.pop_front() else {
                break;
            };
            self.window_bytes -= processed_bytes;
            may_start_s = processed_s;
        }
        let read_s = missing_bytes as f64 / self.machine.storage_bandwidth;
        if missing_bytes > 0 {
            self.delivered_s = self.delivered_s.max(may_start_s) + read_s;
            self.storage_busy_s += read_s;
        }
        let arrived_s = if missing_bytes > 0 {
            self.delivered_s
        } else {
            0.0
        };
        let process_s = self.process_s(missing_bytes as f64, cached_bytes as f64);
        self.wait_s += (arrived_s - self.processed_s).max(0.0);
        self.processed_s = self.processed_s.max(arrived_s) + process_s;
        self.busy_s += process_s;
        self.processed_bytes += bytes;
        self.window.push_back((self.processed_s, bytes));
    }

    fn process_s(&self, missing_bytes: f64, cached_bytes: f64) -> f64 {
        let bus_bytes = self.machine.missing_byte_passes * missing_bytes + cached_bytes;
        let by_memory_s = bus_bytes / self.machine.memory_bandwidth;
        by_memory_s.max((missing_bytes + cached_bytes) / self.processing_bandwidth)
    }

    pub(super) fn now_s(&self) -> f64 {
        self.processed_s
    }

    pub(super) fn processed_bytes(&self) -> u64 {
        self.processed_bytes
    }

    pub(super) fn busy_s(&self) -> f64 {
        self.busy_s
    }

    pub(super) fn wait_s(&self) -> f64 {
        self.wait_s
    }

    pub(super) fn storage_busy_s(&self) -> f64 {
        self.storage_busy_s
    }
}
