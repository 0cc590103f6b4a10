//! Huge pages for memory that others allocate.

use rustix::mm::{self, Advice};

use super::HUGE_PAGE_BYTES;

/// Asks the kernel to use huge pages for memory that is yet to be touched. Random access to hundreds of
/// megabytes otherwise waits for page tables as long as for the data. Contents do not change; nothing happens
/// where the kernel has no huge pages or the memory is too small for one.
pub fn prefer_huge_pages<T>(memory: &mut [T]) {
    let page = rustix::param::page_size();
    let range = memory.as_mut_ptr_range();
    let start = (range.start as usize).next_multiple_of(page);
    let end = range.end as usize / page * page;
    if end.saturating_sub(start) < HUGE_PAGE_BYTES {
        return;
    }
    let first = range
        .start
        .cast::<u8>()
        .wrapping_add(start - range.start as usize);
    // SAFETY: the whole pages from `first` on lie inside `memory`, which is borrowed exclusively; this advice
    // changes the size of pages and never what is in them.
    let _ = unsafe { mm::madvise(first.cast(), end - start, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_stay_as_they_are() {
        for len in [0, 1, 5_000, 2 << 20] {
            let mut numbers: Vec<u64> = (0..len).collect();
            prefer_huge_pages(&mut numbers);
            assert!(numbers.iter().copied().eq(0..len));
        }
    }
}
