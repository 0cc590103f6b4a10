//! One read, from submission to its answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::buffer::Buffer;
use super::file::IoFile;
use super::plan::Ask;
use super::shared::Shared;
use super::stats::count;
use super::{buffer_bytes, page_start};
use crate::TierError;

/// Receives the answer to a read, on an I/O thread. It should be quick: it delays other answers.
pub type Done = Box<dyn FnOnce(Result<Bytes, TierError>) + Send>;

/// One read of a batch, see [`IoEngine::submit_batch`](super::IoEngine::submit_batch).
pub struct ReadRequest {
    /// The file to read.
    pub file: Arc<IoFile>,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: usize,
    /// Receives the answer.
    pub done: Done,
}

/// A read inside the engine.
///
/// Invariants:
/// 1. `done` is called exactly once: the thread that takes it out of `state` calls it.
/// 2. The buffer exists from before the first operation starts until the answer takes it, and
///    the answer waits until `open_operations` is zero: no device writes to it after that.
pub(super) struct Read {
    pub(super) file: Arc<IoFile>,
    pub(super) offset: u64,
    pub(super) len: usize,
    open_operations: AtomicUsize,
    cancelled: AtomicBool,
    answered: AtomicBool,
    state: Mutex<ReadState>,
}

struct ReadState {
    done: Option<Done>,
    buffer: Option<Buffer>,
    error: Option<TierError>,
}

impl Read {
    pub(super) fn new(request: ReadRequest) -> Arc<Self> {
        let ReadRequest {
            file,
            offset,
            len,
            done,
        } = request;
        let error = file.check_range(offset, len).err();
        Arc::new(Self {
            file,
            offset,
            len,
            open_operations: AtomicUsize::new(0),
            cancelled: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            state: Mutex::new(ReadState {
                done: Some(done),
                buffer: None,
                error,
            }),
        })
    }

    /// What the planner needs to know.
    pub(super) fn ask(&self) -> Ask {
        Ask {
            file: self.file.id(),
            offset: self.offset,
            len: self.len,
        }
    }

    /// Whether the device has to be asked at all.
    pub(super) fn needs_device(&self) -> bool {
        self.len > 0 && !self.is_cancelled() && self.state.lock().error.is_none()
    }

    /// Asks for an early end: the read is answered with [`TierError::Cancelled`].
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the answer has been given, or is being given right now.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Offset in the file of the first byte of the buffer.
    pub(super) fn start(&self) -> u64 {
        page_start(self.offset)
    }

    /// Offset in the file of the first byte behind the buffer.
    pub(super) fn end(&self) -> u64 {
        self.start() + buffer_bytes(self.offset, self.len) as u64
    }

    /// One more operation will call [`Self::operation_done`].
    pub(super) fn add_operation(&self) {
        self.open_operations.fetch_add(1, Ordering::Relaxed);
    }

    /// Where the buffer starts; allocates it when first asked.
    pub(super) fn buffer_start(&self, shared: &Shared) -> Result<*mut u8, TierError> {
        let mut state = self.state.lock();
        if state.buffer.is_none() {
            state.buffer = Some(shared.arena.allocate(buffer_bytes(self.offset, self.len))?);
        }
        Ok(state.buffer.as_ref().expect("just allocated").start())
    }

    /// One of the operations has ended: the device no longer writes for it. The last one answers.
    ///
    /// # Safety
    /// 1. The operation was announced by [`Self::add_operation`] and ends only once.
    /// 2. If `result` is `Ok`, the operation's share of the asked range has been written to the buffer.
    pub(super) unsafe fn operation_done(&self, result: Result<(), TierError>, shared: &Shared) {
        if let Err(error) = result {
            self.state.lock().error.get_or_insert(error);
        }
        if self.open_operations.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.answer(shared);
        }
    }

    /// Answers with an error. All operations must have ended.
    pub(super) fn fail(&self, error: TierError, shared: &Shared) {
        self.state.lock().error.get_or_insert(error);
        self.answer(shared);
    }

    /// Answers while a device may still write to the buffer, whose memory is therefore given up for good.
    pub(super) fn fail_in_flight(&self, error: TierError, shared: &Shared) {
        let mut state = self.state.lock();
        std::mem::forget(state.buffer.take());
        state.error.get_or_insert(error);
        drop(state);
        self.open_operations.store(0, Ordering::Relaxed);
        self.answer(shared);
    }

    /// Answers with the result. All operations must have ended.
    pub(super) fn answer(&self, shared: &Shared) {
        debug_assert_eq!(self.open_operations.load(Ordering::Relaxed), 0);
        let mut state = self.state.lock();
        let Some(done) = state.done.take() else {
            return;
        };
        let (buffer, error) = (state.buffer.take(), state.error.take());
        drop(state);
        let result = self.result(buffer, error);
        match &result {
            Ok(_) => {}
            Err(TierError::Cancelled { .. }) => count(&shared.counters.cancelled, 1),
            Err(_) => count(&shared.counters.errors, 1),
        }
        self.answered.store(true, Ordering::Release);
        shared.counters.answered(shared.now_ns());
        if catch_unwind(AssertUnwindSafe(|| done(result))).is_err() {
            tracing::error!(path = %self.file.path().display(), self.offset, "a read's callback panicked");
        }
    }

    fn result(&self, buffer: Option<Buffer>, error: Option<TierError>) -> Result<Bytes, TierError> {
        if self.is_cancelled() {
            return Err(TierError::Cancelled {
                path: self.file.path().into(),
                offset: self.offset,
            });
        }
        match (error, buffer) {
            (Some(error), _) => Err(error),
            (None, None) => Ok(Bytes::new()),
            (None, Some(buffer)) => {
                let from = (self.offset - self.start()) as usize;
                // SAFETY: The buffer has `buffer_bytes(offset, len)` bytes, which covers the range. Without an
                // error every operation of this read has reported its share as written, and all have ended.
                Ok(unsafe { buffer.into_bytes(from, self.len) })
            }
        }
    }
}
