//! All in memory: the upper bound of every comparison, given a budget that holds everything.

use super::{Admission, Candidate, Policy, Reach, Removal, Room, Slot, SlotList};

/// Keeps what comes until the cache is full and evicts nothing for the sake of another segment. Only memory
/// pressure (operators, a lowered budget) takes segments away, the latest first.
#[derive(Default)]
pub(super) struct KeepAll {
    by_age: SlotList,
}

impl Policy for KeepAll {
    fn admit(&mut self, incoming: &Candidate, room: Room) -> Admission {
        if room.cached_bytes.saturating_add(incoming.bytes) <= room.capacity_bytes {
            Admission::Keep
        } else {
            Admission::Forget
        }
    }

    fn insert(&mut self, slot: Slot, _segment: &Candidate) {
        self.by_age.push_front(slot);
    }

    fn hit(&mut self, _slot: Slot) {}

    fn victim(&mut self, reach: Reach, idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        match reach {
            Reach::Free => None,
            Reach::Pinned | Reach::Metadata => self.by_age.iter().find(|slot| idle(*slot)),
        }
    }

    fn remove(&mut self, slot: Slot, _removal: Removal) {
        self.by_age.remove(slot);
    }
}
