//! The seam between the cache and whatever reads files.

use crate::error::ReadError;
use bytes::Bytes;

/// Called with the outcome of a read, exactly once, from any thread.
pub type ReadDone = Box<dyn FnOnce(Result<Bytes, ReadError>) + Send>;

/// A read that is under way. Dropping it says that the bytes are no longer wanted; the reader may then stop
/// early, and still calls (or drops) its [`ReadDone`] once the buffer is free again. Dropping it after the read
/// has ended does nothing.
pub trait ReadHandle: Send {}

/// A segment that lies where loads can read it, and that its device was asked for: gives its bytes, which take no
/// memory of the budget. Called when they are needed; returns when the device would have answered.
pub type LyingSegment = Box<dyn FnOnce() -> Result<Bytes, ReadError> + Send>;

/// Reads the segments of one data file.
pub trait SegmentReader: Send + Sync {
    /// Starts reading a segment and returns at once.
    ///
    /// `done` may be called before this returns, and from any thread. The implementation must not take a
    /// lock that is also held while [`Bytes`] of the cache are dropped: dropping bytes can start the next
    /// waiting read.
    fn read(&self, segment_idx: u32, done: ReadDone) -> Box<dyn ReadHandle>;

    /// Asks for a segment that lies on a shelf that loads can read; `None` has [`Self::read`] asked.
    fn lying(&self, _segment_idx: u32) -> Option<LyingSegment> {
        None
    }

    /// A copy of such bytes in memory, if there is any.
    fn copied(&self, _bytes: &[u8]) -> Option<Bytes> {
        None
    }
}
