//! Which pages of leaf blocks stay in memory: a policy decides, the store of the blocks acts.
//!
//! A policy sees slots, and what a byte of each page is worth. It never sees the bytes.

mod queues;
mod ranked;
mod split;

use std::fmt;
use std::str::FromStr;

use hotshelf_cache::policy::Slot;

/// A page of an Elf's leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageId {
    /// The Elf: [`super::file::Stretch::key`].
    pub stretch: u64,
    /// Its number in the Elf.
    pub page: u32,
}

/// Decides which page leaves.
pub trait BlockPolicy: Send {
    /// A page that was read is now in this slot. `worth` is how likely a look-up of a random row reads it, per byte.
    fn insert(&mut self, slot: Slot, page: PageId, worth: f64);

    /// The page in this slot has more blocks than before.
    fn grow(&mut self, _slot: Slot, _worth: f64) {}

    /// The page in this slot was used.
    fn hit(&mut self, slot: Slot);

    /// The page that should leave next, if there is one; perhaps the one that came last. It stays until
    /// [`Self::evict`] or [`Self::remove`].
    fn victim(&mut self) -> Option<Slot>;

    /// The victim in this slot leaves.
    fn evict(&mut self, slot: Slot) {
        self.remove(slot);
    }

    /// The page in this slot leaves for another reason: its file goes.
    fn remove(&mut self, slot: Slot);
}

/// The policies one can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BlockPolicyKind {
    /// The pages that a look-up of a random row most likely reads, per byte, read when the index is first asked; among
    /// equals those that came first.
    Static,
    /// The pages of rows to which fewer columns lead than said, with as many levels of the head; read when the index is
    /// first asked. The other levels of the head are read for each question.
    Levels(u8),
    /// All pages, read when the index is first asked: a full copy.
    Hybrid,
    /// The pages that came first.
    Naive,
    /// The page whose last use is longest ago leaves.
    Lru,
    /// The page with the fewest uses leaves; uses of long ago count less.
    Lfu,
    /// The page that a look-up of a random row least likely reads leaves.
    Lla,
    /// 2Q: a page stays if it is missed again soon after it left a short queue.
    TwoQueues,
    /// SIEVE: pages leave in the order in which they came, but those used since the hand passed them stay once more.
    #[default]
    Sieve,
    /// S3-FIFO: as 2Q, but a page also stays if it was used twice in the short queue, and uses give more time later.
    S3Fifo,
    /// Half of the pages as with [`Self::Lla`], the others as with [`Self::Sieve`].
    Split,
}

impl BlockPolicyKind {
    /// All of them but those of a number of levels.
    pub const ALL: [Self; 10] = [
        Self::Static,
        Self::Hybrid,
        Self::Naive,
        Self::Lru,
        Self::Lfu,
        Self::Lla,
        Self::TwoQueues,
        Self::Sieve,
        Self::S3Fifo,
        Self::Split,
    ];

    /// A policy that knows no pages yet.
    pub fn build(self) -> Box<dyn BlockPolicy> {
        match self {
            Self::Static | Self::Lla => Box::<ranked::ByWorth>::default(),
            Self::Naive | Self::Hybrid | Self::Levels(_) => Box::<queues::Naive>::default(),
            Self::Lru => Box::<queues::Lru>::default(),
            Self::Lfu => Box::<ranked::Lfu>::default(),
            Self::TwoQueues => Box::<queues::TwoQueues>::default(),
            Self::Sieve => Box::<queues::Sieve>::default(),
            Self::S3Fifo => Box::<queues::S3Fifo>::default(),
            Self::Split => Box::<split::Split>::default(),
        }
    }

    /// How many levels stay, where that is what was chosen.
    pub fn levels(self) -> Option<usize> {
        match self {
            Self::Levels(levels) => Some(usize::from(levels)),
            _ => None,
        }
    }

    /// Whether the choice is made once, so that it is read before it is asked for.
    pub fn is_static(self) -> bool {
        matches!(self, Self::Static | Self::Levels(_) | Self::Hybrid)
    }

    /// Its name, without the number of levels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Levels(_) => "levels",
            Self::Hybrid => "hybrid",
            Self::Naive => "naive",
            Self::Lru => "lru",
            Self::Lfu => "lfu",
            Self::Lla => "lla",
            Self::TwoQueues => "2q",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3fifo",
            Self::Split => "split",
        }
    }
}

impl fmt::Display for BlockPolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.levels()
            .map_or(Ok(()), |levels| write!(f, ":{levels}"))
    }
}

/// A name that is not a block policy's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is not a policy for index blocks: static, levels:N, hybrid, naive, lru, lfu, lla, 2q, sieve, s3fifo or \
     split"
)]
pub struct UnknownBlockPolicy {
    /// The name.
    pub name: String,
}

impl FromStr for BlockPolicyKind {
    type Err = UnknownBlockPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let levels = name
            .strip_prefix("levels:")
            .and_then(|levels| levels.parse().ok());
        let kind = match levels {
            Some(levels) => (levels > 0).then_some(Self::Levels(levels)),
            None => Self::ALL.into_iter().find(|kind| kind.name() == name),
        };
        kind.ok_or_else(|| UnknownBlockPolicy { name: name.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(page: u32) -> PageId {
        PageId { stretch: 1, page }
    }

    /// Slots that leave, in order, when those of `slots` came with their worth and `hits` were used.
    fn leaving(kind: BlockPolicyKind, slots: &[(u32, f64)], hits: &[u32]) -> Vec<u32> {
        let mut policy = kind.build();
        for (slot, worth) in slots {
            policy.insert(Slot(*slot), page(*slot), *worth);
        }
        hits.iter().for_each(|slot| policy.hit(Slot(*slot)));
        let mut gone = Vec::new();
        while let Some(slot) = policy.victim() {
            assert_eq!(
                policy.victim(),
                Some(slot),
                "a victim stays one until it leaves"
            );
            policy.evict(slot);
            gone.push(slot.0);
        }
        gone
    }

    #[test]
    fn each_policy_has_its_own_order() {
        let slots = [(0, 0.5), (1, 0.25), (2, 0.5), (3, 0.125), (4, 0.5)];
        let leaving = |kind| leaving(kind, &slots, &[1, 0, 1]);
        assert_eq!(leaving(BlockPolicyKind::Static), [3, 1, 4, 2, 0]);
        assert_eq!(leaving(BlockPolicyKind::Lla), [3, 1, 4, 2, 0]);
        assert_eq!(leaving(BlockPolicyKind::Naive), [4, 3, 2, 1, 0]);
        assert_eq!(leaving(BlockPolicyKind::Hybrid), [4, 3, 2, 1, 0]);
        assert_eq!(leaving(BlockPolicyKind::Levels(2)), [4, 3, 2, 1, 0]);
        // 0 and 4 stay for their worth, 4 until there are only three; of the others 1 was used.
        assert_eq!(leaving(BlockPolicyKind::Split), [2, 3, 1, 4, 0]);
        assert_eq!(leaving(BlockPolicyKind::Lru), [2, 3, 4, 0, 1]);
        assert_eq!(leaving(BlockPolicyKind::Lfu), [2, 3, 4, 0, 1]);
        assert_eq!(leaving(BlockPolicyKind::TwoQueues), [0, 1, 2, 3, 4]);
        assert_eq!(leaving(BlockPolicyKind::Sieve), [2, 3, 4, 0, 1]);
        assert_eq!(leaving(BlockPolicyKind::S3Fifo), [0, 2, 3, 4, 1]);
    }

    #[test]
    fn a_page_that_is_missed_again_outlives_what_comes_once() {
        for kind in [BlockPolicyKind::TwoQueues, BlockPolicyKind::S3Fifo] {
            let mut policy = kind.build();
            (0..4).for_each(|slot| policy.insert(Slot(slot), page(slot), 0.0));
            assert_eq!(policy.victim(), Some(Slot(0)));
            policy.evict(Slot(0));
            policy.insert(Slot(0), page(0), 0.0);
            for passing in 10..20 {
                let slot = policy.victim().unwrap();
                assert_ne!(slot, Slot(0), "{kind}");
                policy.evict(slot);
                policy.insert(slot, page(passing), 0.0);
            }
        }
    }

    #[test]
    fn uses_of_long_ago_are_outlived() {
        let mut policy = BlockPolicyKind::Lfu.build();
        policy.insert(Slot(0), page(0), 0.0);
        (0..3).for_each(|_| policy.hit(Slot(0)));
        let mut passed = 0;
        for id in 1..20 {
            policy.insert(Slot(1), page(id), 0.0);
            let slot = policy.victim().unwrap();
            policy.evict(slot);
            if slot == Slot(0) {
                break;
            }
            passed += 1;
        }
        assert_eq!(passed, 3, "it had four uses, and the first newcomer one");
    }

    #[test]
    fn a_page_that_grows_keeps_its_age() {
        let mut policy = BlockPolicyKind::Static.build();
        (0..3).for_each(|slot| policy.insert(Slot(slot), page(slot), 0.5));
        policy.grow(Slot(0), 0.75);
        policy.grow(Slot(0), 0.5);
        policy.grow(Slot(1), 0.25);
        policy.grow(Slot(9), 0.0);
        assert_eq!(policy.victim(), Some(Slot(1)));
        policy.evict(Slot(1));
        assert_eq!(policy.victim(), Some(Slot(2)));
    }

    #[test]
    fn the_hand_stays_where_it_is_when_others_come_and_go() {
        let mut policy = BlockPolicyKind::Sieve.build();
        (0..4).for_each(|slot| policy.insert(Slot(slot), page(slot), 0.0));
        (0..2).for_each(|slot| policy.hit(Slot(slot)));
        assert_eq!(policy.victim(), Some(Slot(2)));
        policy.evict(Slot(2));
        policy.insert(Slot(2), page(2), 0.0);
        policy.remove(Slot(0));
        assert_eq!(policy.victim(), Some(Slot(3)));
        policy.evict(Slot(3));
        assert_eq!(policy.victim(), Some(Slot(2)));
        policy.evict(Slot(2));
        assert_eq!(policy.victim(), Some(Slot(1)));
    }

    #[test]
    fn slots_that_are_not_there_change_nothing() {
        for kind in BlockPolicyKind::ALL {
            let mut policy = kind.build();
            policy.remove(Slot(7));
            policy.evict(Slot(7));
            policy.hit(Slot(7));
            assert_eq!(policy.victim(), None);
            policy.insert(Slot(1), page(1), f64::NAN);
            policy.insert(Slot(0), page(0), -1.0);
            policy.remove(Slot(1));
            assert_eq!(policy.victim(), Some(Slot(0)), "{kind}");
        }
    }

    proptest! {
        /// Whatever is done, a victim is a page that is there, and there is one as long as a page is.
        #[test]
        fn a_victim_is_a_page_that_is_there(steps in prop::collection::vec((0u8..4, 0u32..8, 0u32..30), 0..200)) {
            for kind in BlockPolicyKind::ALL {
                let mut policy = kind.build();
                let mut there = std::collections::BTreeSet::new();
                for (what, slot, id) in &steps {
                    match (what, there.contains(slot)) {
                        (0 | 1, false) => {
                            there.insert(*slot);
                            policy.insert(Slot(*slot), page(*id), f64::from(*id));
                        }
                        (0 | 1, true) => policy.hit(Slot(*slot)),
                        (2, _) => if let Some(victim) = policy.victim() {
                            prop_assert!(there.remove(&victim.0), "{kind}");
                            policy.evict(victim);
                        },
                        _ => {
                            there.remove(slot);
                            policy.remove(Slot(*slot));
                        }
                    }
                    let victim = policy.victim();
                    prop_assert_eq!(victim.is_none(), there.is_empty());
                    prop_assert!(victim.is_none_or(|victim| there.contains(&victim.0)), "{kind}");
                }
            }
        }
    }

    #[test]
    fn names_are_read_back_and_others_are_named() {
        for kind in BlockPolicyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let levels = BlockPolicyKind::Levels(3);
        assert_eq!(levels.to_string(), "levels:3");
        assert_eq!("levels:3".parse(), Ok(levels));
        for wrong in [
            "levels",
            "levels:",
            "levels:0",
            "levels:-1",
            "levels:256",
            "levels:a",
        ] {
            assert!(wrong.parse::<BlockPolicyKind>().is_err(), "{wrong}");
        }
        let error = "arc".parse::<BlockPolicyKind>().expect_err("unknown");
        assert!(error.to_string().starts_with("\"arc\" is not a policy"));
    }
}
