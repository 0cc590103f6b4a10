//! Batches in files: what operators hold beyond their memory.
//!
//! A [`SpillFolder`] belongs to one open database. An operator makes a [`SpillFile`] in it for each schema, and
//! writes batches of about 64 KiB to 1 MiB in any order and from any thread. Each gives a [`SpilledBatch`], which
//! reads it back and frees its place in the file when it is dropped.
//!
//! A spilled batch is Arrow's IPC format without its schema and starts at a page. It is compressed by LZ4 as a whole
//! where that takes less time than it saves on the device, or where the folder is more than half full.
//! Its length and CRC-32 are in memory only, because the files end with the process. They are written directly
//! (`O_DIRECT`) where the file system can, and read by the I/O engine, which counts the bytes and caps the
//! bandwidth. A file's name is removed as soon as the file is open, so the space is free again however the process
//! ends. What a kill leaves between the two steps is removed when the folder is opened again.

mod codec;
mod extents;
mod file;
mod folder;
#[cfg(test)]
mod tests;
mod worth;

use std::sync::Arc;

pub use file::{PendingBatch, SpillFile, SpilledBatch};
pub use folder::{SpillFolder, SpillOptions, SpillStats};

/// Counts the bytes of each batch that is written, compressed, whole pages.
pub type OnSpill = Arc<dyn Fn(u64) + Send + Sync>;

/// Counts nothing.
pub fn uncounted() -> OnSpill {
    Arc::new(|_| {})
}

/// The memory that writing a batch needs besides the batch itself: an encoded and a compressed copy.
pub fn write_bytes(batch_bytes: u64) -> u64 {
    2 * batch_bytes + batch_bytes / 128 + 4 * hotshelf_tier::io::PAGE_BYTES as u64
}
