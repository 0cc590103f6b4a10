//! Random replacement: no memory, no cliff. The sequence is seeded, so runs repeat.

use super::{Admission, Candidate, Policy, Reach, Removal, Room, Slot, mix};

/// Keeps every segment and evicts any.
pub(super) struct Random {
    slots: Vec<Slot>,
    /// Where in `slots` each slot is.
    positions: Vec<usize>,
    draws: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            positions: Vec::new(),
            draws: mix(seed),
        }
    }
}

impl Policy for Random {
    fn admit(&mut self, _incoming: &Candidate, _room: Room) -> Admission {
        Admission::Keep
    }

    fn insert(&mut self, slot: Slot, _segment: &Candidate) {
        if self.positions.len() <= slot.idx() {
            self.positions.resize(slot.idx() + 1, usize::MAX);
        }
        self.positions[slot.idx()] = self.slots.len();
        self.slots.push(slot);
    }

    fn hit(&mut self, _slot: Slot) {}

    fn victim(&mut self, _reach: Reach, idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        self.draws = self.draws.wrapping_add(1);
        let start = mix(self.draws) as usize % self.slots.len().max(1);
        let (before, after) = self.slots.split_at(start.min(self.slots.len()));
        after.iter().chain(before).copied().find(|slot| idle(*slot))
    }

    fn remove(&mut self, slot: Slot, _removal: Removal) {
        let position = self.positions[slot.idx()];
        self.slots.swap_remove(position);
        if let Some(moved) = self.slots.get(position) {
            self.positions[moved.idx()] = position;
        }
    }
}
