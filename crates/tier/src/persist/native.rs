//! Persistence by CPU instructions: persistent memory that is mapped directly, and volatile memory, where the same code
//! runs without flushes.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    FlushInstruction, LINE_BYTES, PersistOps, StreamWidth, fence, flush_lines, stream_lines,
};
use crate::error::TierError;
use crate::region::{Sealed, Window};

/// Stores, flushes and fences on mapped memory.
#[derive(Debug)]
pub struct Native {
    pub(super) window: Window,
    flush: Option<FlushInstruction>,
    stream: StreamWidth,
}

impl Native {
    /// Writes with `flush`, or without flushes where caches need none (eADR, volatile memory). The CPU must have the
    /// instruction, which only [`FlushInstruction::available`] hands out in this crate.
    pub(super) fn new(window: Window, flush: Option<FlushInstruction>) -> Self {
        let stream = StreamWidth::detect();
        Self {
            window,
            flush: flush.filter(|one| FlushInstruction::available().contains(one)),
            stream,
        }
    }

    #[cfg(test)]
    pub(super) fn with_stream(mut self, stream: StreamWidth) -> Self {
        assert!(stream <= StreamWidth::detect());
        self.stream = stream;
        self
    }

    pub(super) fn seal_to(&mut self, end: usize) -> Sealed {
        self.window.seal_to(end)
    }
}

impl PersistOps for Native {
    fn window(&self) -> Range<usize> {
        self.window.range()
    }

    fn store(&mut self, offset: usize, bytes: &[u8]) {
        let target = self.window.write_pointer(&(offset..offset + bytes.len()));
        // SAFETY: `write_pointer` checked that the range lies in our window, which nothing else reads or writes, so it
        // cannot overlap `bytes` either.
        unsafe { super::instructions::store(target, bytes) };
    }

    fn copy_nt(&mut self, offset: usize, bytes: &[u8]) {
        let range = offset..offset + bytes.len();
        let target = self.window.write_pointer(&range);
        let lines = whole_lines(&range);
        if self.stream == StreamWidth::None || lines.is_empty() {
            self.store(offset, bytes);
            return self.flush(range);
        }
        let (head, tail) = (lines.start - range.start, lines.end - range.start);
        self.store(offset, &bytes[..head]);
        self.store(lines.end, &bytes[tail..]);
        let middle = &bytes[head..tail];
        let target = target.wrapping_add(head);
        // SAFETY: The lines lie in our window (checked above), which cannot overlap `bytes`. The region starts at a
        // page, so offsets that are multiples of a line are aligned addresses. The width was detected.
        unsafe { stream_lines(middle.as_ptr(), target, middle.len(), self.stream) };
        self.flush(range.start..lines.start);
        self.flush(lines.end..range.end);
    }

    fn flush(&mut self, range: Range<usize>) {
        if let Some(instruction) = self.flush.filter(|_| !range.is_empty()) {
            let start = self.window.write_pointer(&range);
            // SAFETY: The range is mapped, and the constructor checked that the CPU has the instruction.
            unsafe { flush_lines(start, range.len(), instruction) };
        }
    }

    fn fence(&mut self) -> Result<(), TierError> {
        fence();
        Ok(())
    }

    fn publish(&mut self, offset: usize, word: u64) {
        assert!(offset.is_multiple_of(size_of::<u64>()));
        let target = self
            .window
            .write_pointer(&(offset..offset + size_of::<u64>()));
        // SAFETY: The eight bytes lie in our window and are aligned, because the region starts at a page. Nothing else
        // accesses them while the window exists.
        let target = unsafe { AtomicU64::from_ptr(target.cast::<u64>()) };
        target.store(word.to_le(), Ordering::Release);
    }

    fn split_off(&mut self, at: usize) -> Self {
        Self {
            window: self.window.split_off(at),
            flush: self.flush,
            stream: self.stream,
        }
    }
}

/// The part of a range that consists of whole lines; empty at the range's start if there is none.
pub(super) fn whole_lines(range: &Range<usize>) -> Range<usize> {
    let start = range.start.next_multiple_of(LINE_BYTES);
    let end = range.end - range.end % LINE_BYTES;
    match start < end {
        true => start..end,
        false => range.start..range.start,
    }
}
