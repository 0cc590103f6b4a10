//! Page-aligned memory that a device writes to and a caller then reads through [`Bytes`].

use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;

use super::arena::Arena;

/// Page-aligned memory of whole pages; goes back to its arena when dropped.
#[derive(Debug)]
pub(super) struct Buffer {
    start: NonNull<u8>,
    bytes: usize,
    arena: Arc<Arena>,
}

// SAFETY: A Buffer owns its memory like a Box does; the arena it returns it to is behind a lock.
unsafe impl Send for Buffer {}
// SAFETY: A shared Buffer gives out only its address; code that writes through that address is responsible for it.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Takes possession of memory.
    ///
    /// # Safety
    /// 1. The range is mapped, readable and writable, and nothing else uses it until it is returned to the arena.
    pub(super) unsafe fn new(start: NonNull<u8>, bytes: usize, arena: Arc<Arena>) -> Self {
        Self {
            start,
            bytes,
            arena,
        }
    }

    /// Where the memory starts. It stays there for as long as the Buffer lives.
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Writes bytes to the start, as many as there is room for, and hands them out.
    pub(super) fn filled_with(self, bytes: &[u8]) -> Bytes {
        let len = bytes.len().min(self.bytes);
        // SAFETY: The buffer has `len` bytes, which nothing else knows and which `bytes` cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start(), len) };
        // SAFETY: The first `len` bytes were written, and nothing writes to the buffer from here on.
        unsafe { self.into_bytes(0, len) }
    }

    /// Hands out `[from, from + len)` without copying; the memory goes back with the last clone.
    ///
    /// # Safety
    /// 1. `[from, from + len)` lies within the buffer.
    /// 2. All of it has been written to.
    /// 3. Nothing writes to the buffer any more.
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
        // SAFETY: The memory came from this arena and the Buffer is gone after this, as are all views of it: they
        // borrow the Buffer. The owner of a Buffer that a device writes to keeps it until the device is done.
        unsafe { self.arena.give_back(self.start, self.bytes) };
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
        let from = self.buffer.start().wrapping_add(self.from);
        // SAFETY: By the contract of `Buffer::into_bytes`, the range is inside the buffer, initialised and
        // not written to; the slice borrows `self`, which owns the memory.
        unsafe { std::slice::from_raw_parts(from, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::PAGE_BYTES;
    use super::*;

    #[test]
    fn a_filled_buffer_has_the_bytes_and_goes_back() {
        let arena = Arena::new(0, false);
        let source: Vec<u8> = (0..5000).map(|at| at as u8).collect();
        let copy = arena.allocate(2 * PAGE_BYTES).unwrap().filled_with(&source);
        assert_eq!(copy, source);
        let empty = arena.allocate(PAGE_BYTES).unwrap().filled_with(&[]);
        assert!(empty.is_empty());
        drop((copy, empty));
        assert_eq!(arena.lent_bytes(), 0);
    }

    #[test]
    fn bytes_are_a_view_of_the_buffer_that_was_written() {
        let arena = Arena::new(0, false);
        let buffer = arena.allocate(2 * PAGE_BYTES).unwrap();
        let start = buffer.start();
        assert_eq!(start as usize % PAGE_BYTES, 0);
        let whole = buffer.filled_with(&[7; 2 * PAGE_BYTES]);
        let bytes = whole.slice(PAGE_BYTES - 50..PAGE_BYTES + 50);
        drop(whole);
        let clone = bytes.clone();
        drop(bytes);
        assert_eq!(arena.lent_bytes(), 2 * PAGE_BYTES);
        assert_eq!(clone, vec![7; 100]);
        assert_eq!(clone.as_ptr() as usize, start as usize + PAGE_BYTES - 50);
        drop(clone);
        assert_eq!(arena.lent_bytes(), 0);
    }
}
