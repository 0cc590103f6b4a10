//! The columns that survivors need, in the ways in which they are at hand.

use arrow::array::ArrayRef;

use super::chunk::ChunkColumn;
use super::words::Bounds;

/// The columns that the survivors of a row group need.
pub(super) struct Payload {
    pub columns: Vec<Stored>,
}

/// A column of a row group, or of its survivors.
pub(super) enum Stored {
    /// Words, decoded where they are needed.
    Chunks {
        column: ChunkColumn,
        bounds: Option<Bounds>,
    },
    /// Codes of a dictionary, none of them NULL.
    Codes {
        codes: ChunkColumn,
        values: ArrayRef,
    },
    /// The survivors' values.
    Array(ArrayRef),
}

impl Stored {
    pub fn chunks(column: ChunkColumn) -> Self {
        let bounds = column.bounds();
        Self::Chunks { column, bounds }
    }
}
