//! A doubly linked list of slots, stored in an array: the queue of most policies.

use super::Slot;

const NIL: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
    linked: bool,
}

const UNLINKED: Link = Link {
    before: NIL,
    after: NIL,
    linked: false,
};

/// Slots in an order; a slot is in the list at most once. All operations but iteration take constant time.
#[derive(Debug)]
pub struct SlotList {
    links: Vec<Link>,
    front: u32,
    back: u32,
    len: usize,
}

impl Default for SlotList {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            front: NIL,
            back: NIL,
            len: 0,
        }
    }
}

impl SlotList {
    /// Puts a slot in front. Does nothing if it is in the list.
    pub fn push_front(&mut self, slot: Slot) {
        if self.links.len() <= slot.idx() {
            self.links.resize(slot.idx() + 1, UNLINKED);
        }
        if self.contains(slot) {
            return;
        }
        let after = self.front;
        self.links[slot.idx()] = Link {
            before: NIL,
            after,
            linked: true,
        };
        match self.links.get_mut(after as usize) {
            Some(link) => link.before = slot.0,
            None => self.back = slot.0,
        }
        self.front = slot.0;
        self.len += 1;
    }

    /// Takes a slot out, wherever it is. Returns whether it was in the list.
    pub fn remove(&mut self, slot: Slot) -> bool {
        if !self.contains(slot) {
            return false;
        }
        let Link { before, after, .. } = std::mem::replace(&mut self.links[slot.idx()], UNLINKED);
        match self.links.get_mut(before as usize) {
            Some(link) => link.after = after,
            None => self.front = after,
        }
        match self.links.get_mut(after as usize) {
            Some(link) => link.before = before,
            None => self.back = before,
        }
        self.len -= 1;
        true
    }

    /// Puts a slot of the list in front.
    pub fn move_to_front(&mut self, slot: Slot) {
        if self.remove(slot) {
            self.push_front(slot);
        }
    }

    /// The last slot.
    pub fn back(&self) -> Option<Slot> {
        (self.back != NIL).then_some(Slot(self.back))
    }

    /// The slot next to `slot` towards the front.
    pub fn before(&self, slot: Slot) -> Option<Slot> {
        let link = self.links.get(slot.idx())?;
        (link.before != NIL).then_some(Slot(link.before))
    }

    /// Whether the slot is in the list.
    pub fn contains(&self, slot: Slot) -> bool {
        self.links.get(slot.idx()).is_some_and(|link| link.linked)
    }

    /// From front to back.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        let mut next = self.front;
        std::iter::from_fn(move || {
            let link = self.links.get(next as usize)?;
            Some(Slot(std::mem::replace(&mut next, link.after)))
        })
    }

    /// From back to front.
    pub fn iter_back(&self) -> impl Iterator<Item = Slot> + '_ {
        let mut next = self.back;
        std::iter::from_fn(move || {
            let link = self.links.get(next as usize)?;
            Some(Slot(std::mem::replace(&mut next, link.before)))
        })
    }

    /// Whether no slot is in the list.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many slots are in the list.
    pub fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_list_behaves_like_a_vector(steps in prop::collection::vec((any::<bool>(), 0u32..12), 0..60)) {
            let mut list = SlotList::default();
            let mut model: Vec<u32> = Vec::new();
            for (push, slot) in steps {
                if push {
                    list.push_front(Slot(slot));
                    if !model.contains(&slot) {
                        model.insert(0, slot);
                    }
                } else {
                    prop_assert_eq!(list.remove(Slot(slot)), model.contains(&slot));
                    model.retain(|other| *other != slot);
                }
                prop_assert_eq!(list.iter().map(|slot| slot.0).collect::<Vec<_>>(), model.clone());
                let mut reversed: Vec<u32> = list.iter_back().map(|slot| slot.0).collect();
                reversed.reverse();
                prop_assert_eq!(reversed, model.clone());
                prop_assert_eq!(list.len(), model.len());
                prop_assert_eq!(list.back().map(|slot| slot.0), model.last().copied());
                for pair in model.windows(2) {
                    prop_assert_eq!(list.before(Slot(pair[1])), Some(Slot(pair[0])));
                }
            }
        }
    }
}
