//! Experiments: queries timed, bytes counted, policies compared, results drawn.
//!
//! [`measure`] runs one query; [`ssb`] prepares the Star Schema Benchmark and repeats its queries; [`policies`]
//! runs one sequence of queries under several cache policies; [`chart`] draws that.

pub mod chart;
mod error;
mod measure;
pub mod policies;
pub mod ssb;

pub use error::ExperimentError;
pub use measure::{Measurement, Query, measure, median};
