//! Where buffers come from: mapped memory of which freed ranges are kept for the next buffer.
//!
//! A fresh page costs a fault and a clearing, together more processor time than all the rest of a read, so
//! freed ranges stay resident, up to a bound. Beyond it they go back to the system, the highest
//! addresses first, and only their addresses are remembered.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::PAGE_BYTES;
use super::buffer::Buffer;
use super::runs::FreeRuns;
use crate::TierError;

/// Size and alignment of a huge page; memory becomes resident in such steps.
const HUGE_BYTES: usize = 2 << 20;
/// Address space is mapped in pieces of this size, or larger for larger buffers.
const CHUNK_BYTES: usize = 32 << 20;

/// A source of page-aligned buffers.
#[derive(Debug)]
pub(super) struct Arena {
    pool_bytes_max: usize,
    huge_pages: bool,
    lent_bytes: AtomicUsize,
    state: Mutex<State>,
}

/// Invariant: every page of every chunk (but for the guard page at its end) is in exactly one of: a lent
/// buffer, `resident`, `released`.
#[derive(Debug, Default)]
struct State {
    /// Free, with memory behind.
    resident: FreeRuns,
    /// Free, without memory behind until touched.
    released: FreeRuns,
    /// Start and usable size of each mapping. Behind each is a page that is never used, so that
    /// free ranges of two chunks do not touch.
    chunks: BTreeMap<usize, usize>,
}

impl Arena {
    /// An arena that keeps at most `pool_bytes_max` of free memory.
    pub(super) fn new(pool_bytes_max: usize, huge_pages: bool) -> Arc<Self> {
        let (lent_bytes, state) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Self {
            pool_bytes_max,
            huge_pages,
            lent_bytes,
            state,
        })
    }

    /// Memory of `bytes` bytes (whole pages, not zero) with whatever content.
    pub(super) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Buffer, TierError> {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(PAGE_BYTES));
        let start = self.state.lock().take(bytes, self.huge_pages);
        let start = start.and_then(|start| NonNull::new(start as *mut u8));
        let start = start.ok_or(TierError::OutOfMemory { bytes })?;
        self.lent_bytes.fetch_add(bytes, Ordering::Relaxed);
        // SAFETY: `take` hands out mapped, readable and writable whole pages that nobody else has.
        Ok(unsafe { Buffer::new(start, bytes, Arc::clone(self)) })
    }

    /// Takes a buffer's memory back.
    ///
    /// # Safety
    /// 1. The range came from [`Self::allocate`] and is given back once.
    /// 2. Nobody, the devices included, uses it any more.
    pub(super) unsafe fn give_back(&self, start: NonNull<u8>, bytes: usize) {
        self.lent_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.resident.insert(start.as_ptr() as usize, bytes);
        let excess = state.resident.bytes().saturating_sub(self.pool_bytes_max);
        state.release(excess);
    }

    /// Free memory that is kept for the next buffers.
    pub(super) fn pooled_bytes(&self) -> usize {
        self.state.lock().resident.bytes()
    }

    /// Memory of all buffers in use.
    pub(super) fn lent_bytes(&self) -> usize {
        self.lent_bytes.load(Ordering::Relaxed)
    }
}

impl State {
    /// A free range, from resident memory if possible.
    fn take(&mut self, bytes: usize, huge_pages: bool) -> Option<usize> {
        if let Some(start) = self.resident.take(bytes) {
            return Some(start);
        }
        let grain = if huge_pages { HUGE_BYTES } else { PAGE_BYTES };
        let grown_bytes = bytes.checked_next_multiple_of(grain)?;
        let start = match self.released.take(grown_bytes) {
            Some(start) => start,
            None => {
                self.map_chunk(grown_bytes, huge_pages)?;
                self.released.take(grown_bytes)?
            }
        };
        // A huge page becomes resident as a whole.
        if grown_bytes > bytes {
            self.resident.insert(start + bytes, grown_bytes - bytes);
        }
        Some(start)
    }

    fn map_chunk(&mut self, bytes_min: usize, huge_pages: bool) -> Option<()> {
        let bytes = bytes_min.max(CHUNK_BYTES);
        let mapped_bytes = bytes.checked_add(PAGE_BYTES)?;
        let start = map_aligned(mapped_bytes)?;
        if huge_pages {
            // SAFETY: The range has just been mapped. Refusal only means smaller pages.
            let _ = unsafe { madvise(start as *mut c_void, bytes, Advice::LinuxHugepage) };
        }
        self.chunks.insert(start, bytes);
        self.released.insert(start, bytes);
        Some(())
    }

    /// Gives free memory back to the system.
    fn release(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let Some((start, taken_bytes)) = self.resident.take_highest(bytes) else {
                return;
            };
            // SAFETY: The range is mapped and free: nobody has its address, so its content may vanish.
            let gone = unsafe { madvise(start as *mut c_void, taken_bytes, Advice::LinuxDontNeed) };
            debug_assert!(gone.is_ok());
            let (start, joined_bytes) = self.released.insert(start, taken_bytes);
            if self.chunks.get(&start) == Some(&joined_bytes) {
                self.unmap_chunk(start, joined_bytes);
            }
            bytes -= taken_bytes;
        }
    }

    /// Forgets a chunk all of which is released.
    fn unmap_chunk(&mut self, start: usize, bytes: usize) {
        self.released.remove(start, bytes);
        self.chunks.remove(&start);
        unmap(start, bytes + PAGE_BYTES);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Every buffer holds on to the arena, so none is left.
        for (&start, &bytes) in &self.state.get_mut().chunks {
            unmap(start, bytes + PAGE_BYTES);
        }
    }
}

/// Maps memory that starts at a multiple of [`HUGE_BYTES`].
fn map_aligned(bytes: usize) -> Option<usize> {
    let mapped_bytes = bytes.checked_add(HUGE_BYTES)?;
    let (access, flags) = (
        ProtFlags::READ | ProtFlags::WRITE,
        MapFlags::PRIVATE | MapFlags::NORESERVE,
    );
    // SAFETY: A new private mapping at an address of the kernel's choice touches no existing memory.
    let mapped = unsafe { mmap_anonymous(null_mut(), mapped_bytes, access, flags) }.ok()? as usize;
    let start = mapped.next_multiple_of(HUGE_BYTES);
    unmap(mapped, start - mapped);
    unmap(start + bytes, mapped + mapped_bytes - (start + bytes));
    Some(start)
}

/// Unmaps whole pages that nobody uses. Callers: only of mappings made here.
fn unmap(start: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: The callers above pass ranges of mappings made by `map_aligned` that no buffer lies in.
        let unmapped = unsafe { munmap(start as *mut c_void, bytes.next_multiple_of(PAGE_BYTES)) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = PAGE_BYTES;

    fn fill(buffer: &Buffer, bytes: usize, with: u8) {
        // SAFETY: The buffer has this many bytes and is used by this test only.
        unsafe { buffer.start().write_bytes(with, bytes) };
    }

    fn holds(buffer: &Buffer, bytes: usize, value: u8) -> bool {
        // SAFETY: The buffer has this many bytes, all written by `fill`.
        unsafe { std::slice::from_raw_parts(buffer.start(), bytes) }
            .iter()
            .all(|b| *b == value)
    }

    #[test]
    fn a_freed_range_is_the_next_buffer() {
        for huge_pages in [false, true] {
            let arena = Arena::new(1 << 20, huge_pages);
            let first = arena.allocate(16 * PAGE).unwrap();
            let start = first.start();
            drop(first);
            assert_eq!(arena.allocate(16 * PAGE).unwrap().start(), start);
        }
    }

    #[test]
    fn what_is_lent_and_what_is_pooled_is_known_and_bounded() {
        for huge_pages in [false, true] {
            let arena = Arena::new(10 * PAGE, huge_pages);
            let buffers: Vec<_> = (1..50).map(|n| arena.allocate(n * PAGE).unwrap()).collect();
            assert_eq!(arena.lent_bytes(), (1..50).sum::<usize>() * PAGE);
            for buffer in buffers {
                drop(buffer);
                assert!(arena.pooled_bytes() <= 10 * PAGE);
            }
            assert_eq!(arena.lent_bytes(), 0);
            assert!(arena.pooled_bytes() > 0);
        }
    }

    #[test]
    fn without_a_pool_all_memory_goes_back() {
        let arena = Arena::new(0, true);
        let large = arena.allocate(3 * CHUNK_BYTES).unwrap();
        let small = arena.allocate(PAGE).unwrap();
        fill(&large, 3 * CHUNK_BYTES, 1);
        drop((large, small));
        assert_eq!(arena.pooled_bytes(), 0);
        assert!(arena.state.lock().chunks.is_empty());
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        let arena = Arena::new(0, true);
        for bytes in [usize::MAX - PAGE + 1, 1 << 60] {
            let refused = arena.allocate(bytes);
            assert!(matches!(refused, Err(TierError::OutOfMemory { .. })));
        }
    }

    #[test]
    fn buffers_of_many_threads_never_overlap() {
        let arena = Arena::new(1 << 20, false);
        std::thread::scope(|scope| {
            for seed in 1..5usize {
                let arena = &arena;
                scope.spawn(move || {
                    let mut kept = Vec::new();
                    for step in 0..400usize {
                        let bytes = (1 + seed * step * 7 % 40) * PAGE;
                        let (buffer, value) = (arena.allocate(bytes).unwrap(), (step * seed) as u8);
                        fill(&buffer, bytes, value);
                        kept.push((buffer, bytes, value));
                        if kept.len() > 20 {
                            let (buffer, bytes, value) = kept.swap_remove(step % 20);
                            assert!(holds(&buffer, bytes, value));
                        }
                    }
                });
            }
        });
        assert_eq!(arena.lent_bytes(), 0);
    }
}
