//! A read that one or more requests share.
//!
//! `Queued → Reading → Done`, or `Cancelled` from either of the first two when the last request is dropped. The
//! phase changes under the flight's own lock, which is a leaf of the lock order (see `crate::manager`).

use crate::error::ReadError;
use crate::files::FileEntry;
use crate::key::{SegmentInfo, SegmentKey};
use crate::lease::Lease;
use crate::reader::ReadHandle;
use crate::scan::ScanContext;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Waker;
use std::time::Instant;

/// One read and the requests that share it.
pub(crate) struct Flight {
    pub(crate) key: SegmentKey,
    pub(crate) info: SegmentInfo,
    pub(crate) file: Arc<FileEntry>,
    /// The scan of the first request: the read is on its account.
    pub(crate) scan: Arc<ScanContext>,
    pub(crate) state: Mutex<FlightState>,
    /// Whether a request waits for it now, and does not merely look ahead.
    pub(crate) awaited: AtomicBool,
}

pub(crate) struct FlightState {
    pub(crate) phase: Phase,
    pub(crate) populate: bool,
    /// When its read began.
    pub(crate) begun: Option<Instant>,
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
                begun: None,
                asker_count: 0,
                wakers: Vec::new(),
            }),
            awaited: AtomicBool::new(false),
        })
    }

    /// Adds a request and returns its index. Only under the shard's lock, while the flight is in the shard's map.
    pub(crate) fn join(&self, scan: &ScanContext) -> usize {
        let mut state = self.state.lock();
        state.asker_count += 1;
        state.populate |= scan.populate;
        state.wakers.push(None);
        state.wakers.len() - 1
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Cancelled)
    }
}

impl FlightState {
    /// The result of a read that has ended; otherwise keeps the waker and returns the request's former one, to be
    /// dropped outside all locks.
    pub(crate) fn result_or_wait(
        &mut self,
        asker_idx: usize,
        waker: &Waker,
    ) -> Result<Result<Bytes, ReadError>, Option<Waker>> {
        match &self.phase {
            Phase::Done(result) => Ok(result.as_ref().map(Lease::bytes).map_err(ReadError::clone)),
            _ => Err(self.wakers[asker_idx].replace(waker.clone())),
        }
    }

    /// Removes a request and returns its waker. If it was the last one of an unfinished flight, the flight
    /// becomes `Cancelled` and its former phase is returned. Both are to be dropped outside all locks.
    pub(crate) fn leave(&mut self, asker_idx: usize) -> (Option<Waker>, Option<Phase>) {
        let waker = self.wakers[asker_idx].take();
        self.asker_count -= 1;
        let unfinished = matches!(self.phase, Phase::Queued | Phase::Reading(_));
        let cancelled = (self.asker_count == 0 && unfinished)
            .then(|| std::mem::replace(&mut self.phase, Phase::Cancelled));
        (waker, cancelled)
    }

    /// Ends the flight. Returns the wakers to call and the former phase, to be dropped outside all locks.
    pub(crate) fn finish(&mut self, result: Result<Lease, ReadError>) -> (Vec<Waker>, Phase) {
        let done = Phase::Done(result);
        if matches!(self.phase, Phase::Cancelled) {
            return (Vec::new(), done);
        }
        let wakers = self.wakers.iter_mut().filter_map(Option::take).collect();
        (wakers, std::mem::replace(&mut self.phase, done))
    }
}
