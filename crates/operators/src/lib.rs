//! Operators over Arrow batches that never fail for lack of memory: what does not fit is spilled, except for what is
//! known about a single group.
//!
//! | module | answers |
//! |---|---|
//! | [`aggregate`] | what is known about groups of rows |
//! | [`batches`] | how much memory a batch takes |
//! | [`exchange`] | how rows get from some threads to others |
//! | [`join`] | which rows of two inputs belong together |
//! | [`keys`] | when rows are equal, and their hashes |
//! | [`memory`] | how much an operator may hold |
//! | [`sort`] | rows in order, or the first of them |
//! | [`spill`] | where batches go that do not fit, and how they come back |
//!
//! An operator gets an [`Environment`]. It opens a [`memory::Grant`], which has a minimum that is always there,
//! grows it while the broker agrees, and writes batches to a [`spill::SpillFile`] where the broker refuses. All
//! calls block: the caller has threads for them, and raises [`Stop`] to end them.
//!
//! The crate knows nothing of DataFusion or Vortex.
//!
//! ```
//! use std::sync::Arc;
//!
//! use arrow_array::{ArrayRef, Int64Array, RecordBatch};
//! use hotshelf_operators::memory::FixedPool;
//! use hotshelf_operators::sort::{SortKey, SortOptions, Sorter};
//! use hotshelf_operators::spill::{SpillFolder, SpillOptions};
//! use hotshelf_operators::{Environment, Stop};
//! use hotshelf_tier::io::{IoEngine, IoOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let spill = SpillOptions {
//!     path: folder.path().to_path_buf(),
//!     limit_bytes: 1 << 30,
//! };
//! let environment = Environment {
//!     broker: FixedPool::new(1 << 20),
//!     spill: SpillFolder::open(spill, IoEngine::start(IoOptions::default())?)?,
//!     spilled: hotshelf_operators::spill::uncounted(),
//!     stop: Stop::default(),
//!     table_shelf: None,
//! };
//! let numbers = |numbers: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(numbers)) };
//! let batches = [vec![5, 3], vec![4, 1, 2]].map(|rows| RecordBatch::try_from_iter([("n", numbers(rows))]));
//!
//! let options = SortOptions {
//!     keys: vec![SortKey { column: 0, options: Default::default() }],
//!     limit: Some(3),
//!     ..SortOptions::default()
//! };
//! let schema = batches[0].as_ref().unwrap().schema();
//! let mut sorter = Sorter::new(&environment, "example", schema, options)?;
//! for batch in batches {
//!     sorter.push(batch?)?;
//! }
//! let sorted: Vec<RecordBatch> = sorter.finish()?.collect::<Result<_, _>>()?;
//! assert_eq!(sorted[0].column(0), &numbers(vec![1, 2, 3]));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod aggregate;
pub mod batches;
mod environment;
mod error;
pub mod exchange;
pub mod join;
pub mod keys;
pub mod memory;
mod partitions;
pub mod sort;
pub mod spill;
mod table_shelf;
#[cfg(test)]
mod testing;
mod threads;

pub use environment::{Environment, Stop};
pub use error::{OperatorError, Result};
pub use table_shelf::TableShelf;
