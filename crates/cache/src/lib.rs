//! Which of Hotshelf's bytes stay in DRAM.
//!
//! [`CacheManager`] stands between the operators and the storage: it answers requests for *segments*
//! (compressed pieces of one column) from memory or by one shared read, under one memory [`Budget`] that
//! the query engine's operators draw on too. What it keeps is decided by a [`policy`].
//!
//! | module | answers |
//! |---|---|
//! | [`policy`] | which segment is kept, which is evicted |
//! | [`model`] | how long a pipeline takes when a part of each column is in memory |
//! | [`tune`] | how much of each column *should* be in memory (Nicholson et al., `HPCache`, VLDB Journal 2023, §4) |
//! | [`tuner`] | how that changes while queries run |
//!
//! The crate knows nothing of Arrow, DataFusion or Vortex. A data file is a [`SegmentReader`] plus a list of
//! [`SegmentInfo`]s.
#![forbid(unsafe_code)]

mod admission;
mod budget;
mod clock;
mod error;
mod event;
mod files;
mod flight;
mod future;
mod key;
mod ladder;
mod lease;
mod ledger;
mod manager;
#[cfg(test)]
mod manager_tests;
mod market;
pub mod model;
#[cfg(test)]
mod model_tests;
mod placement;
pub mod policy;
mod price;
mod reader;
mod scan;
mod shard;
mod snapshot;
#[cfg(test)]
mod testing;
pub mod tune;
pub mod tuner;

pub use budget::{Budget, BudgetSnapshot, Shortage};
pub use clock::UseClock;
pub use error::ReadError;
pub use event::{Event, EventKind};
pub use future::SegmentFuture;
pub use key::{ColumnId, FileId, SegmentInfo, SegmentKey, SegmentKind};
pub use ladder::{Lender, Rung};
pub use ledger::{Ledger, MissCost};
pub use manager::{CacheManager, CacheOptions};
pub use market::{Change, ChangeReason, MarketRow, ShelfRow};
pub use placement::{ColumnShare, Placement, PublishedPlacement, keep_order};
pub use policy::PolicyKind;
pub use price::{Answer, Ask, PriceBoard, Prices, ShelfPrice};
pub use reader::{LyingSegment, ReadDone, ReadHandle, SegmentReader};
pub use scan::{ScanContext, ScanCounters};
pub use snapshot::{CacheStats, ColumnRow, SegmentRow, SegmentState};
