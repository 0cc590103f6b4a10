//! Writing bytes so that they survive a power cut: [`Writer`] checks, [`PersistOps`] does.
//!
//! Every write goes through five operations: store, non-temporal copy, flush, fence and publish. [`RegionOps`] carries
//! them out on a mapped region with the instructions its durability needs; [`Trace`] records them, so that the
//! crash-state enumerator can try every state a power cut may leave; [`Count`] counts them.

mod count;
mod instructions;
mod msync;
mod native;
mod region_ops;
mod trace;
mod writer;

#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::error::TierError;

pub use count::{Count, Counts};
pub use instructions::{FlushInstruction, LINE_BYTES};
pub use msync::Msync;
pub use native::Native;
pub use region_ops::RegionOps;
pub use trace::{Event, Note, Trace, TraceLog};
pub use writer::{Writer, WriterOptions};

pub(crate) use instructions::{StreamWidth, fence, flush_lines, stream_lines};
pub(crate) use msync::sync_pages;

/// The five operations of persistent writing, on a window of a region.
///
/// Offsets count from the start of the region. [`Writer`] has checked that they lie inside the window, so an
/// implementation may panic on others but must not touch them.
pub trait PersistOps: Sized {
    /// The offsets that may be written.
    fn window(&self) -> Range<usize>;

    /// Copies with ordinary stores. Nothing is durable yet, and lines may become durable in any order.
    fn store(&mut self, offset: usize, bytes: &[u8]);

    /// Copies without the cache: like a store and a flush of the same bytes.
    fn copy_nt(&mut self, offset: usize, bytes: &[u8]);

    /// Starts making the lines of a range durable.
    fn flush(&mut self, range: Range<usize>);

    /// Waits until everything that this thread flushed or streamed is durable.
    ///
    /// # Errors
    /// What the operating system says, where it is involved.
    fn fence(&mut self) -> Result<(), TierError>;

    /// Stores eight aligned bytes, little-endian, at once: after a power cut either all or none are there.
    fn publish(&mut self, offset: usize, word: u64);

    /// Gives everything from `at` to a new window; both may then be written independently.
    fn split_off(&mut self, at: usize) -> Self;
}
