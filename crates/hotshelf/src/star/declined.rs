//! Why a plan is not taken for a star.

/// Why a plan is not taken for a star.
#[derive(Debug)]
pub(super) struct Declined(pub String);

impl Declined {
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl From<datafusion::error::DataFusionError> for Declined {
    fn from(error: datafusion::error::DataFusionError) -> Self {
        Self(error.to_string())
    }
}
