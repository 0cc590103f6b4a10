//! One device operation: the vectors it fills, how far it has come, and the reads it answers.

use std::io;
use std::sync::Arc;

use super::PAGE_BYTES;
use super::fault::Fault;
use super::file::IoFile;
use super::plan::{OperationPlan, PageCopy, Part};
use super::request::Read;
use super::shared::Shared;
use super::stats::count;
use crate::TierError;

/// How often in a row a device may say "try again" without progress before that becomes an error.
const RETRIES_MAX: u32 = 100;

/// A device operation. Its owner must end it, by [`Self::end`] or [`Self::abandon`]: its reads are answered only then.
pub(super) struct Operation {
    file: Arc<IoFile>,
    offset: u64,
    bytes: usize,
    parts: Vec<Part>,
    copies: Vec<PageCopy>,
    reads: Vec<Arc<Read>>,
    vectors: Vec<libc::iovec>,
    /// Bytes from `offset` on that have arrived.
    filled: usize,
    retries: u32,
    started_ns: u64,
}

// SAFETY: The addresses in `vectors` point into buffers that the reads own, and into scratch memory that the
// engine owns; both are Send, and only the thread that has the operation uses the addresses.
unsafe impl Send for Operation {}

/// What a finished device call means for its operation.
pub(super) enum Progress {
    /// Not all has arrived: call the device again.
    Again,
    /// The operation is over: all that can arrive has, or the device failed with this error number.
    Over(Result<(), i32>),
}

impl Operation {
    /// An operation that serves those of `asked` that the plan names.
    pub(super) fn new(plan: OperationPlan, asked: &[Arc<Read>]) -> Self {
        let reads: Vec<_> = plan
            .asks
            .iter()
            .map(|&idx| Arc::clone(&asked[idx]))
            .collect();
        reads.iter().for_each(|read| read.add_operation());
        let OperationPlan {
            offset,
            bytes,
            parts,
            copies,
            ..
        } = plan;
        let file = Arc::clone(&reads[0].file);
        Self {
            file,
            offset,
            bytes,
            parts,
            copies,
            reads,
            vectors: Vec::new(),
            filled: 0,
            retries: 0,
            started_ns: 0,
        }
    }

    pub(super) fn file(&self) -> &IoFile {
        &self.file
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the next device call starts.
    pub(super) fn position(&self) -> u64 {
        self.offset + self.filled as u64
    }

    /// The vectors of the next device call, see [`Self::prepare`].
    pub(super) fn vectors(&self) -> &[libc::iovec] {
        &self.vectors
    }

    /// Whether all its reads are cancelled.
    pub(super) fn is_unwanted(&self) -> bool {
        self.reads.iter().all(|read| read.is_cancelled())
    }

    /// Makes the vectors of the next device call; gives buffers to reads that have none. A planned fault is
    /// returned as the error number to be taken for the call's result.
    pub(super) fn prepare(&mut self, shared: &Shared) -> Result<Option<i32>, TierError> {
        if self.started_ns == 0 {
            self.started_ns = shared.now_ns();
        }
        count(&shared.counters.device_operations, 1);
        let mut bytes_max = usize::MAX;
        match shared
            .options
            .faults
            .as_ref()
            .and_then(|faults| faults.next())
        {
            Some(Fault::Errno(errno)) => return Ok(Some(errno)),
            Some(Fault::Short(bytes)) => {
                bytes_max = bytes.max(PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES
            }
            None => {}
        }
        for copy in &self.copies {
            self.reads[copy.to_ask].buffer_start(shared)?;
        }
        self.fill_vectors(bytes_max, shared)?;
        Ok(None)
    }

    fn fill_vectors(&mut self, bytes_max: usize, shared: &Shared) -> Result<(), TierError> {
        self.vectors.clear();
        let (mut skip, mut remaining) = (self.filled, bytes_max);
        for part in &self.parts {
            let bytes = part.bytes().saturating_sub(skip).min(remaining);
            if bytes > 0 {
                let start = match *part {
                    Part::Gap { .. } => shared.scratch_start(),
                    Part::Buffer { ask, at, .. } => self.reads[ask]
                        .buffer_start(shared)?
                        .wrapping_add(at + skip),
                };
                self.vectors.push(libc::iovec {
                    iov_base: start.cast(),
                    iov_len: bytes,
                });
            }
            skip = skip.saturating_sub(part.bytes());
            remaining -= bytes;
        }
        Ok(())
    }

    /// Takes the result of a device call: bytes read, or a negative error number.
    pub(super) fn progress(&mut self, result: i32, shared: &Shared) -> Progress {
        let Ok(bytes) = usize::try_from(result) else {
            let again = matches!(-result, libc::EINTR | libc::EAGAIN);
            self.retries += 1;
            let over = !again || self.retries > RETRIES_MAX;
            return if over {
                Progress::Over(Err(-result))
            } else {
                Progress::Again
            };
        };
        count(&shared.counters.device_bytes, bytes as u64);
        let reached = self.filled + bytes;
        if reached >= self.needed() {
            self.filled = reached;
            return Progress::Over(Ok(()));
        }
        // Direct reads continue at whole pages; not to have passed one means that the file ends here.
        let resume = if self.file.is_direct() {
            reached - reached % PAGE_BYTES
        } else {
            reached
        };
        if resume <= self.filled {
            self.filled = reached;
            return Progress::Over(Ok(()));
        }
        self.filled = resume;
        self.retries = 0;
        Progress::Again
    }

    /// Bytes from `offset` on that must arrive; what follows in the last page was not asked for.
    fn needed(&self) -> usize {
        self.reads
            .iter()
            .map(|read| self.share_end(read))
            .max()
            .unwrap_or(0)
    }

    /// Where the part of the read that this operation serves ends, counted from `offset`.
    fn share_end(&self, read: &Read) -> usize {
        let end = read.offset + read.len as u64 - self.offset;
        usize::try_from(end).map_or(self.bytes, |end| end.min(self.bytes))
    }

    /// Ends the operation: its reads are answered, or it is replaced by the operations returned, when
    /// one of several reads may have failed the others.
    pub(super) fn end(self, result: Result<(), i32>, shared: &Shared) -> Vec<Operation> {
        count(
            &shared.counters.device_ns,
            shared.now_ns().saturating_sub(self.started_ns),
        );
        match result {
            Ok(()) => self.deliver(shared),
            Err(_) if self.reads.len() > 1 => return self.one_by_one(),
            Err(errno) => self.abandon(shared, |read| {
                let source = io::Error::from_raw_os_error(errno);
                TierError::io_at(read.file.path(), "read", read.offset, source)
            }),
        }
        Vec::new()
    }

    /// Ends the operation with an error for each of its reads.
    pub(super) fn abandon(self, shared: &Shared, error: impl Fn(&Read) -> TierError) {
        for read in &self.reads {
            // SAFETY: `new` or `one_by_one` announced this operation to the read; `self` is consumed, so it ends once.
            // The device is not at work on it: its owner has the result of the last call, or never made one.
            unsafe { read.operation_done(Err(error(read)), shared) };
        }
    }

    /// Ends the operation although the device may still write for it: its buffers are never freed.
    pub(super) fn abandon_in_flight(self, shared: &Shared, error: &TierError) {
        for read in &self.reads {
            read.fail_in_flight(error.clone(), shared);
        }
        std::mem::forget(self.vectors);
    }

    fn deliver(self, shared: &Shared) {
        for copy in &self.copies {
            self.copy_page(copy, shared);
        }
        for read in &self.reads {
            let result = if self.share_end(read) <= self.filled {
                Ok(())
            } else {
                Err(self.cut_short(read))
            };
            // SAFETY: As in `abandon` for the ending; `Ok` is said only when the device has filled the operation
            // to the end of the read's share, and a shared page has just been copied.
            unsafe { read.operation_done(result, shared) };
        }
    }

    fn copy_page(&self, copy: &PageCopy, shared: &Shared) {
        let (from, to) = (&self.reads[copy.from_ask], &self.reads[copy.to_ask]);
        let (Ok(from), Ok(to)) = (from.buffer_start(shared), to.buffer_start(shared)) else {
            unreachable!("`prepare` has given a buffer to every read of the operation");
        };
        let from = from.wrapping_add(copy.from_at);
        // SAFETY: The plan places a whole page at `from_at` inside the first buffer, and the second buffer has at
        // least one page; they are different allocations. The device is done with both pages, which belong to this
        // operation alone, and neither read can be answered before this operation ends.
        unsafe { from.copy_to_nonoverlapping(to, PAGE_BYTES) };
    }

    fn cut_short(&self, read: &Read) -> TierError {
        let found = read.file.check_range(read.offset, read.len);
        found.err().unwrap_or_else(|| TierError::ShortRead {
            path: read.file.path().into(),
            offset: read.offset,
            len_bytes: read.len as u64,
            file_bytes: self.position(),
        })
    }

    /// The same reads, each by an operation of its own that takes this one's place.
    fn one_by_one(self) -> Vec<Operation> {
        let end = self.offset + self.bytes as u64;
        let alone = |read: &Arc<Read>| {
            let offset = read.start().max(self.offset);
            let at = (offset - read.start()) as usize;
            let bytes = (read.end().min(end) - offset) as usize;
            Operation {
                file: Arc::clone(&self.file),
                offset,
                bytes,
                parts: vec![Part::Buffer { ask: 0, at, bytes }],
                copies: Vec::new(),
                reads: vec![Arc::clone(read)],
                vectors: Vec::new(),
                filled: 0,
                retries: 0,
                started_ns: 0,
            }
        };
        self.reads.iter().map(alone).collect()
    }
}
