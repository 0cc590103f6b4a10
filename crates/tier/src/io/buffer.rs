//! Page-aligned memory that a device writes to and a caller then reads through [`Bytes`].

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use bytes::Bytes;

use super::PAGE_BYTES;
use crate::TierError;

/// Page-aligned memory of whole pages, not initialised.
#[derive(Debug)]
pub(super) struct Buffer {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: A Buffer owns its memory like a Box does and has no other state; which thread frees it does not matter.
unsafe impl Send for Buffer {}
// SAFETY: A shared Buffer gives out only its address; whoever writes through that address answers for it.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Memory of `bytes` bytes: whole pages, not zero.
    pub(super) fn allocate(bytes: usize) -> Result<Self, TierError> {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(PAGE_BYTES));
        let refused = TierError::OutOfMemory { bytes };
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| refused.clone())?;
        // SAFETY: The layout has a size above zero.
        let start = unsafe { alloc(layout) };
        let start = NonNull::new(start).ok_or(refused)?;
        Ok(Self { start, bytes })
    }

    /// Where the memory starts. It stays there for as long as the Buffer lives.
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Hands out `[from, from + len)` without copying; the memory is freed with the last clone.
    ///
    /// # Safety
    /// 1. `[from, from + len)` lies within the buffer.
    /// 2. All of it has been written to.
    /// 3. Nobody writes to the buffer any more.
    pub(super) unsafe fn into_bytes(self, from: usize, len: usize) -> Bytes {
        debug_assert!(from + len <= self.bytes);
        Bytes::from_owner(Filled {
            buffer: self,
            from,
            len,
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: The memory was allocated with this very layout, which was valid then, and is freed only here.
        unsafe {
            let layout = Layout::from_size_align_unchecked(self.bytes, PAGE_BYTES);
            dealloc(self.start.as_ptr(), layout);
        }
    }
}

/// A buffer of which `[from, from + len)` is initialised and no longer written to.
struct Filled {
    buffer: Buffer,
    from: usize,
    len: usize,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: By the contract of `Buffer::into_bytes`, the range is inside the buffer, initialised and
        // not written to; the slice borrows `self`, which owns the memory.
        unsafe { std::slice::from_raw_parts(self.buffer.start().add(self.from), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_a_view_of_the_buffer_that_was_written() {
        let buffer = Buffer::allocate(2 * PAGE_BYTES).unwrap();
        let start = buffer.start();
        assert_eq!(start as usize % PAGE_BYTES, 0);
        // SAFETY: The whole buffer is written before 100 bytes inside it are handed out; nobody else knows it.
        let bytes = unsafe {
            start.write_bytes(7, 2 * PAGE_BYTES);
            buffer.into_bytes(PAGE_BYTES - 50, 100)
        };
        assert_eq!(bytes, vec![7; 100]);
        assert_eq!(bytes.as_ptr() as usize, start as usize + PAGE_BYTES - 50);
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        let bytes = isize::MAX as usize - PAGE_BYTES + 1;
        assert!(matches!(
            Buffer::allocate(bytes),
            Err(TierError::OutOfMemory { .. })
        ));
    }
}
