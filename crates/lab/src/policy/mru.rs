//! By recency, most recently used first: the textbook answer to cyclic scans larger than memory (Chou and DeWitt,
//! VLDB 1985).

use super::{Admission, Candidate, Policy, Reach, Removal, Room, Slot, SlotList};

/// Keeps every segment and evicts the one that was used last.
#[derive(Default)]
pub(super) struct Mru {
    by_recency: SlotList,
}

impl Policy for Mru {
    fn admit(&mut self, _incoming: &Candidate, _room: Room) -> Admission {
        Admission::Keep
    }

    fn insert(&mut self, slot: Slot, _segment: &Candidate) {
        self.by_recency.push_front(slot);
    }

    fn hit(&mut self, slot: Slot) {
        self.by_recency.move_to_front(slot);
    }

    fn victim(&mut self, _reach: Reach, idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        self.by_recency.iter().find(|slot| idle(*slot))
    }

    fn remove(&mut self, slot: Slot, _removal: Removal) {
        self.by_recency.remove(slot);
    }
}
