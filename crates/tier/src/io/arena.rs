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
/// One byte in this many lent ones may stay free whatever the bound is: buffers of mixed sizes leave that much between
/// them, and returning it only to need it again costs ten times as much as reading.
const LENT_PER_POOLED: usize = 8;
/// Address space is mapped in pieces of this size, or larger for larger buffers.
const CHUNK_BYTES: usize = 32 << 20;

/// A source of page-aligned buffers.
#[derive(Debug)]
pub(super) struct Arena {
    pool_bytes_max: usize,
    huge_pages: bool,
    lent_bytes: AtomicUsize,
    state: Mutex<FreeMemory>,
}

/// Invariant: every page of every chunk (except the guard page at its end) is in exactly one of: a lent
/// buffer, `resident`, `released`.
#[derive(Debug, Default)]
struct FreeMemory {
    /// Free, with memory behind.
    resident: FreeRuns,
    /// Free, without memory behind until touched.
    released: FreeRuns,
    /// Start and usable size of each mapping. Behind each is a page that is never used, so that
    /// free ranges of two chunks do not touch.
    chunks: BTreeMap<usize, usize>,
}

impl Arena {
    /// An arena that keeps at most `pool_bytes_max` of free memory, or an eighth of what is lent if that is more.
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
        let start = self.state.lock().take(bytes, self.block(), self.huge_pages);
        let start = start.and_then(|start| NonNull::new(start as *mut u8));
        let start = start.ok_or(TierError::OutOfMemory { bytes })?;
        self.lent_bytes.fetch_add(bytes, Ordering::Relaxed);
        // SAFETY: `take` hands out mapped, readable and writable whole pages that nothing else uses.
        Ok(unsafe { Buffer::new(start, bytes, Arc::clone(self)) })
    }

    /// Takes a buffer's memory back.
    ///
    /// # Safety
    /// 1. The range came from [`Self::allocate`] and is given back once.
    /// 2. Nothing uses it any more, devices included.
    pub(super) unsafe fn give_back(&self, start: NonNull<u8>, bytes: usize) {
        let lent_bytes = self.lent_bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        let mut state = self.state.lock();
        state.resident.insert(start.as_ptr() as usize, bytes);
        let bytes_max = self.pool_bytes_max.max(lent_bytes / LENT_PER_POOLED);
        state.shrink(bytes_max, self.block());
    }

    /// Memory becomes resident, and is best given back, in steps of this size.
    fn block(&self) -> usize {
        if self.huge_pages {
            HUGE_BYTES
        } else {
            PAGE_BYTES
        }
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

impl FreeMemory {
    /// A free range, from resident memory if possible.
    fn take(&mut self, bytes: usize, block: usize, huge_pages: bool) -> Option<usize> {
        if let Some(start) = self.resident.take(bytes) {
            return Some(start);
        }
        if let Some(start) = self.released.take_fragment(bytes, block) {
            return Some(start);
        }
        let grown_bytes = bytes.checked_next_multiple_of(block)?;
        let start = match self.released.take_blocks(grown_bytes, block) {
            Some(start) => start,
            None => self.map_chunk(grown_bytes, huge_pages)?,
        };
        // A block becomes resident as a whole.
        if grown_bytes > bytes {
            self.resident.insert(start + bytes, grown_bytes - bytes);
        }
        Some(start)
    }

    /// Maps a chunk and takes this many bytes at its start.
    fn map_chunk(&mut self, taken_bytes: usize, huge_pages: bool) -> Option<usize> {
        let bytes = taken_bytes.max(CHUNK_BYTES);
        let mapped_bytes = bytes.checked_add(PAGE_BYTES)?;
        let start = map_aligned(mapped_bytes)?;
        if huge_pages {
            // SAFETY: The range has just been mapped. Refusal only means smaller pages.
            let _ = unsafe { madvise(start as *mut c_void, bytes, Advice::LinuxHugepage) };
        }
        self.chunks.insert(start, bytes);
        if bytes > taken_bytes {
            self.released
                .insert(start + taken_bytes, bytes - taken_bytes);
        }
        Some(start)
    }

    /// Gives free memory back to the system until at most `bytes_max` remain. Whole blocks go first: part of a
    /// huge page is given back only by breaking it up, and then in advance, so that it is rare.
    fn shrink(&mut self, bytes_max: usize, block: usize) {
        while self.resident.bytes() > bytes_max {
            let excess = self.resident.bytes() - bytes_max;
            let blocks = self.resident.take_blocks_of_largest(excess, block);
            let in_advance = (excess + bytes_max / 8).next_multiple_of(PAGE_BYTES);
            match blocks.or_else(|| self.resident.take_highest(in_advance)) {
                Some((start, bytes)) => self.release(start, bytes),
                None => return,
            }
        }
    }

    fn release(&mut self, start: usize, bytes: usize) {
        // SAFETY: The range is mapped and free: nothing holds its address, so its content may vanish.
        let gone = unsafe { madvise(start as *mut c_void, bytes, Advice::LinuxDontNeed) };
        debug_assert!(gone.is_ok());
        let (start, bytes) = self.released.insert(start, bytes);
        if self.chunks.get(&start) == Some(&bytes) {
            self.unmap_chunk(start, bytes);
        }
    }

    /// Forgets a chunk that is released as a whole.
    fn unmap_chunk(&mut self, start: usize, bytes: usize) {
        self.released.remove(start, bytes);
        self.chunks.remove(&start);
        unmap(start, bytes + PAGE_BYTES);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Every buffer keeps the arena alive, so no buffer remains.
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

/// Unmaps whole pages that are not in use. Callers pass only mappings made here.
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
                assert!(arena.pooled_bytes() <= (arena.lent_bytes() / 8).max(10 * PAGE));
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

    /// Memory that the system says is behind the chunks.
    fn resident_bytes(arena: &Arena) -> usize {
        let state = arena.state.lock();
        let (mut inside, mut sum) = (false, 0);
        for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
            let mut words = line.split_ascii_whitespace();
            let first = words.next().unwrap_or_default();
            if let Some((start, _)) = first.split_once('-') {
                let start = usize::from_str_radix(start, 16).unwrap();
                let chunk = state.chunks.range(..=start).next_back();
                inside = chunk.is_some_and(|(chunk, bytes)| start < chunk + bytes);
            } else if inside && first == "Rss:" {
                sum += words.next().unwrap().parse::<usize>().unwrap() * 1024;
            }
        }
        sum
    }

    #[test]
    fn no_more_memory_is_resident_than_is_said() {
        for huge_pages in [false, true] {
            let arena = Arena::new(4 << 20, huge_pages);
            let (mut live, mut number) = (Vec::new(), 1u32);
            for _ in 0..800 {
                number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let bytes = (1 + (number >> 16) as usize % 100) * PAGE;
                let buffer = arena.allocate(bytes).unwrap();
                fill(&buffer, bytes, 1);
                live.push(buffer);
                if live.len() > 150 {
                    live.swap_remove((number >> 8) as usize % live.len());
                }
            }
            let said = arena.lent_bytes() + arena.pooled_bytes();
            let found = resident_bytes(&arena);
            assert!(found <= said, "{found} of {said}");
            assert!(found >= said / 2, "{found} of {said}");
        }
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
