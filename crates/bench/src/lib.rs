//! Generators and experiments of Hotshelf.
//!
//! [`ssb`] and [`tpch`] produce the two benchmarks' tables as Arrow batches and hold their queries;
//! [`export`] turns any [`Dataset`] into Parquet files. Nothing here needs the engine.

#![forbid(unsafe_code)]

mod dataset;
mod error;
pub mod export;
pub mod ssb;
pub mod tpch;

pub use dataset::{BATCH_ROWS, BatchIter, Dataset};
pub use error::GenerateError;
