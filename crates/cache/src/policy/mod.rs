//! Which segments stay. One file per policy (per pair, if they differ in one word); a policy decides, the shard that owns it acts.
//!
//! Each shard of the cache has a policy instance of its own and calls it under the shard's lock. A policy sees
//! data segments only: metadata is kept by the cache itself under every policy.

mod all;
mod clock;
mod ghost;
mod hpcache;
mod hpcache_paper;
mod lfu;
mod list;
mod none;
mod random;
mod recency;
mod s3fifo;
mod sieve;
#[cfg(test)]
mod traces;
mod two_queue;
mod wtinylfu;

use crate::key::{ColumnId, SegmentKey};
use crate::placement::PublishedPlacement;
pub(crate) use list::SlotList;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Where a shard keeps a resident segment. Small and dense, so that a policy can index arrays by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(pub u32);

impl Slot {
    pub(crate) fn idx(self) -> usize {
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
    /// W-TinyLFU: newcomers must be more popular than whom they replace.
    WTinyLfu,
    /// HPCache as the paper has it: random soft pins.
    HpCachePaper,
    /// HPCache with stable soft pins: the product's own.
    HpCache,
}

/// What the policies of the shards need to know of the cache.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyContext {
    pub(crate) placement: Arc<PublishedPlacement>,
    pub(crate) partitions: usize,
}

impl PolicyKind {
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

    /// The name in SQL and on the command line.
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
        matches!(self, Self::HpCachePaper | Self::HpCache)
    }

    pub(crate) fn build(self, context: &PolicyContext, shard_idx: usize) -> Box<dyn Policy> {
        let placement = || Arc::clone(&context.placement);
        match self {
            Self::None => Box::new(none::KeepNone),
            Self::All => Box::new(all::KeepAll::default()),
            Self::Lru => Box::new(recency::Recency::lru()),
            Self::Mru => Box::new(recency::Recency::mru()),
            Self::Random => Box::new(random::Random::new(shard_idx as u64)),
            Self::Clock => Box::new(clock::Clock::default()),
            Self::TwoQueue => Box::new(two_queue::TwoQueue::default()),
            Self::Lfu => Box::new(lfu::Lfu::default()),
            Self::S3Fifo => Box::new(s3fifo::S3Fifo::default()),
            Self::Sieve => Box::new(sieve::Sieve::default()),
            Self::WTinyLfu => Box::new(wtinylfu::WTinyLfu::new()),
            Self::HpCachePaper => Box::new(hpcache_paper::HpCachePaper::new(
                placement(),
                context.partitions,
                shard_idx as u64,
            )),
            Self::HpCache => Box::new(hpcache::HpCache::new(placement())),
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
#[error("there is no cache policy '{name}'; the nearest is '{nearest}'")]
pub struct UnknownPolicy {
    /// What was written.
    pub name: String,
    /// The most similar name that exists.
    pub nearest: PolicyKind,
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let wanted: String = name
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .map(|c| c.to_ascii_lowercase())
            .collect();
        let plain = |kind: Self| kind.name().replace('-', "");
        let found = Self::ALL.iter().find(|kind| plain(**kind) == wanted);
        found.copied().ok_or_else(|| UnknownPolicy {
            name: name.to_owned(),
            nearest: nearest(&wanted),
        })
    }
}

fn nearest(wanted: &str) -> PolicyKind {
    let distance = |kind: &&PolicyKind| strsim::levenshtein(wanted, &kind.name().replace('-', ""));
    let found = PolicyKind::ALL.iter().min_by_key(distance);
    found.copied().unwrap_or(PolicyKind::HpCache)
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
    fn an_unknown_name_is_answered_with_the_nearest() {
        let error = "lrru".parse::<PolicyKind>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no cache policy 'lrru'; the nearest is 'lru'"
        );
        assert!("".parse::<PolicyKind>().is_err());
        for (written, nearest) in [
            ("s3-fofo", "s3fifo"),
            ("w-tinylru", "wtinylfu"),
            ("HPcash", "hpcache"),
        ] {
            let error = written.parse::<PolicyKind>().unwrap_err();
            assert_eq!(error.nearest.name(), nearest);
        }
        assert_eq!("S3-FIFO".parse(), Ok(PolicyKind::S3Fifo));
        assert_eq!("hpcache_paper".parse(), Ok(PolicyKind::HpCachePaper));
    }
}
