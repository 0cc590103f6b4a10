//! How the C library's allocator treats freed memory.

/// Blocks up to this size, in bytes, come from the heap rather than from mappings of their own.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_MIN: i32 = 8 << 20;
/// The same where memory is tight.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_TIGHT: i32 = 1 << 20;
/// Free memory at a heap's end that is kept, in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BYTES_MAX: i32 = 16 << 20;
/// Threads that wait for a heap's lock take another one if there is any.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS_MIN: i32 = 2;

/// Tells the allocator to keep up to 16 MiB of freed memory per heap for reuse, and to have one heap for each
/// processor. By default it gives decoding buffers back to the system after every row group, and each new one then
/// costs a page fault per 4 KiB; and it makes eight heaps for each processor, each with holes of its own.
///
/// Changes the whole process, so it is for programs to call, not for libraries. Returns whether the allocator
/// took the advice; one that is not glibc's does not.
pub fn keep_freed_memory() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let heaps = i32::try_from(processors).unwrap_or(i32::MAX).max(HEAPS_MIN);
        set(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
            && set(libc::M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
            && set(libc::M_ARENA_MAX, heaps)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

/// Returns whether the allocator took the advice.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn set(what: i32, value: i32) -> bool {
    // SAFETY: `mallopt` takes two integers, locks what it changes, and may be called at any time.
    unsafe { libc::mallopt(what, value) == 1 }
}

/// Has blocks come from the heap up to 8 MiB, or, where memory is `tight`, up to 1 MiB: larger ones go back to the
/// system when they are freed, and leave no holes, at the price of a page fault per 4 KiB. For programs, as
/// [`keep_freed_memory`] is. Returns whether the allocator took the advice.
pub fn map_large_blocks(tight: bool) -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let bytes = match tight {
            true => MAPPED_BYTES_TIGHT,
            false => MAPPED_BYTES_MIN,
        };
        set(libc::M_MMAP_THRESHOLD, bytes)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    {
        let _ = tight;
        false
    }
}

/// Gives all freed memory back to the system. Takes milliseconds, and each page is a fault when it is used again.
///
/// Returns whether any was given back; an allocator that is not glibc's does nothing.
pub fn give_back_freed_memory() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: `malloc_trim` takes an integer, locks what it changes, and may be called at any time.
        unsafe { libc::malloc_trim(0) == 1 }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

/// Memory that only this process has, in bytes: without mapped files. `None` if the system does not say.
pub fn private_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1);
    let mut next = || pages.next()?.parse::<u64>().ok();
    let (resident, shared) = (next()?, next()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn freed_memory_can_be_given_back_and_used_again() {
        let blocks: Vec<Vec<u8>> = (0..64).map(|byte| vec![byte; 1 << 20]).collect();
        drop(blocks);
        super::give_back_freed_memory();
        assert!(super::private_bytes().unwrap() > 0);
        assert_eq!(
            vec![3u8; 1 << 20]
                .iter()
                .map(|&byte| u64::from(byte))
                .sum::<u64>(),
            3 << 20
        );
    }

    #[test]
    fn glibc_takes_the_advice_and_goes_on_allocating() {
        let taken = super::keep_freed_memory();
        assert_eq!(taken, cfg!(all(target_os = "linux", target_env = "gnu")));
        let block = vec![1u8; 9 << 20];
        assert_eq!(
            block.iter().map(|byte| u64::from(*byte)).sum::<u64>(),
            9 << 20
        );
    }
}
