//! Real threads that wait for an *emulated* device, as many as the paper has.
//!
//! Each thread keeps two batches of accesses under way and sleeps for most of the time that the device needs for them,
//! so that a few cores can do the waiting of many. No bytes are moved: two cores could not move what the device could.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hotshelf_tier::TierError;
use hotshelf_tier::emulated::{Batch, DeviceModel, EmulatedTier, Reach, simulate};
use hotshelf_tier::probe::{Operation, Pinning, Placement};

use super::case::Case;

/// Bytes that a region of an emulated device needs: nothing is stored there.
const DEVICE_BYTES: usize = 1 << 20;
/// All threads' batches take at least this long: waits that long are slept, and a thread that wakes up late on a busy
/// machine still finds the device at work on its next batch.
const CYCLE_MIN: Duration = Duration::from_millis(15);
/// A thread works for some of this in each cycle, more than it takes to wake up.
const CYCLE_PER_THREAD: Duration = Duration::from_micros(500);
/// Cycles that are not counted: the first batches are asked for before all threads are at work, and others wait behind
/// them.
const WARM_UP_CYCLES: u32 = 5;
const COUNTED_CYCLES: u32 = 6;
/// First touches are made in pieces of this size.
const PAGE_BYTES: usize = 4096;

/// A device for each of two emulated sockets.
pub struct Waiting {
    model: DeviceModel,
    sockets: [EmulatedTier; 2],
    /// Far memory that was never touched begins here.
    fresh_offset: AtomicUsize,
}

/// What the threads of a case reach together, in bytes per second.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rates {
    pub read: f64,
    pub write: f64,
}

/// What one thread does.
#[derive(Debug, Clone, Copy)]
struct Job {
    socket: usize,
    batch: Batch,
    reach: Reach,
    /// Every batch touches memory for the first time.
    is_fresh: bool,
}

impl Waiting {
    /// # Errors
    /// That there is no memory.
    pub fn new(model: &DeviceModel) -> Result<Self, TierError> {
        let tier = || EmulatedTier::new(model.clone(), DEVICE_BYTES);
        Ok(Self {
            model: model.clone(),
            sockets: [tier()?, tier()?],
            fresh_offset: AtomicUsize::new(1 << 32),
        })
    }

    /// Lets the threads of a case wait for a while.
    pub fn measure(&self, case: &Case) -> Rates {
        let expected = expected(&self.model, case);
        let cycle = CYCLE_MIN.max(CYCLE_PER_THREAD * case.threads());
        let jobs = jobs(case, expected, cycle);
        // Large accesses make longer cycles.
        let bytes = |operation| -> f64 {
            let own = jobs.iter().filter(|job| job.batch.operation == operation);
            own.map(|job| job.batch.len_bytes as f64 * f64::from(job.batch.count))
                .sum()
        };
        let takes_s = |operation, rate: f64| bytes(operation) / rate.max(1.0);
        let longest_s = takes_s(Operation::Read, expected.read)
            .max(takes_s(Operation::Write, expected.write))
            .max(cycle.as_secs_f64());
        let cycle = Duration::from_secs_f64(longest_s);
        let barrier = Barrier::new(jobs.len() + 1);
        let stop = AtomicBool::new(false);
        let (ends, counted) = thread::scope(|scope| {
            let run = |job: &Job| {
                let job = *job;
                let (barrier, stop) = (&barrier, &stop);
                scope.spawn(move || {
                    barrier.wait();
                    self.run(job, stop)
                })
            };
            let workers: Vec<_> = jobs.iter().map(run).collect();
            barrier.wait();
            let from = Instant::now() + cycle * WARM_UP_CYCLES;
            thread::sleep(cycle * (WARM_UP_CYCLES + COUNTED_CYCLES));
            let counted = from..Instant::now();
            stop.store(true, Ordering::Relaxed);
            let join = |worker: thread::ScopedJoinHandle<'_, _>| {
                let joined = worker.join();
                joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let ends: Vec<Vec<Instant>> = workers.into_iter().map(join).collect();
            (ends, counted)
        });
        let of = |operation| {
            let rate = |socket| rate(&jobs, &ends, &counted, (socket, operation));
            (0..self.sockets.len()).map(rate).sum()
        };
        Rates {
            read: of(Operation::Read),
            write: of(Operation::Write),
        }
    }

    /// When each of a thread's batches ended.
    fn run(&self, job: Job, stop: &AtomicBool) -> Vec<Instant> {
        let tier = &self.sockets[job.socket];
        let start = || {
            let mut batch = job.batch;
            if job.is_fresh {
                batch.offset = self.fresh_offset.fetch_add(PAGE_BYTES, Ordering::Relaxed);
            }
            tier.start(&batch, job.reach)
        };
        if job.reach == Reach::Far && !job.is_fresh {
            // Far memory is slow at its first touch only.
            let touch = Batch {
                count: 1,
                ..job.batch
            };
            tier.finish(tier.start(&touch, job.reach));
        }
        let mut ends = Vec::new();
        let mut ahead = start();
        while !stop.load(Ordering::Relaxed) {
            let next = start();
            tier.finish(ahead);
            ends.push(Instant::now());
            ahead = next;
        }
        tier.finish(ahead);
        ends
    }
}

/// Bytes per second of one operation on one socket. The device ends one batch after the other, so that what ended
/// between two of them took the time between.
fn rate(
    jobs: &[Job],
    ends: &[Vec<Instant>],
    counted: &Range<Instant>,
    (socket, operation): (usize, Operation),
) -> f64 {
    let is_own = |job: &Job| (job.socket, job.batch.operation) == (socket, operation);
    let Some(job) = jobs.iter().find(|job| is_own(job)) else {
        return 0.0;
    };
    let own = jobs.iter().zip(ends).filter(|(job, _)| is_own(job));
    let mut times: Vec<Instant> = own.flat_map(|(_, ends)| ends.clone()).collect();
    times.retain(|time| counted.contains(time));
    times.sort_unstable();
    match times[..] {
        [first, .., last] => {
            let bytes = job.batch.len_bytes as f64 * f64::from(job.batch.count);
            (times.len() - 1) as f64 * bytes / (last - first).as_secs_f64()
        }
        _ => 0.0,
    }
}

/// What the model says in virtual time.
pub fn expected(model: &DeviceModel, case: &Case) -> Rates {
    let simulated = simulate(model, &case.point(None));
    match case.readers {
        0 => Rates {
            read: 0.0,
            write: simulated.bandwidth_bytes_per_s,
        },
        _ => Rates {
            read: simulated.bandwidth_bytes_per_s,
            write: simulated.beside_bandwidth_bytes_per_s.unwrap_or(0.0),
        },
    }
}

/// A job for each thread; the batches of all of them together take the device about a cycle.
fn jobs(case: &Case, expected: Rates, cycle: Duration) -> Vec<Job> {
    let reach = match case.placement {
        Placement::Near if case.pinning == Pinning::None && case.threads() > 1 => Reach::Unpinned,
        Placement::Near | Placement::BothNear => Reach::Near,
        Placement::FarFirst | Placement::Far => Reach::Far,
        Placement::BothFar => Reach::BothFar,
        Placement::BothShared => Reach::Shared,
    };
    let sockets = match case.placement {
        Placement::BothNear | Placement::BothFar => 2,
        _ => 1,
    };
    let of = |operation, threads: u32, rate: f64| {
        let bytes = rate * cycle.as_secs_f64() / f64::from(threads.max(1));
        let count = (bytes / case.access_bytes as f64) as u32;
        let job = move |thread: u32| Job {
            socket: thread as usize % sockets,
            batch: Batch {
                operation,
                pattern: case.pattern,
                offset: thread as usize * PAGE_BYTES,
                len_bytes: case.access_bytes as usize,
                count: count.max(1),
            },
            reach,
            is_fresh: case.placement == Placement::FarFirst,
        };
        (0..threads).map(job)
    };
    let reads = of(Operation::Read, case.readers, expected.read);
    let writes = of(Operation::Write, case.writers, expected.write);
    reads.chain(writes).collect()
}
