//! Measuring mapped memory: threads, pinning, repeats, and the checks that the numbers are real.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use super::kernels::{Span, WriteSource, expected_sum, fill, link, next_random};
use super::report::{Measured, Refusal};
use crate::axes::{Grouping, Operation, Pattern, PersistInstruction, Pinning, Placement, Point};
use crate::error::TierError;
use crate::persist::LINE_BYTES;
use crate::region::Region;
use crate::topology::pin_to;

/// Accesses between two looks at the clock's flag take at least this many bytes.
const CHECK_BYTES: usize = 32 << 10;

/// Memory to measure: a front half that is read and a back half that is written or chased through, for each socket.
#[derive(Debug)]
pub(super) struct MemoryBench {
    spans: Vec<Arc<Span>>,
    /// CPUs near each span.
    cpus: Vec<Vec<u32>>,
    /// DRAM that is read beside slow memory.
    dram: Option<Arc<Span>>,
}

/// What one thread did.
#[derive(Debug, Clone, Copy)]
struct Done {
    beside: bool,
    bytes: u64,
    seconds: f64,
    sum_is_right: bool,
}

impl MemoryBench {
    /// Takes regions of equal use, one per socket, with the CPUs near each; fills the halves that are read. `dram` is
    /// for points that read DRAM beside the regions.
    pub(super) fn new(
        regions: Vec<(Region, Vec<u32>)>,
        dram: Option<Region>,
    ) -> Result<Self, TierError> {
        let mut bench = Self {
            spans: Vec::new(),
            cpus: Vec::new(),
            dram: dram.map(filled).transpose()?,
        };
        for (region, cpus) in regions {
            bench.spans.push(filled(region)?);
            bench.cpus.push(cpus);
        }
        Ok(bench)
    }

    /// Bytes of one half.
    pub(super) fn half_bytes(&self) -> usize {
        let half = |span: &Arc<Span>| span.len_bytes() / 2 / 4096 * 4096;
        let spans = self.spans.iter().chain(&self.dram);
        spans.map(half).min().unwrap_or(0)
    }

    /// Runs a point for a while.
    pub(super) fn measure(&mut self, point: &Point, time: Duration) -> Result<Measured, Refusal> {
        let range_bytes = point
            .range_bytes
            .unwrap_or(u64::MAX)
            .min(self.half_bytes() as u64);
        let threads = u64::from(point.threads.max(point.beside_threads).max(1));
        let whole_lines =
            point.access_bytes > 0 && point.access_bytes.is_multiple_of(LINE_BYTES as u64);
        if !whole_lines || point.threads == 0 || point.access_bytes > range_bytes / threads {
            return Err(Refusal::DoesNotFit);
        }
        if point.pattern == Pattern::Dependent {
            return self.chase(point, time);
        }
        let done = self.run_threads(point, time)?;
        if done.iter().any(|done| !done.sum_is_right) {
            return Err(Refusal::WrongSum);
        }
        let of = |beside| {
            let of_kind = done.iter().filter(|done| done.beside == beside);
            of_kind
                .map(|done| done.bytes as f64 / done.seconds)
                .sum::<f64>()
        };
        Ok(Measured {
            bandwidth_bytes_per_s: of(false),
            beside_bandwidth_bytes_per_s: (point.beside_threads > 0).then(|| of(true)),
            latency_ns: None,
        })
    }

    fn run_threads(&self, point: &Point, time: Duration) -> Result<Vec<Done>, Refusal> {
        let total = point.threads + point.beside_threads;
        let barrier = Barrier::new(total as usize + 1);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut workers = Vec::new();
            for thread_idx in 0..total {
                let worker = self.worker(point, thread_idx);
                let (barrier, stop) = (&barrier, &stop);
                workers.push(scope.spawn(move || {
                    let pinned = worker.pin();
                    barrier.wait();
                    let done = worker.run(stop);
                    pinned.map(|()| done)
                }));
            }
            barrier.wait();
            thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
            // A panic in a worker is a bug of ours: pass it on.
            let join = |worker: thread::ScopedJoinHandle<'_, _>| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            workers.into_iter().map(join).collect()
        })
    }

    fn worker(&self, point: &Point, thread_idx: u32) -> Worker {
        let beside = thread_idx >= point.threads;
        let (group_idx, group_count) = match beside {
            false => (thread_idx, point.threads),
            true => (thread_idx - point.threads, point.beside_threads),
        };
        let operation = match (beside && !point.on_dram, point.operation) {
            (false, operation) => operation,
            (true, Operation::Read) => Operation::Write,
            (true, Operation::Write) => Operation::Read,
        };
        let sockets = self.spans.len();
        let (cpu_socket, span_socket) = match point.placement {
            Placement::Near => (0, 0),
            Placement::Far | Placement::FarFirst => (0, 1 % sockets),
            Placement::BothNear => (thread_idx as usize % sockets, thread_idx as usize % sockets),
            Placement::BothFar => (
                thread_idx as usize % sockets,
                (thread_idx as usize + 1) % sockets,
            ),
            Placement::BothShared => (thread_idx as usize % sockets, 0),
        };
        let half = self.half_bytes();
        let base = match operation {
            Operation::Read => 0,
            Operation::Write => half,
        };
        let length = point
            .range_bytes
            .map_or(half, |range| (range as usize).min(half));
        let dram = self.dram.as_ref().filter(|_| point.on_dram && !beside);
        Worker {
            beside,
            span: Arc::clone(dram.unwrap_or(&self.spans[span_socket])),
            cpus: pinned_cpus(&self.cpus[cpu_socket], point.pinning, thread_idx),
            operation,
            pattern: point.pattern,
            grouping: point.grouping,
            persist: point.persist.unwrap_or(PersistInstruction::NonTemporal),
            access_bytes: point.access_bytes as usize,
            range: base..base + length,
            group_idx: group_idx as usize,
            group_count: group_count as usize,
        }
    }

    /// Follows a chain through the back half: each access waits for the one before.
    fn chase(&mut self, point: &Point, time: Duration) -> Result<Measured, Refusal> {
        let half = self.half_bytes();
        let piece = point.access_bytes as usize;
        let length = point
            .range_bytes
            .map_or(half, |range| (range as usize).min(half))
            / piece
            * piece;
        let bytes = self.spans[0].exclusive().ok_or(Refusal::Busy)?;
        link(&mut bytes[half..half + length], piece, half);
        let span = &self.spans[0];
        let (mut at, mut steps, mut sum) = (half, 0u64, 0u64);
        let start = Instant::now();
        while start.elapsed() < time {
            for _ in 0..1000 {
                let next = span.word(at) as usize;
                // The rest of the piece, beginning with the word that was just read.
                sum = sum.wrapping_add(span.sum(at..at + piece));
                at = next;
            }
            steps += 1000;
        }
        let seconds = start.elapsed().as_secs_f64();
        std::hint::black_box(sum);
        if !(half..half + length).contains(&at) {
            return Err(Refusal::WrongSum);
        }
        Ok(Measured {
            bandwidth_bytes_per_s: steps as f64 * piece as f64 / seconds,
            beside_bandwidth_bytes_per_s: None,
            latency_ns: Some(seconds * 1e9 / steps as f64),
        })
    }

    /// Copies one half over the other with all near CPUs: an upper bound for what the machine can do is a few times
    /// this.
    pub(super) fn copy_bandwidth(&self, threads: u32, time: Duration) -> Result<f64, Refusal> {
        let point = Point {
            beside_threads: threads.max(1),
            ..Point::new(Operation::Read, 4096, threads.max(1))
        };
        let done = self.run_threads(&point, time)?;
        Ok(done
            .iter()
            .map(|done| done.bytes as f64 / done.seconds)
            .sum())
    }
}

/// One measuring thread.
struct Worker {
    beside: bool,
    span: Arc<Span>,
    cpus: Option<Vec<u32>>,
    operation: Operation,
    pattern: Pattern,
    grouping: Grouping,
    persist: PersistInstruction,
    access_bytes: usize,
    range: Range<usize>,
    group_idx: usize,
    group_count: usize,
}

impl Worker {
    fn pin(&self) -> Result<(), Refusal> {
        let Some(cpus) = &self.cpus else {
            return Ok(());
        };
        pin_to(cpus).map_err(|_| Refusal::CannotPin)
    }

    fn run(&self, stop: &AtomicBool) -> Done {
        let source = WriteSource::new();
        let (own, step) = self.places();
        let places = (own.len() / step).max(1);
        let per_check = (CHECK_BYTES / self.access_bytes).max(1);
        let (mut place, mut random) = (0, next_random(self.group_idx as u64 + 1));
        let (mut count, mut first_sum, mut sum) = (0u64, 0u64, 0u64);
        let start = Instant::now();
        // A thread that comes to run too late still measures something.
        while count == 0 || !stop.load(Ordering::Relaxed) {
            for _ in 0..per_check {
                let at = own.start + place * step;
                let piece = at..at + self.access_bytes;
                match self.operation {
                    Operation::Read => {
                        first_sum = first_sum.wrapping_add(at as u64 / 8);
                        sum = sum.wrapping_add(self.span.sum(piece));
                    }
                    Operation::Write => self.span.write(piece, &source, self.persist),
                }
                place = match self.pattern {
                    Pattern::Sequential => (place + 1) % places,
                    Pattern::Random | Pattern::Dependent => {
                        random = next_random(random);
                        ((u128::from(random) * places as u128) >> 64) as usize
                    }
                };
            }
            count += per_check as u64;
        }
        let seconds = start.elapsed().as_secs_f64();
        let sum_is_right = match self.operation {
            Operation::Read => sum == expected_sum(first_sum, count, self.access_bytes),
            Operation::Write => self.was_written(&own),
        };
        Done {
            beside: self.beside,
            bytes: count * self.access_bytes as u64,
            seconds,
            sum_is_right,
        }
    }

    /// Where its pieces may begin, and how far they are apart: with ranges of their own, threads take neighbouring
    /// pieces; taking turns, every n-th.
    fn places(&self) -> (Range<usize>, usize) {
        match self.grouping {
            Grouping::Individual => {
                let own = self.range.len() / self.group_count / 4096 * 4096;
                let own = own.max(self.access_bytes);
                let start = self.range.start + self.group_idx * own;
                (start..(start + own).min(self.range.end), self.access_bytes)
            }
            Grouping::Grouped => {
                let step = self.access_bytes * self.group_count;
                let start = self.range.start + self.group_idx * self.access_bytes;
                let rounds = self.range.len() / step;
                (start..self.range.start + rounds * step, step)
            }
        }
    }

    /// The first piece of a sequential run has been written if anything has.
    fn was_written(&self, own: &Range<usize>) -> bool {
        let expected: [u8; 8] = std::array::from_fn(WriteSource::byte_at);
        self.pattern != Pattern::Sequential
            || self.span.word(own.start) == u64::from_ne_bytes(expected)
    }
}

/// The region, its front half filled with what sums can be checked against.
fn filled(region: Region) -> Result<Arc<Span>, TierError> {
    let path = region.path().to_path_buf();
    let mut span = Span::new(region).ok_or(TierError::ReadOnly { path })?;
    if let Some(bytes) = span.exclusive() {
        let half = bytes.len() / 2;
        fill(&mut bytes[..half]);
        bytes[half..].fill(1);
    }
    Ok(span)
}

fn pinned_cpus(near: &[u32], pinning: Pinning, thread_idx: u32) -> Option<Vec<u32>> {
    match (pinning, near.len()) {
        (Pinning::None, _) | (_, 0) => None,
        (Pinning::Node, _) => Some(near.to_vec()),
        (Pinning::Core, count) => Some(vec![near[thread_idx as usize % count]]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::AnonymousOptions;

    fn bench(sockets: u32) -> MemoryBench {
        let region = || Region::anonymous(1 << 20, &AnonymousOptions::default()).unwrap();
        MemoryBench::new(
            (0..sockets)
                .map(|socket| (region(), vec![socket * 2, socket * 2 + 1]))
                .collect(),
            Some(region()),
        )
        .unwrap()
    }

    fn placed(placement: Placement) -> Point {
        Point {
            placement,
            pinning: Pinning::Core,
            ..Point::new(Operation::Read, 64, 3)
        }
    }

    #[test]
    fn threads_go_to_the_sockets_and_the_memory_that_a_placement_names() {
        let bench = bench(2);
        let of = |placement| -> Vec<(u32, usize)> {
            let worker = |thread_idx| {
                let worker = bench.worker(&placed(placement), thread_idx);
                let span = bench
                    .spans
                    .iter()
                    .position(|span| Arc::ptr_eq(span, &worker.span));
                (worker.cpus.unwrap()[0], span.unwrap())
            };
            (0..3).map(worker).collect()
        };
        assert_eq!(of(Placement::Near), [(0, 0), (1, 0), (0, 0)]);
        assert_eq!(of(Placement::Far), [(0, 1), (1, 1), (0, 1)]);
        assert_eq!(of(Placement::BothNear), [(0, 0), (3, 1), (0, 0)]);
        assert_eq!(of(Placement::BothFar), [(0, 1), (3, 0), (0, 1)]);
        assert_eq!(of(Placement::BothShared), [(0, 0), (3, 0), (0, 0)]);
    }

    #[test]
    fn dram_is_read_by_some_threads_while_others_read_the_tier() {
        let mut bench = bench(1);
        let point = Point {
            on_dram: true,
            beside_threads: 2,
            ..Point::new(Operation::Read, 64, 1)
        };
        for (thread_idx, on_dram) in [(0, true), (1, false), (2, false)] {
            let worker = bench.worker(&point, thread_idx);
            assert_eq!(worker.operation, Operation::Read);
            assert_eq!(
                Arc::ptr_eq(&worker.span, bench.dram.as_ref().unwrap()),
                on_dram
            );
        }
        let measured = bench.measure(&point, Duration::from_millis(2)).unwrap();
        assert!(measured.beside_bandwidth_bytes_per_s.unwrap() > 0.0);
    }

    #[test]
    fn points_that_would_leave_their_range_are_refused() {
        let mut bench = bench(1);
        let point = Point::new(Operation::Read, 4096, 1);
        let impossible = [
            Point {
                access_bytes: 0,
                ..point
            },
            Point {
                access_bytes: 100,
                ..point
            },
            Point {
                threads: 0,
                ..point
            },
            Point {
                access_bytes: 1 << 19,
                beside_threads: 2,
                ..point
            },
            Point {
                range_bytes: Some(64),
                ..point
            },
            Point {
                threads: 2,
                access_bytes: 1 << 19,
                ..point
            },
        ];
        for point in impossible {
            let refused = bench.measure(&point, Duration::from_millis(1)).unwrap_err();
            assert_eq!(refused, Refusal::DoesNotFit, "{point:?}");
        }
        assert!(bench.measure(&point, Duration::from_millis(1)).is_ok());
    }

    #[test]
    fn writers_never_reach_what_readers_read_nor_each_others_pieces() {
        let bench = bench(1);
        for grouping in [Grouping::Individual, Grouping::Grouped] {
            let point = Point {
                grouping,
                beside_threads: 3,
                ..Point::new(Operation::Read, 256, 2)
            };
            let half = bench.half_bytes();
            let pieces = |worker: &Worker| -> Vec<usize> {
                let (own, step) = worker.places();
                own.step_by(step)
                    .filter(|at| at + 256 <= worker.range.end)
                    .collect()
            };
            let all: Vec<(Operation, Vec<usize>)> = (0..5)
                .map(|thread_idx| bench.worker(&point, thread_idx))
                .map(|worker| (worker.operation, pieces(&worker)))
                .collect();
            let mut written = std::collections::BTreeSet::new();
            for (operation, pieces) in all {
                assert!(!pieces.is_empty());
                match operation {
                    Operation::Read => assert!(pieces.iter().all(|at| at + 256 <= half)),
                    Operation::Write => {
                        assert!(pieces.iter().all(|at| *at >= half && written.insert(*at)))
                    }
                }
            }
        }
    }
}
