//! The future that each request for a segment holds.

use crate::error::ReadError;
use crate::flight::{Flight, Phase};
use crate::manager::CacheManager;
use crate::reader::LyingSegment;
use crate::scan::ScanContext;
use bytes::Bytes;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use std::time::Instant;

/// Resolves to the bytes of a segment. The read was started when the future was made; dropping the last
/// future of a read cancels it. The bytes count against the budget until the last clone is dropped.
#[must_use = "the read is cancelled when the future is dropped"]
pub struct SegmentFuture(FutureState);

enum FutureState {
    Ready(Result<Bytes, ReadError>),
    Waiting(Asker),
    Lying(LyingSegment),
    Taken,
}

/// One request's place in a flight.
struct Asker {
    cache: Arc<CacheManager>,
    flight: Arc<Flight>,
    scan: Arc<ScanContext>,
    asker_idx: usize,
    waiting_since: Option<Instant>,
}

impl SegmentFuture {
    pub(crate) fn ready(result: Result<Bytes, ReadError>) -> Self {
        Self(FutureState::Ready(result))
    }

    pub(crate) fn lying(take: LyingSegment) -> Self {
        Self(FutureState::Lying(take))
    }

    /// Joins a flight. Only under the shard's lock, while the flight is in the shard's map.
    pub(crate) fn of_flight(
        cache: &Arc<CacheManager>,
        flight: &Arc<Flight>,
        scan: &Arc<ScanContext>,
    ) -> Self {
        Self(FutureState::Waiting(Asker {
            cache: Arc::clone(cache),
            flight: Arc::clone(flight),
            scan: Arc::clone(scan),
            asker_idx: flight.join(scan),
            waiting_since: None,
        }))
    }

    /// Whether awaiting it returns at once, or when a device that loads can read has answered.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            FutureState::Ready(_) | FutureState::Lying(_) => true,
            FutureState::Waiting(asker) => {
                matches!(asker.flight.state.lock().phase, Phase::Done(_))
            }
            FutureState::Taken => false,
        }
    }
}

impl Asker {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<Bytes, ReadError>> {
        let mut state = self.flight.state.lock();
        let former = match state.result_or_wait(self.asker_idx, context.waker()) {
            Ok(result) => {
                if let Some(since) = self.waiting_since {
                    let wait = since.elapsed();
                    self.scan.count_wait(wait);
                    self.cache.admissions.count_wait(wait);
                }
                return Poll::Ready(result);
            }
            Err(former) => former,
        };
        self.waiting_since.get_or_insert_with(Instant::now);
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
        if let FutureState::Waiting(asker) = &mut self.0 {
            let Poll::Ready(result) = asker.poll(context) else {
                return Poll::Pending;
            };
            self.0 = FutureState::Taken;
            return Poll::Ready(result);
        }
        match std::mem::replace(&mut self.0, FutureState::Taken) {
            FutureState::Ready(result) => Poll::Ready(result),
            FutureState::Lying(take) => Poll::Ready(take()),
            FutureState::Waiting(_) | FutureState::Taken => {
                panic!("a SegmentFuture was polled after it ended")
            }
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.cache.leave(&self.flight, self.asker_idx);
    }
}

impl fmt::Debug for SegmentFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (state, key) = match &self.0 {
            FutureState::Ready(_) => ("ready", None),
            FutureState::Waiting(asker) => ("waiting", Some(asker.flight.key)),
            FutureState::Lying(_) => ("lying", None),
            FutureState::Taken => ("taken", None),
        };
        f.debug_struct("SegmentFuture")
            .field("state", &state)
            .field("key", &key)
            .finish()
    }
}
