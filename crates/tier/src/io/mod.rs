//! Asynchronous reads from files, and writes of whole pages, without the page cache.
//!
//! Callers hand ranges to the [`IoEngine`]; its I/O threads sort what has arrived, read neighbours by one
//! device operation and call back with [`Bytes`](bytes::Bytes) that share the buffer the device wrote to.
//!
//! ```text
//! submit ─► inbox ─► plan (sort, merge, split) ─► throttle ─► io_uring or preadv ─► done(Bytes)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `options` | what can be set, and what is refused |
//! | `engine` | the public face: start, open, submit, read |
//! | `file` | an open file, and whether it is read directly |
//! | `ticket` | the two ways to hold on to a read: tickets and futures |
//! | `request` | one read from submission to its answer |
//! | `shared` | what callers and I/O threads share |
//! | `plan` | pure: requests in, device operations out |
//! | `operation` | one device operation: its vectors, its progress, its answers |
//! | `lane` | the queue between callers and an I/O thread |
//! | `backlog` | what an I/O thread still has to do, and in which order |
//! | `uring`, `pread` | the two ways to run operations |
//! | `throttle` | pure: the token bucket that stands in for slower storage |
//! | `buffer` | page-aligned memory that becomes `Bytes` |
//! | `arena`, `runs` | where buffers come from and go back to; pure: free ranges by size |
//! | `fault` | device faults on demand, for tests |
//! | `write` | writes of whole pages, under the same cap |
//! | `stats` | counters |

mod arena;
mod backlog;
mod buffer;
mod engine;
mod fault;
mod file;
mod here;
mod lane;
mod operation;
mod options;
mod plan;
mod pread;
mod request;
mod runs;
mod shared;
mod stats;
mod throttle;
mod ticket;
mod uring;
mod write;

#[cfg(test)]
mod tests;

pub use engine::IoEngine;
pub use fault::{Fault, FaultPlan};
pub use file::IoFile;
pub use options::{Backend, IoOptions};
pub use request::{Done, ReadRequest};
pub use stats::IoStats;
pub use ticket::{ReadFuture, ReadTicket};

/// Grain of direct I/O: offsets, lengths and addresses given to the device are multiples of it.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of memory that a read of `[offset, offset + len)` occupies: the range widened to whole pages.
///
/// ```
/// # use hotshelf_tier::io::buffer_bytes;
/// assert_eq!(buffer_bytes(4096, 4096), 4096);
/// assert_eq!(buffer_bytes(4095, 2), 8192);
/// assert_eq!(buffer_bytes(7, 0), 0);
/// ```
pub fn buffer_bytes(offset: u64, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let lead = (offset % PAGE_BYTES as u64) as usize;
    lead.saturating_add(len)
        .checked_next_multiple_of(PAGE_BYTES)
        .unwrap_or(usize::MAX)
}

/// The start of the page that holds `offset`.
fn page_start(offset: u64) -> u64 {
    offset - offset % PAGE_BYTES as u64
}
