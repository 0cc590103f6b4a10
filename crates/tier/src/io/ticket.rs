//! The two ways to hold on to a read that was submitted: tickets and futures.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use bytes::Bytes;
use parking_lot::Mutex;

use super::lane::Lane;
use super::request::{Done, Read};
use crate::TierError;

/// A claim on a read that was submitted. Dropping it cancels the read unless it is answered already; a
/// cancelled read is answered with [`TierError::Cancelled`].
#[must_use = "dropping the ticket cancels the read"]
pub struct ReadTicket {
    read: Arc<Read>,
    lane: Arc<Lane>,
    detached: bool,
}

impl ReadTicket {
    pub(super) fn new(read: Arc<Read>, lane: Arc<Lane>) -> Self {
        Self {
            read,
            lane,
            detached: false,
        }
    }

    /// Lets the read run to its end without a ticket.
    pub fn detach(mut self) {
        self.detached = true;
    }

    /// Whether the answer has been given, or is being given right now.
    pub fn is_answered(&self) -> bool {
        self.read.is_answered()
    }
}

impl Drop for ReadTicket {
    fn drop(&mut self) {
        if !self.detached && !self.is_answered() {
            self.read.cancel();
            self.lane.sweep();
        }
    }
}

/// A read as a future. It runs whether polled or not; dropping the future cancels it.
#[must_use = "dropping the future cancels the read"]
pub struct ReadFuture {
    slot: Arc<Mutex<Slot>>,
    _ticket: ReadTicket,
}

#[derive(Default)]
pub(super) struct Slot {
    result: Option<Result<Bytes, TierError>>,
    waker: Option<Waker>,
}

impl Slot {
    /// A slot and the callback that fills it.
    pub(super) fn pair() -> (Arc<Mutex<Slot>>, Done) {
        let slot = Arc::<Mutex<Slot>>::default();
        let filled = Arc::clone(&slot);
        let done = Box::new(move |result| {
            let mut slot = filled.lock();
            slot.result = Some(result);
            let waker = slot.waker.take();
            drop(slot);
            waker.into_iter().for_each(Waker::wake);
        });
        (slot, done)
    }
}

impl ReadFuture {
    pub(super) fn new(slot: Arc<Mutex<Slot>>, ticket: ReadTicket) -> Self {
        Self {
            slot,
            _ticket: ticket,
        }
    }

    /// Blocks the calling thread until the read is answered. Not for I/O threads.
    pub fn wait(mut self) -> Result<Bytes, TierError> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => thread::park(),
            }
        }
    }
}

impl Future for ReadFuture {
    type Output = Result<Bytes, TierError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.slot.lock();
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
