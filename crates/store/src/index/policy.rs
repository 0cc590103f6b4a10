//! Which pages of leaf blocks stay in memory: a policy decides, the store of the blocks acts.
//!
//! A policy sees slots, and what a byte of each page is worth. It never sees the bytes.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use hotshelf_cache::policy::{Slot, SlotList};

/// Decides which page leaves.
pub trait BlockPolicy: Send {
    /// A page that was read is now in this slot. `worth` is how likely a look-up of a random row reads it, per byte.
    fn insert(&mut self, slot: Slot, worth: f64);

    /// The page in this slot was used.
    fn hit(&mut self, slot: Slot);

    /// The page that should leave next, if there is one; perhaps the one that came last. It stays until
    /// [`Self::remove`].
    fn victim(&mut self) -> Option<Slot>;

    /// The page in this slot leaves.
    fn remove(&mut self, slot: Slot);
}

/// The policies one can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BlockPolicyKind {
    /// The pages that a look-up of a random row most likely reads, per byte; among equals those that came first.
    Static,
    /// The page whose last use is longest ago leaves.
    Lru,
    /// SIEVE: pages leave in the order in which they came, but those used since the hand passed them stay once more.
    #[default]
    Sieve,
}

impl BlockPolicyKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Static, Self::Lru, Self::Sieve];

    /// A policy that knows no pages yet.
    pub fn build(self) -> Box<dyn BlockPolicy> {
        match self {
            Self::Static => Box::<ByWorth>::default(),
            Self::Lru => Box::<Lru>::default(),
            Self::Sieve => Box::<Sieve>::default(),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Lru => "lru",
            Self::Sieve => "sieve",
        }
    }
}

impl fmt::Display for BlockPolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not a block policy's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a policy for index blocks: static, lru or sieve")]
pub struct UnknownBlockPolicy {
    /// The name.
    pub name: String,
}

impl FromStr for BlockPolicyKind {
    type Err = UnknownBlockPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| UnknownBlockPolicy { name: name.into() })
    }
}

/// A place in the order of worth: the least worth is first, and of equals the one that came last.
type Rank = (u64, u64, u32);

/// Keeps what is worth most, whatever is used.
#[derive(Default)]
struct ByWorth {
    ranks: BTreeSet<Rank>,
    by_slot: Vec<Option<Rank>>,
    arrived: u64,
}

impl BlockPolicy for ByWorth {
    fn insert(&mut self, slot: Slot, worth: f64) {
        self.remove(slot);
        self.arrived += 1;
        // The bits of numbers that are not negative have their order.
        let rank = (worth.max(0.0).to_bits(), u64::MAX - self.arrived, slot.0);
        if self.by_slot.len() <= slot.idx() {
            self.by_slot.resize(slot.idx() + 1, None);
        }
        self.by_slot[slot.idx()] = Some(rank);
        self.ranks.insert(rank);
    }

    fn hit(&mut self, _slot: Slot) {}

    fn victim(&mut self) -> Option<Slot> {
        self.ranks.first().map(|(_, _, slot)| Slot(*slot))
    }

    fn remove(&mut self, slot: Slot) {
        let rank = self.by_slot.get_mut(slot.idx()).and_then(Option::take);
        if let Some(rank) = rank {
            self.ranks.remove(&rank);
        }
    }
}

/// By recency.
#[derive(Default)]
struct Lru {
    by_recency: SlotList,
}

impl BlockPolicy for Lru {
    fn insert(&mut self, slot: Slot, _worth: f64) {
        self.by_recency.push_front(slot);
    }

    fn hit(&mut self, slot: Slot) {
        self.by_recency.move_to_front(slot);
    }

    fn victim(&mut self) -> Option<Slot> {
        self.by_recency.back()
    }

    fn remove(&mut self, slot: Slot) {
        self.by_recency.remove(slot);
    }
}

/// A queue whose hand moves from back to front, passes over what was used, and leaves it in place.
#[derive(Default)]
struct Sieve {
    queue: SlotList,
    used: Vec<bool>,
    hand: Option<Slot>,
}

impl BlockPolicy for Sieve {
    fn insert(&mut self, slot: Slot, _worth: f64) {
        if self.used.len() <= slot.idx() {
            self.used.resize(slot.idx() + 1, false);
        }
        self.used[slot.idx()] = false;
        self.queue.push_front(slot);
    }

    fn hit(&mut self, slot: Slot) {
        if let Some(used) = self.used.get_mut(slot.idx()) {
            *used = true;
        }
    }

    fn victim(&mut self) -> Option<Slot> {
        loop {
            let slot = self.hand.or_else(|| self.queue.back())?;
            if !std::mem::take(&mut self.used[slot.idx()]) {
                self.hand = Some(slot);
                return Some(slot);
            }
            self.hand = self.queue.before(slot);
        }
    }

    fn remove(&mut self, slot: Slot) {
        if self.hand == Some(slot) {
            self.hand = self.queue.before(slot);
        }
        self.queue.remove(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots that leave, in order, when those of `slots` came with their worth and `hits` were used.
    fn leaving(kind: BlockPolicyKind, slots: &[(u32, f64)], hits: &[u32]) -> Vec<u32> {
        let mut policy = kind.build();
        for (slot, worth) in slots {
            policy.insert(Slot(*slot), *worth);
        }
        hits.iter().for_each(|slot| policy.hit(Slot(*slot)));
        let mut gone = Vec::new();
        while let Some(slot) = policy.victim() {
            assert_eq!(
                policy.victim(),
                Some(slot),
                "a victim stays one until it leaves"
            );
            policy.remove(slot);
            gone.push(slot.0);
        }
        gone
    }

    #[test]
    fn each_policy_has_its_own_order() {
        let slots = [(0, 0.5), (1, 0.25), (2, 0.5), (3, 0.125), (4, 0.5)];
        let leaving = |kind| leaving(kind, &slots, &[1, 0]);
        assert_eq!(leaving(BlockPolicyKind::Static), [3, 1, 4, 2, 0]);
        assert_eq!(leaving(BlockPolicyKind::Lru), [2, 3, 4, 1, 0]);
        assert_eq!(leaving(BlockPolicyKind::Sieve), [2, 3, 4, 0, 1]);
    }

    #[test]
    fn the_hand_stays_where_it_is_when_others_come_and_go() {
        let mut policy = BlockPolicyKind::Sieve.build();
        (0..4).for_each(|slot| policy.insert(Slot(slot), 0.0));
        (0..2).for_each(|slot| policy.hit(Slot(slot)));
        assert_eq!(policy.victim(), Some(Slot(2)));
        policy.remove(Slot(2));
        policy.insert(Slot(2), 0.0);
        policy.remove(Slot(0));
        assert_eq!(policy.victim(), Some(Slot(3)));
        policy.remove(Slot(3));
        assert_eq!(policy.victim(), Some(Slot(2)));
        policy.remove(Slot(2));
        assert_eq!(policy.victim(), Some(Slot(1)));
    }

    #[test]
    fn slots_that_are_not_there_change_nothing() {
        for kind in BlockPolicyKind::ALL {
            let mut policy = kind.build();
            policy.remove(Slot(7));
            policy.hit(Slot(7));
            assert_eq!(policy.victim(), None);
            policy.insert(Slot(1), f64::NAN);
            policy.insert(Slot(0), -1.0);
            policy.remove(Slot(1));
            assert_eq!(policy.victim(), Some(Slot(0)), "{kind}");
        }
    }

    #[test]
    fn names_are_read_back_and_others_are_named() {
        for kind in BlockPolicyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "lfu".parse::<BlockPolicyKind>().expect_err("unknown");
        assert!(error.to_string().starts_with("\"lfu\" is not a policy"));
    }
}
