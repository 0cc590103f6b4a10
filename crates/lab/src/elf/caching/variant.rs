//! The variants of selective caching by name, and the caches they are made of.

use std::fmt;
use std::sync::Arc;

use super::filter::MissFilter;
use super::list_cache::Capacity;
use super::policy::{Lfu, Lla, Lru, Naive, Policy, S3Fifo, Sieve, TwoQueues};
use super::statics::Choice;

/// A replacement policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyName {
    /// Takes everything until it is full.
    Naive,
    /// Least recently used.
    Lru,
    /// Least frequently used.
    Lfu,
    /// Least likely to be accessed.
    Lla,
    /// Taken in when missed twice.
    TwoQueues,
    /// SIEVE.
    Sieve,
    /// S3-FIFO.
    S3Fifo,
}

impl PolicyName {
    /// All of them, those of the papers first.
    pub const ALL: [Self; 7] = [
        Self::Naive,
        Self::Lru,
        Self::Lfu,
        Self::Lla,
        Self::TwoQueues,
        Self::Sieve,
        Self::S3Fifo,
    ];
}

/// Something to be done with a policy that is known by name.
pub trait WithPolicy {
    /// What comes of it.
    type Out;

    /// Does it.
    fn call<P: Policy + 'static>(self) -> Self::Out;
}

impl PolicyName {
    /// Does something with the policy of this name.
    pub fn with<W: WithPolicy>(self, work: W) -> W::Out {
        match self {
            Self::Naive => work.call::<Naive>(),
            Self::Lru => work.call::<Lru>(),
            Self::Lfu => work.call::<Lfu>(),
            Self::Lla => work.call::<Lla>(),
            Self::TwoQueues => work.call::<TwoQueues>(),
            Self::Sieve => work.call::<Sieve>(),
            Self::S3Fifo => work.call::<S3Fifo>(),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Naive => "naive",
            Self::Lru => "lru",
            Self::Lfu => "lfu",
            Self::Lla => "lla",
            Self::TwoQueues => "2q",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3fifo",
        })
    }
}

/// A static cache of lists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StaticChoice {
    /// Which lists.
    pub choice: Choice,
    /// Whether links lead to copies.
    pub swizzled: bool,
}

impl fmt::Display for StaticChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let swizzled = if self.swizzled { ", swizzled" } else { "" };
        match self.choice {
            Choice::Levels(levels) => write!(f, "static({levels} levels{swizzled})"),
            Choice::Probability(bytes) => {
                write!(f, "static(probability, {} KiB{swizzled})", bytes >> 10)
            }
            Choice::ProbabilityPerByte(bytes) => {
                write!(f, "static(per byte, {} KiB{swizzled})", bytes >> 10)
            }
        }
    }
}

/// A dynamic cache of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DynamicChoice {
    /// What it keeps.
    pub policy: PolicyName,
    /// How much of it.
    pub capacity: Capacity,
    /// Whether MonoLists may be kept.
    pub monos: bool,
}

impl fmt::Display for DynamicChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let monos = if self.monos { ", MonoLists too" } else { "" };
        let capacity = self.capacity;
        match capacity.bytes {
            u64::MAX => write!(
                f,
                "dynamic({}, {} lists{monos})",
                self.policy, capacity.lists
            ),
            bytes => write!(f, "dynamic({}, {} KiB{monos})", self.policy, bytes >> 10),
        }
    }
}

/// What of `linear` is in DRAM.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Variant {
    /// Everything, and nothing is persistent.
    Volatile,
    /// Nothing.
    Pure,
    /// A copy of everything.
    Hybrid,
    /// A copy of the DimensionLists.
    Dual,
    /// Some lists for good.
    Static(StaticChoice),
    /// Some lists by use.
    Dynamic(DynamicChoice),
    /// Both.
    Split(StaticChoice, DynamicChoice),
}

impl Variant {
    /// Whether queries read the shelf.
    pub fn reads_shelf(self) -> bool {
        !matches!(self, Self::Volatile | Self::Hybrid)
    }

    /// The first levels for good, found by a table as in the papers.
    pub fn levels(levels: usize) -> Self {
        Self::Static(StaticChoice {
            choice: Choice::Levels(levels),
            swizzled: false,
        })
    }

    /// A policy over this many lists.
    pub fn dynamic(policy: PolicyName, lists: usize) -> Self {
        Self::Dynamic(DynamicChoice {
            policy,
            capacity: Capacity {
                lists,
                bytes: u64::MAX,
            },
            monos: false,
        })
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volatile => f.write_str("volatile"),
            Self::Pure => f.write_str("pure"),
            Self::Hybrid => f.write_str("hybrid"),
            Self::Dual => f.write_str("dual"),
            Self::Static(own) => own.fmt(f),
            Self::Dynamic(own) => own.fmt(f),
            Self::Split(first, second) => write!(f, "split({first}, {second})"),
        }
    }
}

/// What of `packed` is in DRAM besides its head.
#[derive(Debug, Clone, PartialEq)]
pub enum BlockVariant {
    /// All blocks.
    Volatile,
    /// None.
    Pure,
    /// A copy of all blocks.
    Hybrid,
    /// This many bytes of those that a workload accessed most.
    Static(u64),
    /// This many bytes of those that a policy keeps, which is offered one of this many misses.
    Dynamic(PolicyName, u64, u32),
    /// A filter that answers most misses, and no block.
    Filtered(Arc<MissFilter>),
    /// As `Static`, by swizzled references.
    SwizzledStatic(u64),
    /// As `Dynamic` with the policy `naive`, by swizzled references.
    SwizzledNaive(u64, u32),
}

impl BlockVariant {
    /// Whether queries read the shelf.
    pub fn reads_shelf(&self) -> bool {
        !matches!(self, Self::Volatile | Self::Hybrid)
    }
}

/// Which misses a policy is offered, in the name of a variant.
fn one_of(misses: u32) -> String {
    match misses {
        1 => String::new(),
        misses => format!(", 1 miss of {misses}"),
    }
}

impl fmt::Display for BlockVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volatile => f.write_str("volatile"),
            Self::Pure => f.write_str("pure"),
            Self::Hybrid => f.write_str("hybrid"),
            Self::Filtered(_) => f.write_str("pure, filtered"),
            Self::Static(bytes) => write!(f, "static(observed, {} KiB)", bytes >> 10),
            Self::SwizzledStatic(bytes) => {
                write!(f, "static(observed, {} KiB, swizzled)", bytes >> 10)
            }
            Self::Dynamic(policy, bytes, misses) => {
                write!(
                    f,
                    "dynamic({policy}, {} KiB{})",
                    bytes >> 10,
                    one_of(*misses)
                )
            }
            Self::SwizzledNaive(bytes, misses) => {
                let (kib, one_of) = (bytes >> 10, one_of(*misses));
                write!(f, "dynamic(naive, {kib} KiB{one_of}, swizzled)")
            }
        }
    }
}
