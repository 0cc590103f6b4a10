//! Why a segment could not be read.

use crate::key::SegmentKey;
use hotshelf_tier::{Corruption, TierError};
use thiserror::Error;

/// Why a request for a segment failed. Cheap to clone: several requests may share one failed read.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Reading the segment from its tier failed.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// The file was removed from the cache, or it has no such segment.
    #[error("segment {key} is not known to the cache: its file was removed or has fewer segments")]
    UnknownSegment {
        /// What was asked for.
        key: SegmentKey,
    },
    /// The reader dropped its completion callback without calling it.
    #[error("the read of segment {key} was given up by its reader")]
    Abandoned {
        /// What was asked for.
        key: SegmentKey,
    },
}

impl From<Corruption> for ReadError {
    fn from(corruption: Corruption) -> Self {
        Self::Tier(TierError::Corruption(corruption))
    }
}
