//! Why an operator could not answer.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::ArrowError;
use hotshelf_tier::{Corruption, TierError};
use thiserror::Error;

/// The result of an operator's step.
pub type Result<T, E = OperatorError> = std::result::Result<T, E>;

/// Why an operator could not answer. Lack of memory never is the reason: what one group or value takes is lent.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// Arrow could not compute or encode something: the sum of the lengths of a batch's strings is above 2 GiB, say.
    #[error("{0}")]
    Arrow(Arc<ArrowError>),
    /// Reading what was spilled failed.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// What was spilled came back with other bytes.
    #[error(transparent)]
    Damaged(#[from] Corruption),
    /// A file in the spill folder could not be made or written.
    #[error("cannot {operation} {}: {source}", path.display())]
    Spill {
        /// The file or the folder.
        path: PathBuf,
        /// What was tried, as a verb: `create`, `write`.
        operation: &'static str,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// The file system of the spill folder is full.
    #[error(
        "the disk is full: {needed_bytes} more bytes are needed in {}, where queries hold {used_bytes}",
        folder.display()
    )]
    DiskFull {
        /// The spill folder.
        folder: PathBuf,
        /// What the next write needs.
        needed_bytes: u64,
        /// What all queries have spilled and still need.
        used_bytes: u64,
    },
    /// The limit of the spill folder is reached.
    #[error(
        "queries may spill {limit_bytes} bytes to {}: they hold {used_bytes} there, and {needed_bytes} more are needed",
        folder.display()
    )]
    SpillLimit {
        /// The spill folder.
        folder: PathBuf,
        /// What may be spilled altogether.
        limit_bytes: u64,
        /// What all queries have spilled and still need.
        used_bytes: u64,
        /// What the next write needs.
        needed_bytes: u64,
    },
    /// A fault of this crate.
    #[error("internal error: {0}")]
    Internal(&'static str),
    /// The stop flag was raised.
    #[error("stopped: the result is not wanted any more")]
    Stopped,
}

impl From<ArrowError> for OperatorError {
    fn from(error: ArrowError) -> Self {
        Self::Arrow(Arc::new(error))
    }
}
