//! The emulated device as a pure state machine: requests go in at given times, and their ends come out.
//!
//! Reads and writes wait in queues of their own, as in a memory controller. Each queue is served one request after the
//! other at the bandwidth the model has for its threads, and while both have work they divide the device's time fairly:
//! neither gets less than half unless it needs less. No request ends before its latency has passed, and a thread with
//! too many requests in flight waits for its oldest. Time is a number that the caller supplies, so a simulation and a
//! real clock use the same code.

use std::collections::{HashSet, VecDeque};

use super::model::DeviceModel;
use crate::axes::{Operation, Pattern};

/// A thread counts as active for this long after its last request ended.
const ACTIVE_NS: u64 = 2_000;
/// How far the device may be behind the clock and still catch up: hides the time callers need between two requests.
const CATCH_UP_NS: u64 = 2_000;
/// Far memory is warm after its first touch in pieces of this size.
const WARM_BYTES: u64 = 4096;

/// Where the CPU of a request is, seen from the memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reach {
    /// On the memory's socket.
    #[default]
    Near,
    /// On another socket, while the link is idle in the other direction.
    Far,
    /// On another socket, while that socket's memory is read from here.
    BothFar,
    /// On either socket, and others on the other one want the same memory.
    Shared,
    /// Moved from socket to socket by the scheduler.
    Unpinned,
}

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
    /// The thread that made it.
    pub thread: u32,
    /// Where that thread runs.
    pub reach: Reach,
}

/// The state of an emulated device.
#[derive(Debug, Clone)]
pub struct Device {
    model: DeviceModel,
    reads: Queue,
    writes: Queue,
    streams: Vec<Stream>,
    warm: HashSet<u64>,
}

/// Requests of one direction.
#[derive(Debug, Clone, Copy)]
struct Queue {
    /// When all that wait are served.
    free_ns: f64,
    /// What the last request was like.
    pattern: Pattern,
    len_bytes: u64,
}

impl Queue {
    const EMPTY: Self = Self {
        free_ns: 0.0,
        pattern: Pattern::Sequential,
        len_bytes: 0,
    };
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
            reads: Queue::EMPTY,
            writes: Queue::EMPTY,
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
        self.submit_many(now_ns, request, 1)
    }

    /// Takes `count` requests of one size and pattern at once and says when the last one ends. All but the last count
    /// as no longer in flight then.
    pub fn submit_many(&mut self, now_ns: u64, request: &Request, count: u32) -> u64 {
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
        let bytes = request.len_bytes as f64 * f64::from(count);
        let service_ns = bytes * 1e9 / self.bandwidth(now_ns, request);
        let earliest_ns = start_ns.saturating_sub(CATCH_UP_NS) as f64;
        let queue = self.queue(request.operation);
        *queue = Queue {
            free_ns: queue.free_ns.max(earliest_ns) + service_ns,
            pattern: request.pattern,
            len_bytes: request.len_bytes,
        };
        let free_ns = queue.free_ns;
        let latency_ns = self
            .model
            .direction(request.operation)
            .latency_ns(request.pattern);
        let rounds = u64::from(count).div_ceil(outstanding_max as u64);
        let end_ns = (free_ns.ceil() as u64).max(start_ns + rounds * latency_ns);
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

    fn queue(&mut self, operation: Operation) -> &mut Queue {
        match operation {
            Operation::Read => &mut self.reads,
            Operation::Write => &mut self.writes,
        }
    }

    fn bandwidth(&mut self, now_ns: u64, request: &Request) -> f64 {
        let threads = self.active(request.operation, now_ns);
        let direction = self.model.direction(request.operation);
        let (pattern, len_bytes) = (request.pattern, request.len_bytes);
        let own_need = direction.need(pattern, len_bytes, threads);
        let bandwidth = direction.bandwidth(pattern, len_bytes, threads);
        let mixed = self.mixed_part(own_need, request.operation, now_ns);
        bandwidth * mixed * self.grain_efficiency(request) * self.reach_efficiency(request)
    }

    /// Threads that have a request of this direction in flight, or had one until just now.
    fn active(&self, operation: Operation, now_ns: u64) -> u32 {
        let streams = self.streams.iter().filter(|s| s.operation == operation);
        let active = streams.filter(|s| s.last_end_ns.saturating_add(ACTIVE_NS) > now_ns);
        u32::try_from(active.count()).unwrap_or(u32::MAX)
    }

    /// What a direction keeps of its bandwidth beside the other one: its part of the device's time by what it needs of
    /// it alone, less what changing between the two costs, which is most when they change most often.
    fn mixed_part(&self, own_need: f64, operation: Operation, now_ns: u64) -> f64 {
        let (other, queue) = match operation {
            Operation::Read => (Operation::Write, &self.writes),
            Operation::Write => (Operation::Read, &self.reads),
        };
        let threads = self.active(other, now_ns);
        if threads == 0 {
            return 1.0;
        }
        let direction = self.model.direction(other);
        let other_need = direction.need(queue.pattern, queue.len_bytes, threads);
        let (own, others) = (fair(own_need, other_need), fair(other_need, own_need));
        let change_loss = (1.0 - self.model.mixed_efficiency) * 4.0 * own * others;
        own / own_need * (1.0 - change_loss)
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

    fn reach_efficiency(&mut self, request: &Request) -> f64 {
        let far = self.model.far;
        match (request.reach, request.operation) {
            (Reach::Near, _) => 1.0,
            (Reach::Shared, Operation::Write) => far.shared_write,
            (_, Operation::Write) => far.write,
            // Whose memory it is changes all the time, so that every access is a first touch.
            (Reach::Shared, Operation::Read) => far.first_read,
            (Reach::Unpinned, Operation::Read) => far.unpinned_read,
            (Reach::BothFar, Operation::Read) => far.both_read,
            (Reach::Far, Operation::Read) => {
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

/// The part of the time that one of two directions gets if they need these parts: half each, or what the other does not
/// use.
fn fair(own_need: f64, other_need: f64) -> f64 {
    own_need.min((1.0 - other_need).max(0.5))
}
