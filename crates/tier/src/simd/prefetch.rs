//! Asking the processor to fetch a cache line before it is needed.

/// Starts loading the cache line of `slice[idx]`; does nothing when `idx` is out of range or the
/// machine has no such instruction.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], idx: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = slice.get(idx) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of every x86-64 machine, the address comes from a live reference, and a
        // prefetch neither reads nor writes memory as far as the program can observe.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, idx);
}
