//! Errors for lack of room to spill, and what would have been needed.

use hotshelf_operators::OperatorError;

use super::Error;

impl Error {
    /// An operator's lack of room, with all rows that the statement keeps: these, in bytes, by estimate.
    pub(crate) fn with_rows_to_spill(self, rows_bytes: impl FnOnce() -> u64) -> Self {
        match self {
            Self::Operator(error) if is_lack_of_room(&error) => Self::NoRoomToSpill {
                error,
                rows_bytes: rows_bytes(),
            },
            other => other,
        }
    }
}

/// Whether an operator could not spill because there is no room.
pub(crate) fn is_lack_of_room(error: &OperatorError) -> bool {
    matches!(
        error,
        OperatorError::DiskFull { .. } | OperatorError::SpillLimit { .. }
    )
}

/// What an error says about the rows that a statement keeps.
pub(super) fn all_rows(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!(
            "; all rows that this statement's joins, sorts and aggregations keep are about {bytes} bytes, by estimate"
        ),
    }
}
