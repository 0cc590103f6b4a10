//! Policies that keep pages in an order of rank: the least leaves first.

use std::collections::BTreeSet;

use hotshelf_cache::policy::Slot;

use super::{BlockPolicy, PageId};

/// A place in the order: what a policy ranks by, then what it breaks ties by, then the slot.
type Rank = (u64, u64, u32);

/// The ranks of slots.
#[derive(Default)]
struct Ranks {
    order: BTreeSet<Rank>,
    by_slot: Vec<Option<Rank>>,
}

impl Ranks {
    fn set(&mut self, slot: Slot, rank: u64, tie: u64) {
        self.remove(slot);
        if self.by_slot.len() <= slot.idx() {
            self.by_slot.resize(slot.idx() + 1, None);
        }
        let rank = (rank, tie, slot.0);
        self.by_slot[slot.idx()] = Some(rank);
        self.order.insert(rank);
    }

    fn get(&self, slot: Slot) -> Option<Rank> {
        *self.by_slot.get(slot.idx())?
    }

    fn least(&self) -> Option<Slot> {
        self.order.first().map(|(_, _, slot)| Slot(*slot))
    }

    fn remove(&mut self, slot: Slot) -> Option<Rank> {
        let rank = self.by_slot.get_mut(slot.idx())?.take()?;
        self.order.remove(&rank);
        Some(rank)
    }
}

/// Keeps what is worth most, whatever is used; of equals what came first.
#[derive(Default)]
pub(super) struct ByWorth {
    ranks: Ranks,
    arrived: u64,
}

/// The bits of numbers that are not negative have their order.
fn rank_of(worth: f64) -> u64 {
    worth.max(0.0).to_bits()
}

impl BlockPolicy for ByWorth {
    fn insert(&mut self, slot: Slot, _page: PageId, worth: f64) {
        self.arrived += 1;
        let tie = u64::MAX - self.arrived;
        self.ranks.set(slot, rank_of(worth), tie);
    }

    fn grow(&mut self, slot: Slot, worth: f64) {
        if let Some((_, tie, _)) = self.ranks.get(slot) {
            self.ranks.set(slot, rank_of(worth), tie);
        }
    }

    fn hit(&mut self, _slot: Slot) {}

    fn victim(&mut self) -> Option<Slot> {
        self.ranks.least()
    }

    fn remove(&mut self, slot: Slot) {
        self.ranks.remove(slot);
    }
}

/// By the number of uses, and of equals by recency. A page that comes has as many uses as the page that left last, and
/// one more: so a page that was used much long ago leaves in the end (LFU with dynamic aging; Arlitt et al., 2000).
#[derive(Default)]
pub(super) struct Lfu {
    ranks: Ranks,
    age: u64,
    used: u64,
}

impl Lfu {
    fn set(&mut self, slot: Slot, uses: u64) {
        self.used += 1;
        self.ranks.set(slot, uses, self.used);
    }
}

impl BlockPolicy for Lfu {
    fn insert(&mut self, slot: Slot, _page: PageId, _worth: f64) {
        self.set(slot, self.age + 1);
    }

    fn hit(&mut self, slot: Slot) {
        if let Some((uses, ..)) = self.ranks.get(slot) {
            self.set(slot, uses + 1);
        }
    }

    fn victim(&mut self) -> Option<Slot> {
        self.ranks.least()
    }

    fn evict(&mut self, slot: Slot) {
        if let Some((uses, ..)) = self.ranks.remove(slot) {
            self.age = self.age.max(uses);
        }
    }

    fn remove(&mut self, slot: Slot) {
        self.ranks.remove(slot);
    }
}
