//! Least frequently used while resident; among equals the least recently used.

use super::{Admission, Candidate, Policy, Reach, Removal, Room, Slot};
use std::collections::BTreeSet;

/// Keeps every segment and evicts the one with the fewest uses since it was kept.
#[derive(Default)]
pub(super) struct Lfu {
    /// (uses, time of last use, slot), least valuable first.
    order: BTreeSet<(u64, u64, u32)>,
    /// By slot: (uses, time of last use).
    ranks: Vec<(u64, u64)>,
    clock: u64,
}

impl Lfu {
    fn rank(&mut self, slot: Slot, use_count: u64) {
        self.clock += 1;
        self.ranks[slot.idx()] = (use_count, self.clock);
        self.order.insert((use_count, self.clock, slot.0));
    }

    fn unrank(&mut self, slot: Slot) -> u64 {
        let (use_count, at) = self.ranks[slot.idx()];
        self.order.remove(&(use_count, at, slot.0));
        use_count
    }
}

impl Policy for Lfu {
    fn admit(&mut self, _incoming: &Candidate, _room: Room) -> Admission {
        Admission::Keep
    }

    fn insert(&mut self, slot: Slot, _segment: &Candidate) {
        if self.ranks.len() <= slot.idx() {
            self.ranks.resize(slot.idx() + 1, (0, 0));
        }
        self.rank(slot, 1);
    }

    fn hit(&mut self, slot: Slot) {
        let use_count = self.unrank(slot);
        self.rank(slot, use_count + 1);
    }

    fn victim(&mut self, _reach: Reach, idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        let mut slots = self.order.iter().map(|(_, _, slot)| Slot(*slot));
        slots.find(|slot| idle(*slot))
    }

    fn remove(&mut self, slot: Slot, _removal: Removal) {
        self.unrank(slot);
    }
}
