//! By recency, least recently used first, each shard for itself (as in HPCache's baseline, §7.2).

use super::{Admission, Candidate, Policy, Reach, Removal, Room, Slot, SlotList};

/// Keeps every segment and evicts the one whose last use is longest ago.
#[derive(Default)]
pub(super) struct Lru {
    by_recency: SlotList,
}

impl Policy for Lru {
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
        self.by_recency.iter_back().find(|slot| idle(*slot))
    }

    fn remove(&mut self, slot: Slot, _removal: Removal) {
        self.by_recency.remove(slot);
    }
}
