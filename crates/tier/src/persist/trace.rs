//! Recording what is written, for the crash-state enumerator.

use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use parking_lot::Mutex;

use super::PersistOps;
use super::native::whole_lines;
use crate::error::TierError;

/// One recorded operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An ordinary store.
    Store {
        /// Where.
        offset: usize,
        /// What.
        bytes: Vec<u8>,
    },
    /// A store of whole lines that bypasses the cache.
    StoreNt {
        /// Who.
        thread: ThreadId,
        /// Where.
        offset: usize,
        /// What.
        bytes: Vec<u8>,
    },
    /// The eight-byte store that publishes.
    Publish {
        /// Where.
        offset: usize,
        /// What.
        word: u64,
    },
    /// Lines on their way to the media.
    Flush {
        /// Who.
        thread: ThreadId,
        /// Which bytes.
        range: Range<usize>,
    },
    /// A fence.
    Fence {
        /// Who.
        thread: ThreadId,
    },
    /// Something the program has promised or not yet promised.
    Note(Note),
}

/// Where a program stands: what recovery may and must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// State `n` may be found from here on.
    Started(u64),
    /// State `n` or a later one must be found from here on.
    Acked(u64),
}

/// All that was recorded.
#[derive(Debug, Clone, Default)]
pub struct TraceLog {
    /// The content before the first event.
    pub initial: Vec<u8>,
    /// The content after the last event.
    pub current: Vec<u8>,
    /// What happened, in order.
    pub events: Vec<Event>,
}

/// Records operations on memory of its own. Parts made by [`PersistOps::split_off`] share one log.
#[derive(Debug)]
pub struct Trace {
    log: Arc<Mutex<TraceLog>>,
    window: Range<usize>,
}

impl Trace {
    /// Starts with this content.
    pub fn new(initial: Vec<u8>) -> Self {
        let window = 0..initial.len();
        let log = TraceLog {
            current: initial.clone(),
            initial,
            events: Vec::new(),
        };
        Self {
            log: Arc::new(Mutex::new(log)),
            window,
        }
    }

    /// Records where the program stands.
    pub fn note(&self, note: Note) {
        self.log.lock().events.push(Event::Note(note));
    }

    /// A copy of everything recorded so far.
    pub fn log(&self) -> TraceLog {
        self.log.lock().clone()
    }

    /// Forgets the past: the present content becomes the initial one.
    pub fn restart(&self) {
        let mut log = self.log.lock();
        log.initial = log.current.clone();
        log.events.clear();
    }
}

impl PersistOps for Trace {
    fn window(&self) -> Range<usize> {
        self.window.clone()
    }

    fn store(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut log = self.log.lock();
        log.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        let bytes = bytes.to_vec();
        log.events.push(Event::Store { offset, bytes });
    }

    fn copy_nt(&mut self, offset: usize, bytes: &[u8]) {
        let range = offset..offset + bytes.len();
        let lines = whole_lines(&range);
        let (head, tail) = (lines.start - offset, lines.end - offset);
        self.store(offset, &bytes[..head]);
        self.store(lines.end, &bytes[tail..]);
        if !lines.is_empty() {
            let mut log = self.log.lock();
            log.current[lines.clone()].copy_from_slice(&bytes[head..tail]);
            log.events.push(Event::StoreNt {
                thread: thread::current().id(),
                offset: lines.start,
                bytes: bytes[head..tail].to_vec(),
            });
        }
        self.flush(range.start..lines.start);
        self.flush(lines.end..range.end);
    }

    fn flush(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            let thread = thread::current().id();
            self.log.lock().events.push(Event::Flush { thread, range });
        }
    }

    fn fence(&mut self) -> Result<(), TierError> {
        let thread = thread::current().id();
        self.log.lock().events.push(Event::Fence { thread });
        Ok(())
    }

    fn publish(&mut self, offset: usize, word: u64) {
        let mut log = self.log.lock();
        log.current[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
        log.events.push(Event::Publish { offset, word });
    }

    fn split_off(&mut self, at: usize) -> Self {
        let window = at..self.window.end;
        self.window.end = at;
        Self {
            log: Arc::clone(&self.log),
            window,
        }
    }
}
