//! Cache policies: the product's own, and those that it is compared with.

mod clock;
mod hpcache_paper;
mod lfu;
mod mru;
mod random;
mod sieve;
#[cfg(test)]
mod traces;
mod two_queue;
mod wtinylfu;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hotshelf_cache::policy::{
    Admission, Candidate, Ghosts, Policy, PolicyContext, Reach, Removal, Room, Slot, SlotList,
};
use hotshelf_cache::tune::Method;
use hotshelf_cache::{CacheManager, ColumnId, PolicyKind, PublishedPlacement, SegmentKey};

use crate::solve::PAPER;

/// The policies that experiments compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CachePolicy {
    /// Keeps no data.
    None,
    /// Keeps everything until full, then keeps nothing more.
    All,
    /// Evicts the least recently used, in each shard for itself.
    Lru,
    /// Evicts the most recently used.
    Mru,
    /// Evicts any.
    Random,
    /// Second chance.
    Clock,
    /// 2Q: must come back to count as hot.
    TwoQueue,
    /// Evicts the least frequently used.
    Lfu,
    /// S3-FIFO: three queues, the first small.
    S3Fifo,
    /// SIEVE: a queue whose hand spares what was used.
    Sieve,
    /// W-TinyLFU: newcomers must be more popular than what they replace.
    WTinyLfu,
    /// HPCache as the paper has it: random soft pins.
    HpCachePaper,
    /// HPCache with stable soft pins: the product's own.
    HpCache,
}

/// Makes a policy's instance for the shard of a number.
type Make = fn(&PolicyContext, usize) -> Box<dyn Policy>;

impl CachePolicy {
    /// All policies.
    pub const ALL: &'static [Self] = &[
        Self::None,
        Self::All,
        Self::Lru,
        Self::Mru,
        Self::Random,
        Self::Clock,
        Self::TwoQueue,
        Self::Lfu,
        Self::S3Fifo,
        Self::Sieve,
        Self::WTinyLfu,
        Self::HpCachePaper,
        Self::HpCache,
    ];

    /// The name on the command line and in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::All => "all",
            Self::Lru => "lru",
            Self::Mru => "mru",
            Self::Random => "random",
            Self::Clock => "clock",
            Self::TwoQueue => "2q",
            Self::Lfu => "lfu",
            Self::S3Fifo => "s3fifo",
            Self::Sieve => "sieve",
            Self::WTinyLfu => "wtinylfu",
            Self::HpCachePaper => "hpcache-paper",
            Self::HpCache => "hpcache",
        }
    }

    /// Whether the policy carries out the tuner's placements.
    pub fn is_tuned(self) -> bool {
        self.resembles() == PolicyKind::HpCache
    }

    /// The product's policy that this one is, or is like in what it asks of the tuner.
    pub fn resembles(self) -> PolicyKind {
        match self {
            Self::None => PolicyKind::None,
            Self::All => PolicyKind::All,
            Self::S3Fifo => PolicyKind::S3Fifo,
            Self::HpCachePaper | Self::HpCache => PolicyKind::HpCache,
            _ => PolicyKind::Lru,
        }
    }

    /// The method of the tuner that the policy is made for; `None`: the product's own.
    pub fn method(self) -> Option<Method> {
        (self == Self::HpCachePaper).then_some(PAPER)
    }

    /// Makes a cache follow this policy.
    pub fn put_in_force(self, cache: &CacheManager) {
        match self.make() {
            None => cache.set_policy(self.resembles()),
            Some(make) => cache.set_own_policy(self.resembles(), make),
        }
    }

    /// How instances of a policy are made that the product does not have.
    fn make(self) -> Option<Make> {
        Some(match self {
            Self::None | Self::All | Self::Lru | Self::S3Fifo | Self::HpCache => return None,
            Self::Mru => |_, _| Box::<mru::Mru>::default(),
            Self::Random => |_, shard_idx| Box::new(random::Random::new(shard_idx as u64)),
            Self::Clock => |_, _| Box::<clock::Clock>::default(),
            Self::TwoQueue => |_, _| Box::<two_queue::TwoQueue>::default(),
            Self::Lfu => |_, _| Box::<lfu::Lfu>::default(),
            Self::Sieve => |_, _| Box::<sieve::Sieve>::default(),
            Self::WTinyLfu => |_, _| Box::new(wtinylfu::WTinyLfu::new()),
            Self::HpCachePaper => |context, shard_idx| {
                Box::new(hpcache_paper::HpCachePaper::new(
                    Arc::clone(&context.placement),
                    context.partitions,
                    shard_idx as u64,
                ))
            },
        })
    }
}

impl fmt::Display for CachePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CachePolicy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|policy| policy.name() == name);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|policy| policy.name()).collect();
            format!("there is no policy '{name}', but {}", names.join(", "))
        })
    }
}

/// Spreads a word over all 64 bits (the finaliser of SplitMix64).
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
