//! S3-FIFO (Yang et al., SOSP 2023): three FIFO queues, the first small, so that one-time segments leave fast.

use super::ghost::Ghosts;
use super::{Admission, Candidate, Policy, Reach, Removal, Room, Slot, SlotList};
use crate::key::SegmentKey;

/// Uses beyond this are not counted.
const USE_COUNT_MAX: u8 = 3;
/// `small` gives segments up where it has at least one byte in this many.
const SMALL_PARTS: u64 = 10;

#[derive(Clone, Copy)]
struct Segment {
    key: SegmentKey,
    bytes: u64,
    use_count: u8,
}

/// `small` holds one part of [`SMALL_PARTS`], `main` the rest; keys evicted from `small` are remembered.
#[derive(Default)]
pub(super) struct S3Fifo {
    small: SlotList,
    small_bytes: u64,
    main: SlotList,
    main_bytes: u64,
    ghosts: Ghosts,
    segments: Vec<Option<Segment>>,
}

impl S3Fifo {
    fn segment(&mut self, slot: Slot) -> Option<&mut Segment> {
        self.segments.get_mut(slot.idx())?.as_mut()
    }

    fn use_count(&self, slot: Slot) -> u8 {
        let segment = self.segments.get(slot.idx()).copied().flatten();
        segment.map_or(0, |segment| segment.use_count)
    }

    fn promote(&mut self, slot: Slot) {
        let Some(segment) = self.segment(slot) else {
            return;
        };
        segment.use_count = 0;
        let bytes = segment.bytes;
        self.small.remove(slot);
        self.small_bytes -= bytes;
        self.main.push_front(slot);
        self.main_bytes += bytes;
    }

    fn victim_of_small(&mut self, idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        for slot in self.small.iter_back().collect::<Vec<_>>() {
            if self.use_count(slot) > 1 {
                self.promote(slot);
            } else if idle(slot) {
                return Some(slot);
            }
        }
        None
    }

    fn victim_of_main(&mut self, idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        for _ in 0..(usize::from(USE_COUNT_MAX) + 1) * self.main.len() {
            let slot = self.main.back()?;
            let use_count = self.use_count(slot);
            if use_count == 0 && idle(slot) {
                return Some(slot);
            }
            if let Some(segment) = self.segment(slot) {
                segment.use_count = use_count.saturating_sub(1);
            }
            self.main.move_to_front(slot);
        }
        None
    }
}

impl Policy for S3Fifo {
    fn admit(&mut self, _incoming: &Candidate, _room: Room) -> Admission {
        Admission::Keep
    }

    fn insert(&mut self, slot: Slot, segment: &Candidate) {
        if self.segments.len() <= slot.idx() {
            self.segments.resize(slot.idx() + 1, None);
        }
        self.segments[slot.idx()] = Some(Segment {
            key: segment.key,
            bytes: segment.bytes,
            use_count: 0,
        });
        if self.ghosts.take(segment.key) {
            self.main.push_front(slot);
            self.main_bytes += segment.bytes;
        } else {
            self.small.push_front(slot);
            self.small_bytes += segment.bytes;
        }
    }

    fn hit(&mut self, slot: Slot) {
        if let Some(segment) = self.segment(slot) {
            segment.use_count = (segment.use_count + 1).min(USE_COUNT_MAX);
        }
    }

    fn victim(&mut self, _reach: Reach, idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        let is_small_full = SMALL_PARTS * self.small_bytes >= self.small_bytes + self.main_bytes;
        if is_small_full && let Some(slot) = self.victim_of_small(idle) {
            return Some(slot);
        }
        let victim = self.victim_of_main(idle);
        victim.or_else(|| self.victim_of_small(idle))
    }

    fn remove(&mut self, slot: Slot, removal: Removal) {
        let Some(segment) = self.segments.get_mut(slot.idx()).and_then(Option::take) else {
            return;
        };
        if self.main.remove(slot) {
            self.main_bytes -= segment.bytes;
        } else if self.small.remove(slot) {
            self.small_bytes -= segment.bytes;
            if removal == Removal::Evicted {
                let resident_count = self.small.len() + self.main.len() + 1;
                self.ghosts.push(segment.key, resident_count);
            }
        }
    }
}
