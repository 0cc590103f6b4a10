//! What can go wrong when an Elf is built, asked or read back.

use hotshelf_tier::Corruption;
use thiserror::Error;

/// Errors of this crate.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ElfError {
    /// Stored bytes are not what was written.
    #[error(transparent)]
    Corruption(#[from] Corruption),

    /// An Elf needs between one and [`crate::keys::DIMENSION_COUNT_MAX`] dimensions.
    #[error("an Elf has 1 to {max} dimensions, not {found}")]
    DimensionCount {
        /// Dimensions asked for.
        found: usize,
        /// The most that are supported.
        max: usize,
    },

    /// A query box or key was made for another number of dimensions.
    #[error("expected {expected} dimensions, found {found}")]
    DimensionMismatch {
        /// Dimensions of the Elf.
        expected: usize,
        /// Dimensions of the argument.
        found: usize,
    },

    /// Two columns of one table, or a column and its TIDs, differ in length.
    #[error("dimension {dimension} has {found} rows where {expected} are expected")]
    RowCountMismatch {
        /// The offending dimension; the number of dimensions when it is the TIDs.
        dimension: usize,
        /// Rows of the first dimension.
        expected: usize,
        /// Rows of this one.
        found: usize,
    },

    /// More rows than one Elf can number.
    #[error("an Elf holds at most {max} rows, not {found}: build one per data file")]
    TooManyRows {
        /// Rows given.
        found: u64,
        /// The most that fit.
        max: u64,
    },

    /// A code is too large for the layout that was chosen.
    #[error(
        "code {code} of dimension {dimension} exceeds {max}, the largest this layout can store"
    )]
    CodeTooLarge {
        /// The dimension.
        dimension: usize,
        /// The code.
        code: u32,
        /// The largest storable code.
        max: u32,
    },

    /// A file could not be read or written.
    #[error("cannot {operation}: {source}")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// Why it failed.
        source: std::sync::Arc<std::io::Error>,
    },

    /// The array of a `linear` Elf would outgrow its offsets.
    #[error("the Elf needs {needed} words, {bits}-bit offsets address {max}: use wider offsets")]
    OffsetsTooNarrow {
        /// Words needed.
        needed: u64,
        /// Words addressable.
        max: u64,
        /// Width of one offset.
        bits: u32,
    },

    /// A row that an Elf does not have was asked for.
    #[error("there is no row {row}: the Elf has {row_count}")]
    NoSuchRow {
        /// The row.
        row: u32,
        /// Rows there are.
        row_count: usize,
    },

    /// Ranges of rows do not ascend, or overlap.
    #[error("a range that starts at row {row} follows one that ends at {end}")]
    RowOrder {
        /// Where the range starts.
        row: u32,
        /// Where the range before it ends.
        end: u32,
    },

    /// A predicate compares a column with a value of another type.
    #[error("a {column} column cannot be compared with a {value} value")]
    TypeMismatch {
        /// Type of the column.
        column: &'static str,
        /// Type of the value.
        value: &'static str,
    },

    /// A value lies outside the domain that an encoding was learned from.
    #[error("row {row} holds a value outside the domain of its encoding")]
    OutsideDomain {
        /// The row.
        row: usize,
    },

    /// A column has more distinct values than codes exist.
    #[error("{found} distinct values do not fit into 32-bit codes")]
    TooManyValues {
        /// Distinct values found.
        found: usize,
    },
}

/// Results of this crate.
pub type Result<T, E = ElfError> = std::result::Result<T, E>;
