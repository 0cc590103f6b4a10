//! Which segments stay. One file per policy; a policy decides, the shard that owns it acts.
//!
//! Each shard of the cache has a policy instance of its own and calls it under the shard's lock. A policy sees
//! data segments only: metadata is kept by the cache itself under every policy.
//!
//! A policy of one's own implements [`Policy`] and is put in force with
//! [`CacheManager::set_own_policy`](crate::CacheManager::set_own_policy).

mod all;
mod ghost;
mod hpcache;
mod list;
mod lru;
mod none;
mod s3fifo;
#[cfg(test)]
mod traces;

use crate::key::{ColumnId, SegmentKey};
use crate::placement::PublishedPlacement;
pub use ghost::Ghosts;
pub use list::SlotList;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Where a shard keeps a resident segment. Small and dense, so that a policy can index arrays by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(pub u32);

impl Slot {
    /// Its number, as an index.
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}

/// A data segment as a policy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub key: SegmentKey,
    /// Its column.
    pub column: ColumnId,
    /// Its row group.
    pub row_group_idx: u32,
    /// Its charge.
    pub bytes: u64,
}

/// How full the whole cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes kept now, all shards together.
    pub cached_bytes: u64,
    /// Bytes that may be kept: the budget without operators and transit.
    pub capacity_bytes: u64,
    /// Whether keeping the segment costs a copy of it, because it lies where loads can read it.
    pub is_copied: bool,
}

/// What to do with a segment that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Keep it.
    Keep,
    /// Hand it out and forget it.
    Forget,
}

/// How far an eviction may go. Tried in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Only segments that the policy would let go for any other segment.
    Free,
    /// Also segments that the policy wants to hold (soft pins).
    Pinned,
    /// Also metadata.
    Metadata,
}

/// Why a segment leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// It was the victim.
    Evicted,
    /// Its file or the whole cache was cleared.
    Dropped,
}

/// Decides which data segments of one shard stay.
pub trait Policy: Send {
    /// Whether to keep a segment that has just arrived.
    fn admit(&mut self, incoming: &Candidate, room: Room) -> Admission;

    /// The segment now occupies `slot`.
    fn insert(&mut self, slot: Slot, segment: &Candidate);

    /// A request was answered from `slot`.
    fn hit(&mut self, slot: Slot);

    /// Chooses a segment to evict among those for which `idle` holds. The shard then calls
    /// [`Policy::remove`].
    fn victim(&mut self, reach: Reach, idle: &dyn Fn(Slot) -> bool) -> Option<Slot>;

    /// The segment in `slot` leaves.
    fn remove(&mut self, slot: Slot, removal: Removal);
}

/// The policies one can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PolicyKind {
    /// Keeps no data.
    None,
    /// Keeps everything until full, then keeps nothing more.
    All,
    /// Evicts the least recently used, in each shard for itself.
    Lru,
    /// S3-FIFO: three queues, the first small.
    S3Fifo,
    /// HPCache with stable soft pins: the product's own.
    HpCache,
}

/// What the policies of the shards need to know about the cache.
#[derive(Debug, Clone, Default)]
pub struct PolicyContext {
    /// The proportions to carry out.
    pub placement: Arc<PublishedPlacement>,
    /// Into how many shards the cache is divided.
    pub partitions: usize,
}

impl PolicyKind {
    /// All policies.
    pub const ALL: &'static [Self] = &[
        Self::None,
        Self::All,
        Self::Lru,
        Self::S3Fifo,
        Self::HpCache,
    ];

    /// The name in SQL and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::All => "all",
            Self::Lru => "lru",
            Self::S3Fifo => "s3fifo",
            Self::HpCache => "hpcache",
        }
    }

    /// Whether the policy carries out the tuner's placements.
    pub fn is_tuned(self) -> bool {
        self == Self::HpCache
    }

    pub(crate) fn build(self, context: &PolicyContext) -> Box<dyn Policy> {
        match self {
            Self::None => Box::new(none::KeepNone),
            Self::All => Box::new(all::KeepAll::default()),
            Self::Lru => Box::<lru::Lru>::default(),
            Self::S3Fifo => Box::new(s3fifo::S3Fifo::default()),
            Self::HpCache => Box::new(hpcache::HpCache::new(Arc::clone(&context.placement))),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A policy name that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no cache policy '{name}': choose none, all, lru, s3fifo or hpcache")]
pub struct UnknownPolicy {
    /// What was written.
    pub name: String,
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let wanted: String = name
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .map(|c| c.to_ascii_lowercase())
            .collect();
        let found = Self::ALL.iter().find(|kind| kind.name() == wanted);
        found.copied().ok_or_else(|| UnknownPolicy {
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_own_name_in_any_case() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
            assert_eq!(kind.name().to_uppercase().parse(), Ok(*kind));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_all_names() {
        let error = "lfu".parse::<PolicyKind>().unwrap_err().to_string();
        assert!(error.starts_with("there is no cache policy 'lfu'"));
        for kind in PolicyKind::ALL {
            assert!(error.contains(kind.name()), "{error}");
        }
        assert!("".parse::<PolicyKind>().is_err());
        assert_eq!("S3-FIFO".parse(), Ok(PolicyKind::S3Fifo));
    }
}
