//! What the I/O side has still to do: reads not yet planned, and operations not yet started.
//!
//! Reads are planned as late as possible, when an operation is wanted and none is planned, so that as many
//! neighbours as possible have arrived. Whatever was planned goes before whatever arrives later.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::PAGE_BYTES;
use super::lane::Mail;
use super::operation::Operation;
use super::plan::{Limits, plan};
use super::request::Read;
use super::shared::Shared;
use super::stats::count;
use crate::TierError;

/// Reads that arrive together become at least this many operations, so that merging does not leave a device
/// that works in parallel with a single one…
const OPERATIONS_MIN: usize = 4;
/// …unless they would be smaller than this: from here on larger operations cost less per byte but are no faster.
const SHARE_BYTES_MIN: usize = 512 << 10;

/// Reads and operations that wait for their turn.
#[derive(Default)]
pub(super) struct Backlog {
    reads: Vec<Arc<Read>>,
    operations: VecDeque<Operation>,
    stopping: bool,
    /// Since when the bandwidth cap holds back the next operation.
    held_since_ns: Option<u64>,
}

/// What to do next.
pub(super) enum Next {
    /// Run this operation.
    Run(Operation),
    /// There is one, but the bandwidth cap does not allow it before this time has passed.
    Hold(Duration),
    /// There is one, but it is larger than the remaining room.
    NoRoom,
    /// There is nothing to do.
    Nothing,
}

impl Backlog {
    /// Takes in mail. Answers cancelled reads, and when stopping all reads.
    pub(super) fn accept(&mut self, mail: Mail, shared: &Shared) {
        self.reads.extend(mail.reads);
        self.stopping |= mail.stop;
        if self.stopping {
            self.refuse_all(shared, stopped);
        } else if mail.sweep {
            self.sweep(shared);
        }
    }

    /// Whether the engine is being dropped. There is nothing to do then.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// The next operation, if it has at most `room_bytes` and the bandwidth cap allows it.
    pub(super) fn next(&mut self, room_bytes: usize, shared: &Shared) -> Next {
        self.plan(shared);
        let Some(first) = self.operations.front() else {
            return Next::Nothing;
        };
        if first.bytes() > room_bytes {
            return Next::NoRoom;
        }
        let now_ns = shared.now_ns();
        match shared.throttle.lock().take(first.bytes(), now_ns) {
            Err(wait_ns) => {
                self.held_since_ns.get_or_insert(now_ns);
                Next::Hold(Duration::from_nanos(wait_ns))
            }
            Ok(()) => {
                let held_since_ns = self.held_since_ns.take().unwrap_or(now_ns);
                count(&shared.counters.throttled_ns, now_ns - held_since_ns);
                self.operations.pop_front().map_or(Next::Nothing, Next::Run)
            }
        }
    }

    /// Operations that replace one just run; they come first.
    pub(super) fn put_back(&mut self, operations: Vec<Operation>) {
        operations
            .into_iter()
            .rev()
            .for_each(|operation| self.operations.push_front(operation));
    }

    /// Turns all waiting reads into operations, unless earlier operations remain.
    fn plan(&mut self, shared: &Shared) {
        if !self.operations.is_empty() || self.reads.is_empty() {
            return;
        }
        let reads = mem::take(&mut self.reads);
        let (reads, answerable): (Vec<_>, Vec<_>) =
            reads.into_iter().partition(|read| read.needs_device());
        answerable.iter().for_each(|read| read.answer(shared));
        let asks: Vec<_> = reads.iter().map(|read| read.ask()).collect();
        let bytes = reads
            .iter()
            .map(|read| (read.end() - read.start()) as usize)
            .sum();
        for planned in plan(&asks, &limits(bytes, shared)) {
            count(&shared.counters.merged, planned.asks.len() as u64 - 1);
            self.operations.push_back(Operation::new(planned, &reads));
        }
    }

    fn sweep(&mut self, shared: &Shared) {
        let (unwanted, wanted): (Vec<_>, Vec<_>) = mem::take(&mut self.reads)
            .into_iter()
            .partition(|read| read.is_cancelled());
        self.reads = wanted;
        unwanted.iter().for_each(|read| read.answer(shared));
        let (unwanted, wanted): (VecDeque<_>, VecDeque<_>) = mem::take(&mut self.operations)
            .into_iter()
            .partition(Operation::is_unwanted);
        self.operations = wanted;
        unwanted
            .into_iter()
            .for_each(|operation| operation.abandon(shared, cancelled));
    }

    /// Answers everything with errors.
    pub(super) fn refuse_all(&mut self, shared: &Shared, error: impl Fn(&Read) -> TierError) {
        for read in mem::take(&mut self.reads) {
            read.fail(error(&read), shared);
        }
        for operation in mem::take(&mut self.operations) {
            operation.abandon(shared, &error);
        }
    }
}

fn cancelled(read: &Read) -> TierError {
    TierError::Cancelled {
        path: read.file.path().into(),
        offset: read.offset,
    }
}

fn stopped(read: &Read) -> TierError {
    TierError::EngineStopped {
        path: read.file.path().into(),
        offset: read.offset,
    }
}

/// Sizes of operations for reads of this many bytes in all, by the options and the present bandwidth cap.
fn limits(bytes: usize, shared: &Shared) -> Limits {
    let throttle = shared.throttle.lock();
    let capped = throttle.bytes_per_s_max().is_some();
    let share_bytes = (bytes / OPERATIONS_MIN).next_multiple_of(PAGE_BYTES);
    let operation_bytes_max = shared
        .options
        .merge_bytes_max
        .min(throttle.operation_bytes_max())
        .min(share_bytes.max(SHARE_BYTES_MIN));
    Limits {
        operation_bytes_max,
        gap_bytes_max: if capped { 0 } else { shared.scratch_bytes() },
        parts_max: libc::UIO_MAXIOV as usize,
    }
}
