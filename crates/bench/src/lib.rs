//! Experiments of Hotshelf: [`load_table`] puts a generated table into a database, and [`experiment`] measures queries
//! there.

#![forbid(unsafe_code)]

pub mod experiment;
mod load;

pub use experiment::ExperimentError;
pub use load::load_table;
