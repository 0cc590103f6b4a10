//! SIEVE (Zhang et al., NSDI 2024): a FIFO queue whose hand passes over what was used and leaves it in place.

use super::{Admission, Candidate, Policy, Reach, Removal, Room, Slot, SlotList};

/// New segments enter in front; the hand moves from back to front and evicts the first unvisited segment.
#[derive(Default)]
pub(super) struct Sieve {
    queue: SlotList,
    visited: Vec<bool>,
    hand: Option<Slot>,
}

impl Policy for Sieve {
    fn admit(&mut self, _incoming: &Candidate, _room: Room) -> Admission {
        Admission::Keep
    }

    fn insert(&mut self, slot: Slot, _segment: &Candidate) {
        if self.visited.len() <= slot.idx() {
            self.visited.resize(slot.idx() + 1, false);
        }
        self.visited[slot.idx()] = false;
        self.queue.push_front(slot);
    }

    fn hit(&mut self, slot: Slot) {
        self.visited[slot.idx()] = true;
    }

    fn victim(&mut self, _reach: Reach, idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        for _ in 0..2 * self.queue.len() {
            let slot = self.hand.or_else(|| self.queue.back())?;
            let visited = std::mem::take(&mut self.visited[slot.idx()]);
            if !visited && idle(slot) {
                self.hand = Some(slot);
                return Some(slot);
            }
            self.hand = self.queue.before(slot);
        }
        None
    }

    fn remove(&mut self, slot: Slot, _removal: Removal) {
        if self.hand == Some(slot) {
            self.hand = self.queue.before(slot);
        }
        self.queue.remove(slot);
    }
}
