//! By recency: least recently used (partitioned as in the HPCache paper's baseline, §7.2: each shard has its own list)
//! and most recently used, the textbook answer to cyclic scans larger than memory (Chou and DeWitt, VLDB 1985).

use super::{Admission, Candidate, Policy, Reach, Removal, Room, Slot, SlotList};

/// Which segment goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    /// The one whose last use is longest ago.
    Oldest,
    /// The one that was used last.
    Latest,
}

/// Keeps every segment and evicts by the time of its last use.
pub(super) struct Recency {
    by_recency: SlotList,
    first: First,
}

impl Recency {
    pub(super) fn lru() -> Self {
        Self::evicting(First::Oldest)
    }

    pub(super) fn mru() -> Self {
        Self::evicting(First::Latest)
    }

    fn evicting(first: First) -> Self {
        Self {
            by_recency: SlotList::default(),
            first,
        }
    }
}

impl Policy for Recency {
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
        match self.first {
            First::Oldest => self.by_recency.iter_back().find(|slot| idle(*slot)),
            First::Latest => self.by_recency.iter().find(|slot| idle(*slot)),
        }
    }

    fn remove(&mut self, slot: Slot, _removal: Removal) {
        self.by_recency.remove(slot);
    }
}
