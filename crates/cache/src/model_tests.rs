//! Random operations against plain bookkeeping, and many threads at once.

use crate::policy::PolicyKind;
use crate::testing::*;
use crate::*;
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;

const SEGMENT_BYTES: u64 = 10;
const SEGMENT_COUNT: u32 = 12;

#[derive(Debug, Clone)]
enum Step {
    Request(u32, bool),
    Poll(usize),
    DropFuture(usize),
    Answer(usize),
    Fail(usize),
    DropBytes(usize),
    Reserve(u64),
    Release,
    Clear,
    SetBudget(u64),
    SetPolicy(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..SEGMENT_COUNT, prop::bool::weighted(0.9)).prop_map(|(idx, pop)| Step::Request(idx, pop)),
        6 => any::<usize>().prop_map(Step::Poll),
        1 => any::<usize>().prop_map(Step::DropFuture),
        6 => any::<usize>().prop_map(Step::Answer),
        1 => any::<usize>().prop_map(Step::Fail),
        5 => any::<usize>().prop_map(Step::DropBytes),
        1 => (0u64..40).prop_map(Step::Reserve),
        1 => Just(Step::Release),
        1 => Just(Step::Clear),
        1 => (0u64..100).prop_map(Step::SetBudget),
        1 => any::<usize>().prop_map(Step::SetPolicy),
    ]
}

/// The cache and what a book-keeper knows about it.
struct World {
    cache: Arc<CacheManager>,
    reader: Arc<ManualReader>,
    futures: Vec<(u32, SegmentFuture)>,
    bytes: Vec<Bytes>,
    operator_bytes: u64,
    /// The budget was lowered or an operator could not be refused: it may be exceeded until it no longer is.
    may_exceed: bool,
}

impl World {
    fn new(policy: PolicyKind) -> Self {
        let cache = cache(50, policy);
        let reader = ManualReader::new(SEGMENT_BYTES);
        cache.add_file(reader.clone(), data_segments(SEGMENT_COUNT, SEGMENT_BYTES));
        Self {
            cache,
            reader,
            futures: Vec::new(),
            bytes: Vec::new(),
            operator_bytes: 0,
            may_exceed: false,
        }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Request(segment_idx, populate) => {
                let scan = ScanContext::new(1, 0, 0).with_populate(populate);
                let future = self.cache.request(key(segment_idx), &Arc::new(scan));
                self.futures.push((segment_idx, future));
            }
            Step::Poll(n) if !self.futures.is_empty() => {
                let n = n % self.futures.len();
                self.poll(n);
            }
            Step::DropFuture(n) if !self.futures.is_empty() => {
                let n = n % self.futures.len();
                drop(self.futures.remove(n));
            }
            Step::Answer(n) | Step::Fail(n) if !self.reader.asked().is_empty() => {
                let read = self.reader.take(n % self.reader.asked().len());
                let key = key(read.segment_idx);
                let result = match step {
                    Step::Answer(_) => Ok(self.reader.buffer(read.segment_idx)),
                    _ => Err(ReadError::Abandoned { key }),
                };
                (read.done)(result);
            }
            Step::DropBytes(n) if !self.bytes.is_empty() => {
                let n = n % self.bytes.len();
                drop(self.bytes.swap_remove(n));
            }
            Step::Reserve(bytes) => {
                if bytes < 30 {
                    let reserved = self.cache.budget().try_reserve_operator(bytes);
                    self.operator_bytes += reserved.map_or(0, |()| bytes);
                } else {
                    self.cache.budget().reserve_operator(bytes);
                    self.operator_bytes += bytes;
                    self.may_exceed = true;
                }
            }
            Step::Release => {
                let bytes = std::mem::take(&mut self.operator_bytes);
                self.cache.budget().release_operator(bytes);
            }
            Step::Clear => self.cache.clear(),
            Step::SetBudget(bytes) => {
                self.cache.set_budget_bytes(bytes);
                self.may_exceed = true;
            }
            Step::SetPolicy(n) => {
                let kinds = PolicyKind::ALL;
                self.cache.set_policy(kinds[n % kinds.len()]);
            }
            _ => {}
        }
    }

    /// Polls a future; if it is ready, its bytes (checked) are kept until dropped.
    fn poll(&mut self, n: usize) -> bool {
        let Poll::Ready(result) = poll(&mut self.futures[n].1) else {
            return false;
        };
        let (segment_idx, _) = self.futures.remove(n);
        if let Ok(bytes) = result {
            assert_eq!(bytes[..], segment_idx.to_le_bytes());
            self.bytes.push(bytes);
        }
        true
    }

    fn check(&mut self, overcommits_before: u64) -> Result<(), TestCaseError> {
        let now = self.cache.budget().snapshot();
        let parts =
            now.cached_bytes + now.detached_bytes + now.in_flight_bytes + now.operator_bytes;
        prop_assert_eq!(now.used_bytes, parts);
        prop_assert_eq!(now.operator_bytes, self.operator_bytes);
        let reading_bytes = self.reader.asked().len() as u64 * SEGMENT_BYTES;
        prop_assert_eq!(now.in_flight_bytes, reading_bytes);
        let live_bytes = self.reader.live_bytes.load(SeqCst);
        prop_assert_eq!(now.cached_bytes + now.detached_bytes, live_bytes);
        let rows = self.cache.segments();
        let kept = rows
            .iter()
            .filter(|row| matches!(row.state, SegmentState::Idle | SegmentState::InUse));
        prop_assert_eq!(
            now.cached_bytes,
            kept.map(|row| row.info.charged_bytes).sum::<u64>()
        );
        let waiting = rows.iter().filter(|row| row.state == SegmentState::Waiting);
        prop_assert!(waiting.count() <= now.waiting_count);
        let exceeded = now.used_bytes > now.limit_bytes;
        self.may_exceed |= now.overcommit_count > overcommits_before;
        prop_assert!(!exceeded || self.may_exceed, "{:?}", now);
        self.may_exceed &= exceeded;
        Ok(())
    }

    /// All reads advance until none waits.
    fn drain(&mut self) {
        for _ in 0..10_000 {
            if self.futures.is_empty() {
                break;
            }
            for n in (0..self.futures.len()).rev() {
                self.poll(n);
            }
            while !self.reader.asked().is_empty() {
                self.apply(&Step::Answer(0));
            }
        }
        assert!(self.futures.is_empty(), "a future never resolved");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn accounts_are_exact_and_every_future_resolves(
        policy_idx in 0..PolicyKind::ALL.len(),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut world = World::new(PolicyKind::ALL[policy_idx]);
        for step in &steps {
            let overcommits = world.cache.budget().snapshot().overcommit_count;
            world.apply(step);
            world.check(overcommits)?;
        }
        world.drain();
        world.bytes.clear();
        world.apply(&Step::Release);
        world.cache.clear();
        while !world.reader.asked().is_empty() {
            world.apply(&Step::Answer(0)); // reads cancelled before
        }
        let now = world.cache.budget().snapshot();
        prop_assert_eq!(now.used_bytes, 0);
        prop_assert_eq!(world.reader.live_bytes.load(SeqCst), 0);
        prop_assert!(world.cache.segments().is_empty());
    }
}

/// Answers reads from threads of its own.
struct ThreadedReader {
    jobs: mpsc::Sender<(u32, ReadDone)>,
}

struct NoHandle;

impl ReadHandle for NoHandle {}

impl SegmentReader for ThreadedReader {
    fn read(&self, segment_idx: u32, done: ReadDone) -> Box<dyn ReadHandle> {
        self.jobs
            .send((segment_idx, done))
            .expect("the readers run");
        Box::new(NoHandle)
    }
}

fn threaded_reader() -> ThreadedReader {
    let (jobs, incoming) = mpsc::channel::<(u32, ReadDone)>();
    thread::spawn(move || {
        for (segment_idx, done) in incoming {
            match segment_idx {
                5 => drop(done),
                _ => done(Ok(Bytes::copy_from_slice(&segment_idx.to_le_bytes()))),
            }
        }
    });
    ThreadedReader { jobs }
}

/// Looks two segments ahead, holds three at a time, and cancels some.
fn scan_at_random(cache: &Arc<CacheManager>, seed: u64, step_count: u64) {
    let scan = Arc::new(ScanContext::new(seed, 0, 0));
    for step in 0..step_count {
        let word = key::mix(seed << 32 | step);
        let segments = [word % 32, (word >> 8) % 32, (word >> 16) % 32].map(|idx| idx as u32);
        let futures = segments.map(|idx| cache.request(key(idx), &scan));
        if word >> 60 == 0 {
            continue; // a cancelled query
        }
        let operator_bytes = (word >> 24) % 16;
        let reserved = cache.budget().try_reserve_operator(operator_bytes).is_ok();
        let mut held = Vec::new();
        for (segment_idx, future) in segments.into_iter().zip(futures) {
            match block_on(future) {
                Ok(bytes) => {
                    assert_eq!(bytes[..], segment_idx.to_le_bytes());
                    held.push(bytes);
                }
                Err(error) => assert!(segment_idx == 5, "{error}"),
            }
        }
        drop(held);
        if reserved {
            cache.budget().release_operator(operator_bytes);
        }
    }
}

#[test]
fn many_threads_under_three_segments_each_neither_block_nor_miscount() {
    const WORKERS: u64 = 4;
    for policy in PolicyKind::ALL {
        let cache = CacheManager::new(CacheOptions {
            budget_bytes: 3 * WORKERS * SEGMENT_BYTES,
            policy: *policy,
            partitions: 4,
            ..CacheOptions::default()
        });
        cache.add_file(
            Arc::new(threaded_reader()),
            data_segments(32, SEGMENT_BYTES),
        );
        thread::scope(|scope| {
            for seed in 0..WORKERS {
                let cache = &cache;
                scope.spawn(move || scan_at_random(cache, seed, 400));
            }
            for turn in 0..50u64 {
                cache.set_budget_bytes(key::mix(turn) % (4 * WORKERS * SEGMENT_BYTES));
                cache.set_placement(Placement::new([ColumnShare {
                    column: ColumnId(0),
                    bytes: 32 * SEGMENT_BYTES,
                    proportion: (key::mix(turn) % 100) as f64 / 99.0,
                    from: 0.0,
                }]));
                thread::yield_now();
            }
            cache.set_budget_bytes(3 * WORKERS * SEGMENT_BYTES);
        });
        cache.clear();
        for _ in 0..60_000 {
            if cache.budget().snapshot().used_bytes == 0 {
                break; // the last cancelled reads have ended
            }
            thread::sleep(std::time::Duration::from_millis(1));
        }
        cache.clear();
        let now = cache.budget().snapshot();
        assert_eq!(
            (now.used_bytes, now.waiting_count),
            (0, 0),
            "{policy}: {now:?}"
        );
        let bound = 7 * WORKERS * SEGMENT_BYTES + 16 * WORKERS;
        assert!(now.used_bytes_max <= bound, "{policy}: {now:?}");
    }
}
