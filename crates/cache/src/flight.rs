//! A read that one or more requests share, and the future each of them holds.
//!
//! `Queued → Reading → Done`, or `Cancelled` from either of the first two when the last asker leaves. The
//! phase changes under the flight's own lock, which is a leaf of the lock order (see [`crate::manager`]).

use crate::error::ReadError;
use crate::key::{SegmentInfo, SegmentKey};
use crate::lease::Lease;
use crate::manager::{CacheManager, FileEntry};
use crate::reader::ReadHandle;
use crate::scan::ScanContext;
use bytes::Bytes;
use parking_lot::Mutex;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// One read and its askers.
pub(crate) struct Flight {
    pub(crate) key: SegmentKey,
    pub(crate) info: SegmentInfo,
    pub(crate) file: Arc<FileEntry>,
    /// The scan of the first asker: the read is on its account.
    pub(crate) scan: Arc<ScanContext>,
    pub(crate) state: Mutex<FlightState>,
    /// Whether an asker stands still for it (and not merely looks ahead).
    pub(crate) awaited: AtomicBool,
}

pub(crate) struct FlightState {
    pub(crate) phase: Phase,
    pub(crate) populate: bool,
    asker_count: usize,
    wakers: Vec<Option<Waker>>,
}

pub(crate) enum Phase {
    Queued,
    Reading(Option<Box<dyn ReadHandle>>),
    Done(Result<Lease, ReadError>),
    Cancelled,
}

impl Flight {
    pub(crate) fn new(
        key: SegmentKey,
        info: SegmentInfo,
        file: Arc<FileEntry>,
        scan: &Arc<ScanContext>,
    ) -> Arc<Self> {
        Arc::new(Self {
            key,
            info,
            file,
            scan: Arc::clone(scan),
            state: Mutex::new(FlightState {
                phase: Phase::Queued,
                populate: false,
                asker_count: 0,
                wakers: Vec::new(),
            }),
            awaited: AtomicBool::new(false),
        })
    }

    /// Adds an asker. Only under the shard's lock, while the flight is in the shard's map.
    pub(crate) fn join(
        self: &Arc<Self>,
        cache: &Arc<CacheManager>,
        scan: &Arc<ScanContext>,
    ) -> SegmentFuture {
        let mut state = self.state.lock();
        state.asker_count += 1;
        state.populate |= scan.populate;
        state.wakers.push(None);
        SegmentFuture(Outcome::Waiting(Asker {
            cache: Arc::clone(cache),
            flight: Arc::clone(self),
            scan: Arc::clone(scan),
            asker_idx: state.wakers.len() - 1,
            stood_since: None,
        }))
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Cancelled)
    }
}

impl FlightState {
    /// Takes an asker away and returns its waker. If it was the last one of an unfinished flight, the flight
    /// becomes `Cancelled` and its former phase is returned. Both are to be dropped outside all locks.
    pub(crate) fn leave(&mut self, asker_idx: usize) -> (Option<Waker>, Option<Phase>) {
        let waker = self.wakers[asker_idx].take();
        self.asker_count -= 1;
        let unfinished = matches!(self.phase, Phase::Queued | Phase::Reading(_));
        let cancelled = (self.asker_count == 0 && unfinished)
            .then(|| std::mem::replace(&mut self.phase, Phase::Cancelled));
        (waker, cancelled)
    }

    /// Ends the flight. Returns whom to wake and the former phase, to be dropped outside all locks.
    pub(crate) fn finish(&mut self, result: Result<Lease, ReadError>) -> (Vec<Waker>, Phase) {
        let done = Phase::Done(result);
        if matches!(self.phase, Phase::Cancelled) {
            return (Vec::new(), done);
        }
        let wakers = self.wakers.iter_mut().filter_map(Option::take).collect();
        (wakers, std::mem::replace(&mut self.phase, done))
    }
}

/// Resolves to the bytes of a segment. The read was started when the future was made; dropping the last
/// future of a read cancels it. The bytes count against the budget until the last clone is dropped.
#[must_use = "the read is cancelled when the future is dropped"]
pub struct SegmentFuture(Outcome);

enum Outcome {
    Ready(Result<Bytes, ReadError>),
    Waiting(Asker),
    Taken,
}

/// One request's place in a flight.
pub(crate) struct Asker {
    cache: Arc<CacheManager>,
    pub(crate) flight: Arc<Flight>,
    scan: Arc<ScanContext>,
    pub(crate) asker_idx: usize,
    stood_since: Option<Instant>,
}

impl SegmentFuture {
    pub(crate) fn ready(result: Result<Bytes, ReadError>) -> Self {
        Self(Outcome::Ready(result))
    }

    /// Whether awaiting would not stand still.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Outcome::Ready(_) => true,
            Outcome::Waiting(asker) => {
                matches!(asker.flight.state.lock().phase, Phase::Done(_))
            }
            Outcome::Taken => false,
        }
    }
}

impl Asker {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<Bytes, ReadError>> {
        let mut state = self.flight.state.lock();
        if let Phase::Done(result) = &state.phase {
            let result = result.as_ref().map(Lease::bytes).map_err(ReadError::clone);
            if let Some(since) = self.stood_since {
                let wait = since.elapsed();
                self.scan.count_wait(wait);
                self.cache.admissions.count_wait(wait);
            }
            return Poll::Ready(result);
        }
        self.stood_since.get_or_insert_with(Instant::now);
        let former = state.wakers[self.asker_idx].replace(context.waker().clone());
        drop(state);
        drop(former);
        if !self.flight.awaited.swap(true, SeqCst) {
            self.cache.start_waiting_reads();
        }
        Poll::Pending
    }
}

impl Future for SegmentFuture {
    type Output = Result<Bytes, ReadError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Outcome::Waiting(asker) = &mut self.0 {
            let Poll::Ready(result) = asker.poll(context) else {
                return Poll::Pending;
            };
            self.0 = Outcome::Taken;
            return Poll::Ready(result);
        }
        match std::mem::replace(&mut self.0, Outcome::Taken) {
            Outcome::Ready(result) => Poll::Ready(result),
            Outcome::Waiting(_) | Outcome::Taken => {
                panic!("a SegmentFuture was polled after it ended")
            }
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.cache.leave(self);
    }
}

impl fmt::Debug for SegmentFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (state, key) = match &self.0 {
            Outcome::Ready(_) => ("ready", None),
            Outcome::Waiting(asker) => ("waiting", Some(asker.flight.key)),
            Outcome::Taken => ("taken", None),
        };
        f.debug_struct("SegmentFuture")
            .field("state", &state)
            .field("key", &key)
            .finish()
    }
}
