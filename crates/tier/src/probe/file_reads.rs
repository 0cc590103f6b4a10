//! Reads of a file with a fixed number in flight: the callback of each answer submits the next block, on the I/O thread
//! itself. A thread that waits for answers would add the time of waking it to every read, and wait for the oldest read
//! while others have ended.

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::kernels::next_random;
use super::report::Refusal;
use crate::axes::Pattern;
use crate::error::TierError;
use crate::io::{IoEngine, IoFile, IoOptions, PAGE_BYTES};

/// What to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) block_bytes: usize,
    /// Reads in flight, per ring.
    pub(super) depth: usize,
    /// I/O threads.
    pub(super) rings: usize,
    pub(super) pattern: Pattern,
    pub(super) time: Duration,
}

/// What was moved, and in which time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

impl Moved {
    pub(super) fn bytes_per_s(self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

/// Reads blocks of the file, each page of which begins with its own number. What is in flight at once is read once
/// before anything counts: buffers are made then.
pub(super) fn read_file(path: &Path, len_bytes: u64, reading: &Reading) -> Result<Moved, Refusal> {
    let places = (len_bytes / reading.block_bytes as u64).max(1);
    let mut rings = Vec::new();
    for ring_idx in 0..reading.rings as u64 {
        let engine = IoEngine::start(options(reading)).map_err(failed)?;
        let file = engine.open(path).map_err(failed)?;
        if !file.is_direct() {
            return Err(Refusal::NotDirect);
        }
        let reads = Reads {
            engine: Arc::downgrade(&engine),
            file,
            block_bytes: reading.block_bytes,
            places,
            pattern: reading.pattern,
            state: Mutex::new(RingState {
                // Rings that read sequentially begin in different parts of the file.
                place: places * ring_idx / reading.rings as u64,
                random: next_random(ring_idx + 1),
                until: Instant::now(),
                flying: 0,
                count: 0,
                refusal: None,
                ended: None,
            }),
        };
        rings.push((engine, Arc::new(reads)));
    }
    run(&rings, reading.depth, Duration::ZERO)?;
    let start = Instant::now();
    let count = run(&rings, reading.depth, reading.time)?;
    Ok(Moved {
        count,
        bytes: count * reading.block_bytes as u64,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Keeps reads in flight for a time; how many were answered.
fn run(
    rings: &[(Arc<IoEngine>, Arc<Reads>)],
    depth: usize,
    time: Duration,
) -> Result<u64, Refusal> {
    let (ended, all_ended) = channel();
    let until = Instant::now() + time;
    for (engine, reads) in rings {
        let mut state = reads.state.lock();
        state.until = until;
        state.flying = depth;
        state.count = 0;
        state.ended = Some(ended.clone());
        drop(state);
        (0..depth).for_each(|_| reads.next(engine));
    }
    drop(ended);
    let mut count = 0;
    for _ in rings {
        // Every read is answered, and each ring reports its last answer here.
        count += all_ended.recv().map_err(|_| Refusal::Busy)??;
    }
    Ok(count)
}

fn options(reading: &Reading) -> IoOptions {
    let in_flight_bytes = reading.depth * reading.block_bytes;
    let usual = IoOptions::default();
    IoOptions {
        threads: 1,
        depth: reading.depth,
        pread_threads: reading.depth.clamp(1, 16),
        // Blocks must not be merged, or another size would be measured.
        merge_bytes_max: reading.block_bytes,
        gap_bytes_max: 0,
        in_flight_bytes_max: in_flight_bytes.max(1 << 20),
        // Memory is handed out in pieces larger than small blocks: a pool of a few blocks would map them anew for every
        // read.
        pool_bytes_max: in_flight_bytes.max(usual.pool_bytes_max),
        ..usual
    }
}

/// The reads of one ring.
struct Reads {
    engine: Weak<IoEngine>,
    file: Arc<IoFile>,
    block_bytes: usize,
    places: u64,
    pattern: Pattern,
    state: Mutex<RingState>,
}

struct RingState {
    place: u64,
    random: u64,
    until: Instant,
    flying: usize,
    count: u64,
    refusal: Option<Refusal>,
    /// Receives the number of answers after the last one.
    ended: Option<Sender<Result<u64, Refusal>>>,
}

impl Reads {
    /// Asks for the next block.
    fn next(self: &Arc<Self>, engine: &IoEngine) {
        let offset =
            self.state.lock().next_place(self.pattern, self.places) * self.block_bytes as u64;
        let reads = Arc::clone(self);
        let done = Box::new(move |answer| reads.answered(offset, answer));
        engine
            .submit(&self.file, offset, self.block_bytes, done)
            .detach();
    }

    /// Takes in an answer, and asks for another block unless the time is over.
    fn answered(self: &Arc<Self>, offset: u64, answer: Result<Bytes, TierError>) {
        let refusal = match answer {
            Err(error) => Some(failed(error)),
            Ok(bytes) => {
                let number = (offset / PAGE_BYTES as u64).to_le_bytes();
                let right = bytes.len() == self.block_bytes && bytes[..8] == number;
                (!right).then_some(Refusal::WrongSum)
            }
        };
        let mut state = self.state.lock();
        state.count += 1;
        state.refusal = state.refusal.take().or(refusal);
        let over = state.refusal.is_some() || Instant::now() >= state.until;
        if let (false, Some(engine)) = (over, self.engine.upgrade()) {
            drop(state);
            return self.next(&engine);
        }
        state.flying -= 1;
        if state.flying == 0 {
            let result = state.refusal.take().map_or(Ok(state.count), Err);
            // The receiver is gone if another ring was refused.
            let _ = state.ended.take().map(|ended| ended.send(result));
        }
    }
}

impl RingState {
    fn next_place(&mut self, pattern: Pattern, places: u64) -> u64 {
        let place = self.place;
        self.place = match pattern {
            Pattern::Sequential => (place + 1) % places,
            Pattern::Random | Pattern::Dependent => {
                self.random = next_random(self.random);
                ((u128::from(self.random) * u128::from(places)) >> 64) as u64
            }
        };
        place
    }
}

pub(super) fn failed(error: TierError) -> Refusal {
    Refusal::Failed {
        reason: error.to_string(),
    }
}
