//! The emulated device as a pure state machine: requests go in at given times, and their ends come out.
//!
//! The device serves one request after the other at the bandwidth its model has for the present mixture of threads,
//! and no request ends before its latency has passed. A thread with too many requests in flight waits for its oldest.
//! Time is a number that the caller supplies, so a simulation and a real clock use the same code.

use std::collections::{HashSet, VecDeque};

use super::model::DeviceModel;
use crate::probe::{Operation, Pattern};

/// A thread counts as active for this long after its last request ended.
const ACTIVE_NS: u64 = 2_000;
/// How far the device may be behind the clock and still catch up: hides the time callers need between two requests.
const CATCH_UP_NS: u64 = 2_000;
/// Far memory is warm after its first touch in pieces of this size.
const WARM_BYTES: u64 = 2 << 20;

/// One access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Direction.
    pub operation: Operation,
    /// Whether it continues an earlier access.
    pub pattern: Pattern,
    /// First byte.
    pub offset: u64,
    /// Length.
    pub len_bytes: u64,
    /// Who asks.
    pub thread: u32,
    /// Whether the asker sits on another socket.
    pub far: bool,
}

/// The state of an emulated device.
#[derive(Debug, Clone)]
pub struct Device {
    model: DeviceModel,
    free_ns: f64,
    streams: Vec<Stream>,
    warm: HashSet<u64>,
}

/// What one thread does in one direction.
#[derive(Debug, Clone)]
struct Stream {
    thread: u32,
    operation: Operation,
    in_flight: VecDeque<u64>,
    last_end_ns: u64,
    next_offset: u64,
}

impl Device {
    /// An idle device.
    pub fn new(model: DeviceModel) -> Self {
        Self {
            model,
            free_ns: 0.0,
            streams: Vec::new(),
            warm: HashSet::new(),
        }
    }

    /// The figures it works by.
    pub fn model(&self) -> &DeviceModel {
        &self.model
    }

    /// Whether an access of this thread continues its last one.
    pub fn pattern_of(&self, thread: u32, operation: Operation, offset: u64) -> Pattern {
        let stream = self
            .streams
            .iter()
            .find(|s| (s.thread, s.operation) == (thread, operation));
        match stream.is_some_and(|stream| stream.next_offset == offset) {
            true => Pattern::Sequential,
            false => Pattern::Random,
        }
    }

    /// Takes a request at `now_ns` and says when it ends. Times must not run backwards by more than a few requests.
    pub fn submit(&mut self, now_ns: u64, request: &Request) -> u64 {
        let stream_idx = self.stream_idx(request);
        let outstanding_max = self.model.outstanding_per_thread.max(1);
        let stream = &mut self.streams[stream_idx];
        stream.in_flight.retain(|end_ns| *end_ns > now_ns);
        let mut start_ns = now_ns;
        while stream.in_flight.len() >= outstanding_max {
            start_ns = stream
                .in_flight
                .pop_front()
                .map_or(start_ns, |end_ns| end_ns.max(start_ns));
        }
        stream.last_end_ns = u64::MAX;
        let service_ns = request.len_bytes as f64 * 1e9 / self.bandwidth(now_ns, request);
        let earliest_ns = start_ns.saturating_sub(CATCH_UP_NS) as f64;
        self.free_ns = self.free_ns.max(earliest_ns) + service_ns;
        let latency_ns = self
            .model
            .direction(request.operation)
            .latency_ns(request.pattern);
        let end_ns = (self.free_ns.ceil() as u64).max(start_ns + latency_ns);
        let stream = &mut self.streams[stream_idx];
        stream.last_end_ns = end_ns;
        stream.next_offset = request.offset + request.len_bytes;
        let at = stream
            .in_flight
            .partition_point(|other_ns| *other_ns <= end_ns);
        stream.in_flight.insert(at, end_ns);
        end_ns
    }

    /// Takes over which far memory another state has touched.
    pub(super) fn take_warmth(&mut self, other: &mut Self) {
        self.warm = std::mem::take(&mut other.warm);
    }

    fn bandwidth(&mut self, now_ns: u64, request: &Request) -> f64 {
        let active = |operation| {
            let streams = self.streams.iter().filter(|s| s.operation == operation);
            streams
                .filter(|s| s.last_end_ns.saturating_add(ACTIVE_NS) > now_ns)
                .count()
        };
        let (readers, writers) = (active(Operation::Read), active(Operation::Write));
        let threads = match request.operation {
            Operation::Read => readers,
            Operation::Write => writers,
        };
        let threads = u32::try_from(threads).unwrap_or(u32::MAX);
        let direction = self.model.direction(request.operation);
        let mut bandwidth = direction.bandwidth(request.pattern, request.len_bytes, threads);
        bandwidth *= self.grain_efficiency(request);
        if readers > 0 && writers > 0 {
            bandwidth *= self.model.mixed_efficiency;
        }
        bandwidth * self.far_efficiency(request)
    }

    /// Useful bytes by moved bytes. The grids were measured with aligned accesses, so of a random access only the
    /// grains that better alignment would save count as waste, and of a model without a grid all of them; neighbours of
    /// a sequential access share their grains.
    fn grain_efficiency(&self, request: &Request) -> f64 {
        let grain = self.model.grain_bytes.max(1);
        if request.pattern == Pattern::Sequential || request.len_bytes == 0 {
            return 1.0;
        }
        let last = request.offset.saturating_add(request.len_bytes - 1);
        let touched_bytes = (last / grain - request.offset / grain + 1) * grain;
        let direction = self.model.direction(request.operation);
        let least_bytes = match direction.random.is_constant() {
            true => request.len_bytes,
            false => request.len_bytes.div_ceil(grain) * grain,
        };
        least_bytes as f64 / touched_bytes as f64
    }

    fn far_efficiency(&mut self, request: &Request) -> f64 {
        let far = self.model.far;
        match (request.far, request.operation) {
            (false, _) => 1.0,
            (true, Operation::Write) => far.write,
            (true, Operation::Read) => {
                let first = self.warm.insert(request.offset / WARM_BYTES);
                if first { far.first_read } else { far.read }
            }
        }
    }

    fn stream_idx(&mut self, request: &Request) -> usize {
        let key = (request.thread, request.operation);
        let found = self
            .streams
            .iter()
            .position(|s| (s.thread, s.operation) == key);
        found.unwrap_or_else(|| {
            self.streams.push(Stream {
                thread: request.thread,
                operation: request.operation,
                in_flight: VecDeque::new(),
                last_end_ns: 0,
                next_offset: u64::MAX,
            });
            self.streams.len() - 1
        })
    }
}
