//! SSB and TPC-H tables, computed instead of stored, and the queries over them.
//!
//! [`ssb`] and [`tpch`] produce the two benchmarks' tables as Arrow batches and hold their queries; [`export`] turns
//! any [`Dataset`] into Parquet files. Nothing here knows the engine.

#![forbid(unsafe_code)]

mod dataset;
mod error;
pub mod export;
pub mod random;
pub mod ssb;
pub mod tpch;

pub use dataset::{BATCH_ROWS, BatchIter, Dataset, Query};
pub use error::GenerateError;
