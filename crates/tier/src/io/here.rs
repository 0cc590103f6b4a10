//! Small reads on the thread that asks for them: waking two threads takes about as long as a fast device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use super::backlog::{Backlog, Next};
use super::engine::IoEngine;
use super::lane::Mail;
use super::pread;
use super::request::{Read, ReadRequest};

/// Larger reads take long enough for another thread.
const BYTES_MAX: usize = 64 << 10;
/// While reads take longer than this, the asking thread is not held up.
const QUICK_NS: u64 = 400_000;
/// One read in as many is tried all the same: the device may be quick again.
const TRIED: u64 = 64;
/// One part in this many of what is known about the time of a read is the last one's.
const LEARNED: u64 = 8;

/// How long such reads took.
#[derive(Debug, Default)]
pub(super) struct Quickness {
    mean_ns: AtomicU64,
    asked: AtomicU64,
}

impl Quickness {
    fn is_quick(&self) -> bool {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        self.mean_ns.load(Ordering::Relaxed) <= QUICK_NS || asked.is_multiple_of(TRIED)
    }

    fn learn(&self, took_ns: u64) {
        let mean_ns = self.mean_ns.load(Ordering::Relaxed);
        let mean_ns = mean_ns - mean_ns / LEARNED + took_ns / LEARNED;
        self.mean_ns.store(mean_ns, Ordering::Relaxed);
    }
}

impl IoEngine {
    /// Serves a read on this thread; `done` has been called when this returns. Gives the read back where it should be
    /// submitted: it is large, the device has been slow lately, or its bandwidth is capped.
    ///
    /// # Errors
    /// The request, if it was not served.
    pub fn serve_here(&self, request: ReadRequest) -> Result<(), ReadRequest> {
        let shared = &self.shared;
        if request.len > BYTES_MAX || self.bandwidth_max().is_some() || !self.quickness.is_quick() {
            return Err(request);
        }
        let begun = Instant::now();
        let read = Read::new(request);
        let (bytes, now_ns) = (read.len as u64, shared.now_ns());
        shared.counters.asked(1, bytes, now_ns);
        let mut backlog = Backlog::default();
        let mut mail = Mail::default();
        mail.reads.push(read);
        backlog.accept(mail, shared);
        loop {
            match backlog.next(usize::MAX, shared) {
                Next::Run(operation) => pread::run(operation, shared),
                // The cap has just been set.
                Next::Hold(time) => thread::sleep(time),
                Next::Nothing | Next::NoRoom => break,
            }
        }
        let took_ns = u64::try_from(begun.elapsed().as_nanos());
        self.quickness.learn(took_ns.unwrap_or(u64::MAX));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_reads_are_tried_seldom_until_they_are_quick_again() {
        let quickness = Quickness::default();
        assert!((0..100).all(|_| quickness.is_quick()));
        (0..40).for_each(|_| quickness.learn(10_000_000));
        let tried = (0..640).filter(|_| quickness.is_quick()).count();
        assert_eq!(tried, 10);
        (0..60).for_each(|_| quickness.learn(80_000));
        assert!((0..100).all(|_| quickness.is_quick()));
    }
}
