//! What is pending and what is certain after each event of a trace, for each kind of memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread::ThreadId;

use crate::persist::{Event, LINE_BYTES};

/// What may happen to stores before they are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Model {
    /// Persistent memory behind volatile caches (ADR): each line may be evicted at any time, in the order of its
    /// stores; a flush followed by a fence of the same thread makes it certain.
    FlushDomain,
    /// Persistent memory with saved caches (eADR): stores are durable in the order they become visible, stores that
    /// bypass the cache at any time until a fence. Flushes mean nothing.
    CpuCache,
    /// A file mapped through the page cache: each sector of a page may be written back at any time; msync,
    /// recorded as flush and fence, makes whole pages certain.
    PageCache,
}

const SECTOR_BYTES: usize = 512;
const PAGE_BYTES: usize = 4096;
/// The largest store that no power cut divides.
const PIECE_BYTES: usize = 8;

/// An indivisible store.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// Which event it belongs to: pieces of one event have no order among themselves.
    event_idx: usize,
    offset: usize,
    bytes: Vec<u8>,
    flushed_by: Option<ThreadId>,
}

/// Media content that is certain, and what may have joined it.
pub(super) struct MediaState {
    model: Model,
    certain: Vec<u8>,
    units: BTreeMap<(UnitKind, usize), Vec<Piece>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum UnitKind {
    Cached,
    PastCache,
}

impl MediaState {
    pub(super) fn new(model: Model, initial: &[u8]) -> Self {
        Self {
            model,
            certain: initial.to_vec(),
            units: BTreeMap::new(),
        }
    }

    pub(super) fn certain(&self) -> &[u8] {
        &self.certain
    }

    pub(super) fn units(&self) -> impl Iterator<Item = &[Piece]> {
        self.units.values().map(Vec::as_slice)
    }

    pub(super) fn apply(&mut self, event_idx: usize, event: &Event) {
        match event {
            Event::Store { offset, bytes } => self.store(event_idx, *offset, bytes, None),
            Event::Publish { offset, word } => {
                self.store(event_idx, *offset, &word.to_le_bytes(), None);
            }
            Event::StoreNt {
                thread,
                offset,
                bytes,
            } => {
                self.store(event_idx, *offset, bytes, Some(*thread));
                if self.model == Model::PageCache {
                    self.flush(&(*offset..*offset + bytes.len()), *thread);
                }
            }
            Event::Flush { thread, range } => self.flush(range, *thread),
            Event::Fence { thread } => self.fence(*thread),
            Event::Note(_) => {}
        }
    }

    fn store(&mut self, event_idx: usize, offset: usize, bytes: &[u8], nt: Option<ThreadId>) {
        let mut at = offset;
        while at < offset + bytes.len() {
            let end = (at / PIECE_BYTES + 1) * PIECE_BYTES;
            let end = end.min(offset + bytes.len());
            let piece = Piece {
                event_idx,
                offset: at,
                bytes: bytes[at - offset..end - offset].to_vec(),
                flushed_by: nt,
            };
            self.units
                .entry(self.unit_of(at, nt.is_some()))
                .or_default()
                .push(piece);
            at = end;
        }
    }

    fn unit_of(&self, offset: usize, past_cache: bool) -> (UnitKind, usize) {
        match (self.model, past_cache) {
            (Model::FlushDomain, _) => (UnitKind::Cached, offset / LINE_BYTES),
            (Model::PageCache, _) => (UnitKind::Cached, offset / SECTOR_BYTES),
            (Model::CpuCache, true) => (UnitKind::PastCache, offset / LINE_BYTES),
            (Model::CpuCache, false) => (UnitKind::Cached, 0),
        }
    }

    fn flush(&mut self, range: &Range<usize>, thread: ThreadId) {
        let (grain, unit_bytes) = match self.model {
            Model::FlushDomain => (LINE_BYTES, LINE_BYTES),
            Model::PageCache => (PAGE_BYTES, SECTOR_BYTES),
            Model::CpuCache => return,
        };
        let start = range.start / grain * grain;
        let end = range.end.next_multiple_of(grain);
        let units = start / unit_bytes..end / unit_bytes;
        for unit in units {
            let pieces = self.units.get_mut(&(UnitKind::Cached, unit));
            for piece in pieces.into_iter().flatten() {
                piece.flushed_by = piece.flushed_by.or(Some(thread));
            }
        }
    }

    fn fence(&mut self, thread: ThreadId) {
        for ((kind, _), pieces) in &mut self.units {
            let certain_count = match (self.model, kind) {
                (Model::CpuCache, UnitKind::Cached) => pieces.len(),
                _ => {
                    let last = pieces
                        .iter()
                        .rposition(|piece| piece.flushed_by == Some(thread));
                    last.map_or(0, |last| last + 1)
                }
            };
            for piece in pieces.drain(..certain_count) {
                piece.write_to(&mut self.certain);
            }
        }
        self.units.retain(|_, pieces| !pieces.is_empty());
    }
}

impl Piece {
    pub(super) fn write_to(&self, image: &mut [u8]) {
        image[self.offset..self.offset + self.bytes.len()].copy_from_slice(&self.bytes);
    }
}

/// Which pieces of one unit have reached the media: a first part of the list, and some of the event that follows it,
/// because the stores inside one copy may run in any order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Choice {
    first_count: usize,
    also: Range<usize>,
}

impl Choice {
    pub(super) fn apply(&self, pieces: &[Piece], image: &mut [u8]) {
        let also = &pieces[self.also.clone()];
        pieces[..self.first_count]
            .iter()
            .chain(also)
            .for_each(|piece| piece.write_to(image));
    }
}

/// All choices of a unit, from nothing to everything.
pub(super) fn choices(pieces: &[Piece]) -> Vec<Choice> {
    let mut choices: Vec<Choice> = Vec::new();
    let mut group_start = 0;
    while group_start < pieces.len() {
        let event_idx = pieces[group_start].event_idx;
        let in_group = pieces[group_start..]
            .iter()
            .take_while(|piece| piece.event_idx == event_idx);
        let group = group_start..group_start + in_group.count();
        for at in group.clone() {
            choices.push(Choice {
                first_count: at,
                also: at..at,
            });
        }
        // From the back, and one piece alone.
        for at in group.start + 1..group.end {
            choices.push(Choice {
                first_count: group.start,
                also: at..group.end,
            });
            if at + 1 < group.end {
                choices.push(Choice {
                    first_count: group.start,
                    also: at..at + 1,
                });
            }
        }
        group_start = group.end;
    }
    choices.push(Choice {
        first_count: pieces.len(),
        also: pieces.len()..pieces.len(),
    });
    choices
}
