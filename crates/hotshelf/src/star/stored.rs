//! The columns that survivors need, in the ways in which they are at hand.

use arrow::array::ArrayRef;
use arrow::datatypes::FieldRef;
use vortex::array::ArrayRef as EncodedRef;

use super::chunk::ChunkColumn;
use super::words::Bounds;

/// The columns that the survivors of a row group need.
pub(super) struct Payload {
    pub columns: Vec<Stored>,
    /// Those of them that are arrays.
    pub whole: Vec<Whole>,
    /// The first of the survivors whose values the arrays have.
    pub first: usize,
}

/// A column that is decoded for a part of the survivors at a time.
pub(super) struct Whole {
    /// Its place among the columns.
    pub place: usize,
    pub array: EncodedRef,
    pub field: FieldRef,
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
    /// The values of a part of the survivors.
    Array(ArrayRef),
}

impl Stored {
    pub fn chunks(column: ChunkColumn) -> Self {
        let bounds = column.bounds();
        Self::Chunks { column, bounds }
    }
}
