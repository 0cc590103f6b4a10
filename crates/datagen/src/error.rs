//! What can go wrong while generating: a bad scale or name from the user, or the file system.

use std::io;
use std::path::PathBuf;

use parquet::errors::ParquetError;

/// Errors of the generators and of the Parquet writer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The scale factor lies outside what the benchmark defines.
    #[error("scale factor {scale} of {benchmark} is outside {min} to {max}")]
    Scale {
        /// Name of the benchmark.
        benchmark: &'static str,
        /// What was asked for.
        scale: f64,
        /// Smallest scale at which every table has rows.
        min: f64,
        /// Largest scale whose keys fit their columns.
        max: f64,
    },
    /// The benchmark has no table of this name.
    #[error("{benchmark} has no table {name:?}; it has {}", known.join(", "))]
    UnknownTable {
        /// Name of the benchmark.
        benchmark: &'static str,
        /// What was asked for.
        name: String,
        /// The tables it has.
        known: Vec<&'static str>,
    },
    /// A file could not be created, written, synced or renamed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Encoding or writing Parquet failed.
    #[error("{}: {source}", path.display())]
    Parquet {
        /// The file being written.
        path: PathBuf,
        /// The cause.
        source: ParquetError,
    },
}
