//! Why an Elf cannot be asked.

use std::fmt;

use crate::error::StoreError;

/// Why an Elf cannot be asked. The scan answers then.
#[derive(Debug, Clone)]
pub enum Unavailable {
    /// There is not enough memory.
    Memory {
        /// Bytes it would take.
        needed_bytes: u64,
    },
    /// Its bytes cannot be read or are not what was written.
    Damaged(String),
}

impl Unavailable {
    /// An Elf, its head or some of its blocks cannot be read, or are not what was written. Logs it.
    pub fn damaged(error: StoreError) -> Self {
        tracing::warn!(%error, "an index cannot be used; the table is scanned instead");
        Self::Damaged(match error {
            StoreError::Corruption(found) => found.to_string(),
            other => other.to_string(),
        })
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { needed_bytes } => {
                write!(
                    f,
                    "an Elf of {needed_bytes} bytes has no room in the budget"
                )
            }
            Self::Damaged(what) => f.write_str(what),
        }
    }
}
