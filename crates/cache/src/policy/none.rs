//! No cache: the lower bound of every comparison.

use super::{Admission, Candidate, Policy, Reach, Removal, Room, Slot};

/// Forgets every data segment once it is handed out.
pub(super) struct KeepNone;

impl Policy for KeepNone {
    fn admit(&mut self, _incoming: &Candidate, _room: Room) -> Admission {
        Admission::Forget
    }

    fn insert(&mut self, _slot: Slot, _segment: &Candidate) {}

    fn hit(&mut self, _slot: Slot) {}

    fn victim(&mut self, _reach: Reach, _idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        None
    }

    fn remove(&mut self, _slot: Slot, _removal: Removal) {}
}
