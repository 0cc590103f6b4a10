//! Experiments: queries timed, bytes counted, policies compared, results drawn.
//!
//! [`measure`] runs one query; [`ssb`] prepares the Star Schema Benchmark and repeats its queries; [`policies`]
//! runs one sequence of queries under several cache policies; [`hpcache`] repeats the experiments of the HPCache paper;
//! [`plot`] draws the figures of both, [`heat_map`] what a probe measured.

pub mod elf;
mod error;
pub mod heat_map;
pub mod hpcache;
mod measure;
pub mod plot;
pub mod policies;
pub mod ssb;

pub use error::ExperimentError;
pub use measure::{Measurement, Query, measure, median};
