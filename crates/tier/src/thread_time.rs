//! How long the processor has worked for the calling thread.

/// Processor time of the calling thread so far, in nanoseconds. Differences on one thread leave out what other
/// threads took from the processor in between. Zero where the system does not tell.
pub fn thread_time_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that the call may write for its duration.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) } != 0;
    if failed {
        return 0;
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_and_sleep_does_not() {
        let before = thread_time_ns();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let slept = thread_time_ns() - before;
        let begun = std::time::Instant::now();
        let mut sum = 0u64;
        while thread_time_ns() - before - slept < 5_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(begun.elapsed().as_nanos() as u64 >= 4_000_000);
        assert!(slept < 20_000_000, "{slept} ns while asleep");
    }
}
