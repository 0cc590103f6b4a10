//! CLOCK, or second chance: LRU approximated by one bit per segment.

use super::{Admission, Candidate, Policy, Reach, Removal, Room, Slot, SlotList};

/// A ring of segments; the hand is the back of the list and moves what it spares to the front.
#[derive(Default)]
pub(super) struct Clock {
    ring: SlotList,
    /// By slot: used since the hand last passed.
    referenced: Vec<bool>,
}

impl Policy for Clock {
    fn admit(&mut self, _incoming: &Candidate, _room: Room) -> Admission {
        Admission::Keep
    }

    fn insert(&mut self, slot: Slot, _segment: &Candidate) {
        if self.referenced.len() <= slot.idx() {
            self.referenced.resize(slot.idx() + 1, false);
        }
        self.referenced[slot.idx()] = false;
        self.ring.push_front(slot);
    }

    fn hit(&mut self, slot: Slot) {
        self.referenced[slot.idx()] = true;
    }

    fn victim(&mut self, _reach: Reach, idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        for _ in 0..2 * self.ring.len() {
            let slot = self.ring.back()?;
            let referenced = std::mem::take(&mut self.referenced[slot.idx()]);
            if !referenced && idle(slot) {
                return Some(slot);
            }
            self.ring.move_to_front(slot);
        }
        None
    }

    fn remove(&mut self, slot: Slot, _removal: Removal) {
        self.ring.remove(slot);
    }
}
