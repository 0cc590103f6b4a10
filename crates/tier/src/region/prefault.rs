//! Making the pages of a region present in the background: the first touch of a page costs up to half a millisecond
//! on persistent memory, which is better paid before the first query than during it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::mm::{self, Advice};

use super::mapping::Mapping;
use crate::error::TierError;

/// Pages are made present in steps of this size, and cancelling waits for at most one step.
const STEP_BYTES: usize = 16 << 20;

/// A running pre-fault; dropping it stops the work.
#[derive(Debug)]
pub struct Prefault {
    progress: Arc<PrefaultProgress>,
    thread: Option<JoinHandle<Result<(), TierError>>>,
}

#[derive(Debug, Default)]
struct PrefaultProgress {
    present_bytes: AtomicU64,
    stop: AtomicBool,
}

impl Prefault {
    pub(super) fn start(mapping: Arc<Mapping>, range: Range<usize>) -> Result<Self, TierError> {
        let progress = Arc::new(PrefaultProgress::default());
        let theirs = Arc::clone(&progress);
        let thread = std::thread::Builder::new()
            .name("hotshelf-prefault".to_owned())
            .spawn(move || populate(&mapping, range, &theirs))
            .map_err(|source| TierError::system("start a pre-fault thread", source))?;
        Ok(Self {
            progress,
            thread: Some(thread),
        })
    }

    /// How many bytes are present so far.
    pub fn present_bytes(&self) -> u64 {
        self.progress.present_bytes.load(Ordering::Relaxed)
    }

    /// Waits for the end and returns how many bytes were made present.
    ///
    /// # Errors
    /// What the kernel said when it refused, for example for lack of memory.
    pub fn wait(mut self) -> Result<u64, TierError> {
        if let Some(Ok(result)) = self.thread.take().map(JoinHandle::join) {
            result?;
        }
        Ok(self.present_bytes())
    }
}

impl Drop for Prefault {
    fn drop(&mut self) {
        self.progress.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // An error of a cancelled pre-fault does not matter: pages come on first touch instead.
            let _ = thread.join();
        }
    }
}

fn populate(
    mapping: &Mapping,
    range: Range<usize>,
    progress: &PrefaultProgress,
) -> Result<(), TierError> {
    for start in range.clone().step_by(STEP_BYTES) {
        if progress.stop.load(Ordering::Relaxed) {
            break;
        }
        let step = start..(start + STEP_BYTES).min(range.end);
        let advice = match mapping.writable() {
            true => Advice::LinuxPopulateWrite,
            false => Advice::LinuxPopulateRead,
        };
        // SAFETY: The range lies in a mapping that the `Arc` keeps alive. Populating makes pages present without
        // changing a byte, so it does not count as a write for readers and writers.
        let advised = unsafe { mm::madvise(mapping.pointer(&step).cast(), step.len(), advice) };
        advised.map_err(|errno| TierError::system("make pages present", errno.into()))?;
        let step_bytes = step.len() as u64;
        progress
            .present_bytes
            .fetch_add(step_bytes, Ordering::Relaxed);
    }
    Ok(())
}
