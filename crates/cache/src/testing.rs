//! Test doubles: readers under the test's control, and ways to drive futures by hand.

use crate::*;
use bytes::Bytes;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

/// A read that a [`ManualReader`] was asked for and the test has not answered yet.
pub(crate) struct PendingRead {
    pub(crate) segment_idx: u32,
    pub(crate) done: ReadDone,
    pub(crate) wanted: Arc<AtomicBool>,
}

/// Collects reads; the test answers them when and how it likes. Counts the bytes of live buffers.
#[derive(Default)]
pub(crate) struct ManualReader {
    pub(crate) pending: Mutex<Vec<PendingRead>>,
    pub(crate) live_bytes: Arc<AtomicU64>,
    segment_bytes: u64,
}

struct Wanted(Arc<AtomicBool>);

impl ReadHandle for Wanted {}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

/// A buffer that says how long it lives.
struct Buffer {
    bytes: Vec<u8>,
    charged_bytes: u64,
    live_bytes: Arc<AtomicU64>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.live_bytes.fetch_sub(self.charged_bytes, SeqCst);
    }
}

impl ManualReader {
    pub(crate) fn new(segment_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            segment_bytes,
            ..Self::default()
        })
    }

    /// The segments asked for and not yet answered, in order.
    pub(crate) fn asked(&self) -> Vec<u32> {
        let pending = self.pending.lock();
        pending.iter().map(|read| read.segment_idx).collect()
    }

    pub(crate) fn buffer(&self, segment_idx: u32) -> Bytes {
        self.live_bytes.fetch_add(self.segment_bytes, SeqCst);
        Bytes::from_owner(Buffer {
            bytes: segment_idx.to_le_bytes().to_vec(),
            charged_bytes: self.segment_bytes,
            live_bytes: Arc::clone(&self.live_bytes),
        })
    }

    /// Takes the n-th pending read, to answer it.
    pub(crate) fn take(&self, pending_idx: usize) -> PendingRead {
        self.pending.lock().remove(pending_idx)
    }

    /// Answers the oldest pending read of a segment with its bytes.
    pub(crate) fn answer(&self, segment_idx: u32) {
        let position = self.asked().iter().position(|idx| *idx == segment_idx);
        let read = self.take(position.expect("the segment was asked for"));
        (read.done)(Ok(self.buffer(segment_idx)));
    }
}

impl SegmentReader for ManualReader {
    fn read(&self, segment_idx: u32, done: ReadDone) -> Box<dyn ReadHandle> {
        let wanted = Arc::new(AtomicBool::new(true));
        self.pending.lock().push(PendingRead {
            segment_idx,
            done,
            wanted: Arc::clone(&wanted),
        });
        Box::new(Wanted(wanted))
    }
}

/// Answers each read before `read` returns.
#[derive(Default)]
pub(crate) struct InstantReader;

impl SegmentReader for InstantReader {
    fn read(&self, segment_idx: u32, done: ReadDone) -> Box<dyn ReadHandle> {
        done(Ok(Bytes::copy_from_slice(&segment_idx.to_le_bytes())));
        Box::new(Wanted(Arc::default()))
    }
}

/// Data segments of one column each `bytes` large.
pub(crate) fn data_segments(count: u32, bytes: u64) -> Vec<SegmentInfo> {
    let info = |row_group_idx| SegmentInfo {
        column: ColumnId(0),
        row_group_idx,
        charged_bytes: bytes,
        kind: SegmentKind::Data,
    };
    (0..count).map(info).collect()
}

/// A cache of one shard.
pub(crate) fn cache(budget_bytes: u64, policy: PolicyKind) -> Arc<CacheManager> {
    CacheManager::new(CacheOptions {
        budget_bytes,
        policy,
        partitions: 1,
        transit_bytes: Some(budget_bytes / 8),
        ..CacheOptions::default()
    })
}

pub(crate) fn key(segment_idx: u32) -> SegmentKey {
    SegmentKey {
        file: FileId(0),
        segment_idx,
    }
}

/// The event log as text, `kind segment` by commas.
pub(crate) fn trace(cache: &CacheManager) -> String {
    let events = cache.events();
    let words = events
        .iter()
        .map(|event| format!("{} {}", event.kind, event.key.segment_idx));
    words.collect::<Vec<_>>().join(", ")
}

#[derive(Default)]
pub(crate) struct CountingWaker(pub(crate) AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Polls once.
pub(crate) fn poll(future: &mut SegmentFuture) -> Poll<Result<Bytes, ReadError>> {
    poll_with(future, &Arc::default())
}

pub(crate) fn poll_with(
    future: &mut SegmentFuture,
    waker: &Arc<CountingWaker>,
) -> Poll<Result<Bytes, ReadError>> {
    let waker = Waker::from(Arc::clone(waker));
    pin!(future).poll(&mut Context::from_waker(&waker))
}

/// The bytes of a future that must be ready now.
pub(crate) fn now(mut future: SegmentFuture) -> Bytes {
    match poll(&mut future) {
        Poll::Ready(result) => result.expect("the read succeeded"),
        Poll::Pending => panic!("the future is not ready"),
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
