//! Operators over Arrow batches that never fail for lack of memory: what does not fit is spilled.
//!
//! | module | answers |
//! |---|---|
//! | [`batches`] | how much memory a batch takes |
//! | [`memory`] | how much an operator may hold |
//! | [`sort`] | rows in order, or the first of them |
//! | [`spill`] | where batches go that do not fit, and how they come back |
//!
//! An operator gets an [`Environment`]. It opens a [`memory::Grant`], which has a minimum that is always there,
//! grows it while the broker agrees, and writes batches to a [`spill::SpillFile`] where the broker refuses. All
//! calls block: the caller has threads for them, and raises [`Stop`] to end them.
//!
//! The crate knows nothing of DataFusion or Vortex.
#![forbid(unsafe_code)]

pub mod batches;
mod environment;
mod error;
pub mod memory;
pub mod sort;
pub mod spill;
#[cfg(test)]
mod testing;

pub use environment::{Environment, Stop};
pub use error::{OperatorError, Result};
