//! Why a plan is not taken for a star, or turns out not to be one.

use datafusion::error::DataFusionError;

/// Why a plan is not taken for a star.
#[derive(Debug)]
pub(super) struct Declined(pub String);

impl Declined {
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl From<DataFusionError> for Declined {
    fn from(error: DataFusionError) -> Self {
        Self(error.to_string())
    }
}

/// Why there are no look-ups.
pub(super) enum Unfit {
    /// The data is not a star; the original plan can answer.
    NoStar(String),
    /// Nor may this be one, as when memory is short.
    Fallback(String),
    Failed(DataFusionError),
}

impl From<DataFusionError> for Unfit {
    fn from(error: DataFusionError) -> Self {
        Self::Failed(error)
    }
}
