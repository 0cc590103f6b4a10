//! Words that record what is done to them, for the states that a power cut can leave.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use hotshelf_tier::TierError;
use hotshelf_tier::persist::{Event, Note, TraceLog};
use parking_lot::Mutex;

use super::Store;

#[derive(Debug)]
pub struct TracedStore {
    words: Vec<AtomicU64>,
    log: Mutex<TraceLog>,
}

impl TracedStore {
    pub fn new(words: &[u64]) -> Self {
        Self {
            words: words.iter().map(|word| AtomicU64::new(*word)).collect(),
            log: Mutex::default(),
        }
    }

    /// Words of an image; x86 and most others have the lowest byte first.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Self::new(&words)
    }

    /// Forgets the past.
    pub fn restart(&self) {
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        *self.log.lock() = TraceLog {
            current: bytes.clone(),
            initial: bytes,
            events: Vec::new(),
        };
    }

    pub fn note(&self, note: Note) {
        self.log.lock().events.push(Event::Note(note));
    }

    pub fn log(&self) -> TraceLog {
        self.log.lock().clone()
    }

    fn push(&self, event: Event) {
        self.log.lock().events.push(event);
    }
}

impl Store for TracedStore {
    fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    fn store(&self, at: usize, word: u64) {
        self.words[at].store(word, Ordering::Release);
        self.push(Event::Publish {
            offset: at * 8,
            word,
        });
    }

    fn replace(&self, at: usize, old: u64, new: u64) -> bool {
        let replaced =
            self.words[at].compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
        if replaced.is_ok() {
            self.push(Event::Publish {
                offset: at * 8,
                word: new,
            });
        }
        replaced.is_ok()
    }

    fn flush(&self, words: Range<usize>) {
        let range = words.start * 8..words.end * 8;
        self.push(Event::Flush {
            thread: thread::current().id(),
            range,
        });
    }

    fn fence(&self) {
        self.push(Event::Fence {
            thread: thread::current().id(),
        });
    }

    fn check(&self) -> Result<(), TierError> {
        Ok(())
    }
}
