//! What a table is written with: shared words, flushes, fences.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use hotshelf_tier::TierError;
use hotshelf_tier::region::Words;
use parking_lot::Mutex;

/// Words that all threads share, with the operations that make them durable.
pub trait Store: Sync {
    /// The words, for loads.
    fn words(&self) -> &[AtomicU64];

    /// Stores a word, in order after every earlier store of this thread.
    fn store(&self, at: usize, word: u64);

    /// Replaces a word if it is `old`.
    fn replace(&self, at: usize, old: u64, new: u64) -> bool;

    /// Starts making words durable. What goes wrong is kept for [`Store::check`].
    fn flush(&self, words: Range<usize>);

    /// Waits until everything that this thread flushed is durable.
    fn fence(&self);

    /// What went wrong since the last call, if anything did.
    fn check(&self) -> Result<(), TierError>;

    #[inline]
    fn load(&self, at: usize) -> u64 {
        self.words()[at].load(Ordering::Acquire)
    }

    fn persist(&self, words: Range<usize>) {
        self.flush(words);
        self.fence();
    }
}

/// Words of a region of any kind.
#[derive(Debug)]
pub struct RegionStore {
    words: Words,
    failed: Mutex<Option<TierError>>,
}

impl RegionStore {
    pub fn new(words: Words) -> Self {
        Self {
            words,
            failed: Mutex::new(None),
        }
    }
}

impl Store for RegionStore {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.words.words()
    }

    fn store(&self, at: usize, word: u64) {
        self.words.words()[at].store(word, Ordering::Release);
    }

    fn replace(&self, at: usize, old: u64, new: u64) -> bool {
        let word = &self.words.words()[at];
        word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn flush(&self, words: Range<usize>) {
        if let Err(error) = self.words.flush(words) {
            self.failed.lock().get_or_insert(error);
        }
    }

    fn fence(&self) {
        self.words.fence();
    }

    fn check(&self) -> Result<(), TierError> {
        self.failed.lock().take().map_or(Ok(()), Err)
    }
}
