//! Generators and experiments of Hotshelf.
//!
//! [`ssb`] and [`tpch`] produce the two benchmarks' tables as Arrow batches and hold their queries;
//! [`export`] turns any [`Dataset`] into Parquet files. None of these needs the engine. [`load_table`] puts a
//! generated table into a database, and [`experiment`] measures queries there.

#![forbid(unsafe_code)]

mod dataset;
mod error;
pub mod experiment;
pub mod export;
mod load;
mod random;
pub mod ssb;
pub mod tpch;

pub use dataset::{BATCH_ROWS, BatchIter, Dataset};
pub use error::GenerateError;
pub use experiment::ExperimentError;
pub use load::load_table;
