//! Measuring an emulated device in simulated time: any number of threads, exact, and over at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::device::{Device, Reach, Request};
use super::model::DeviceModel;
use crate::axes::{Operation, Pattern, Pinning, Placement, Point};

/// Requests per thread that are not counted: more than any thread has in flight, so that all are at work.
const WARM_UP_REQUESTS: u64 = 80;
/// Requests per measured thread that are counted.
const REQUESTS: u64 = 100;
/// Ranges of different threads start this far apart.
const RANGE_BYTES: u64 = 1 << 36;

/// What the measured threads of a point achieve together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Simulated {
    /// Bandwidth of the point's operation.
    pub bandwidth_bytes_per_s: f64,
    /// Bandwidth of the other operation beside it.
    pub beside_bandwidth_bytes_per_s: Option<f64>,
    /// Time of one access, for dependent ones.
    pub latency_ns: Option<f64>,
}

/// Runs a point's threads against idle memory: one device, or one for each of two sockets. Sizes of other operations
/// beside are the point's.
pub fn simulate(model: &DeviceModel, point: &Point) -> Simulated {
    match point.placement {
        Placement::BothNear => on_both_sockets(model, point, Reach::Near),
        Placement::BothFar => on_both_sockets(model, point, Reach::BothFar),
        Placement::BothShared => on_one_device(model, point, Reach::Shared),
        Placement::Far | Placement::FarFirst => on_one_device(model, point, Reach::Far),
        Placement::Near if point.pinning == Pinning::None && point.threads > 1 => {
            on_one_device(model, point, Reach::Unpinned)
        }
        Placement::Near => on_one_device(model, point, Reach::Near),
    }
}

/// Half of the threads on each of two devices.
fn on_both_sockets(model: &DeviceModel, point: &Point, reach: Reach) -> Simulated {
    let first = Point {
        threads: point.threads.div_ceil(2),
        beside_threads: point.beside_threads.div_ceil(2),
        ..*point
    };
    let mut total = on_one_device(model, &first, reach);
    let second = Point {
        threads: point.threads / 2,
        beside_threads: point.beside_threads / 2,
        ..*point
    };
    if second.threads > 0 {
        let other = on_one_device(model, &second, reach);
        total.bandwidth_bytes_per_s += other.bandwidth_bytes_per_s;
        let both = total.beside_bandwidth_bytes_per_s;
        let both =
            both.map(|bandwidth| bandwidth + other.beside_bandwidth_bytes_per_s.unwrap_or(0.0));
        total.beside_bandwidth_bytes_per_s = both;
    }
    total
}

fn on_one_device(model: &DeviceModel, point: &Point, reach: Reach) -> Simulated {
    let mut device = Device::new(model.clone());
    let other = match point.operation {
        Operation::Read => Operation::Write,
        Operation::Write => Operation::Read,
    };
    let mut askers: Vec<Asker> = (0..point.threads)
        .map(|thread| Asker::new(thread, point.operation))
        .chain((0..point.beside_threads).map(|thread| Asker::new(thread, other)))
        .collect();
    if point.placement == Placement::Far {
        warm_up_far(&mut device, point, &askers);
    }
    let window = match point.pattern {
        Pattern::Dependent => 1,
        _ => model.outstanding_per_thread as u64,
    };
    let mut ready: BinaryHeap<Reverse<(u64, usize)>> = (0..askers.len())
        .map(|asker_idx| Reverse((0, asker_idx)))
        .collect();
    let measured = point.threads as usize;
    let all_sent =
        |askers: &[Asker], count: u64| askers[..measured].iter().all(|asker| asker.sent >= count);
    // Between two ends of requests the device was busy all the time, so bytes by time is exact.
    let (mut counting, mut counted_from_ns, mut last_end_ns) = (false, 0, 0u64);
    while let Some(Reverse((now_ns, asker_idx))) = ready.pop() {
        if !counting && all_sent(&askers, WARM_UP_REQUESTS) {
            (counting, counted_from_ns) = (true, last_end_ns);
        }
        if all_sent(&askers, WARM_UP_REQUESTS + REQUESTS) {
            break;
        }
        let asker = &mut askers[asker_idx];
        let request = asker.next(point, reach);
        let end_ns = device.submit(now_ns, &request);
        last_end_ns = last_end_ns.max(end_ns);
        asker.counted += u64::from(counting);
        asker.in_flight.push(Reverse(end_ns));
        // Submit again at once while the window has room, else when the oldest request has ended.
        let next_ns = match (asker.in_flight.len() as u64) < window {
            true => now_ns,
            false => asker
                .in_flight
                .pop()
                .map_or(now_ns, |Reverse(end_ns)| end_ns.max(now_ns)),
        };
        ready.push(Reverse((next_ns, asker_idx)));
    }
    let passed_ns = last_end_ns.saturating_sub(counted_from_ns).max(1) as f64;
    let bandwidth = |askers: &[Asker]| {
        let counted: u64 = askers.iter().map(|asker| asker.counted).sum();
        counted as f64 * point.access_bytes as f64 * 1e9 / passed_ns
    };
    let bandwidth_bytes_per_s = bandwidth(&askers[..measured]);
    let per_thread = bandwidth_bytes_per_s / f64::from(point.threads.max(1));
    Simulated {
        bandwidth_bytes_per_s,
        beside_bandwidth_bytes_per_s: (point.beside_threads > 0)
            .then(|| bandwidth(&askers[measured..])),
        latency_ns: (point.pattern == Pattern::Dependent)
            .then(|| point.access_bytes as f64 * 1e9 / per_thread),
    }
}

fn warm_up_far(device: &mut Device, point: &Point, askers: &[Asker]) {
    for asker in askers {
        let mut asker = asker.clone();
        for _ in 0..2 * (WARM_UP_REQUESTS + REQUESTS) {
            let request = asker.next(point, Reach::Far);
            device.submit(0, &request);
        }
    }
    let mut fresh = Device::new(device.model().clone());
    fresh.take_warmth(device);
    *device = fresh;
}

#[derive(Debug, Clone)]
struct Asker {
    thread: u32,
    operation: Operation,
    sent: u64,
    in_flight: BinaryHeap<Reverse<u64>>,
    counted: u64,
}

impl Asker {
    fn new(thread: u32, operation: Operation) -> Self {
        Self {
            thread,
            operation,
            sent: 0,
            in_flight: BinaryHeap::new(),
            counted: 0,
        }
    }

    fn next(&mut self, point: &Point, reach: Reach) -> Request {
        let step = match point.pattern {
            Pattern::Sequential => self.sent,
            // A fixed walk over aligned places, never two neighbours in a row.
            Pattern::Random | Pattern::Dependent => self.sent.wrapping_mul(0x9e37_79b9) % 65_536,
        };
        self.sent += 1;
        Request {
            operation: self.operation,
            pattern: point.pattern,
            offset: u64::from(self.thread) * RANGE_BYTES + step * point.access_bytes.max(1),
            len_bytes: point.access_bytes,
            thread: self.thread,
            reach,
        }
    }
}
