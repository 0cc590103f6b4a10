//! Numbers of a table's rows.
//!
//! A row's number is the number of its data file and its place in the file. A sort that keeps few rows keeps numbers
//! instead of columns that it does not need, which are read of the rows that are left (`operators/fetch.rs`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::error::Result as QueryResult;
use vortex::mask::{AllOr, Mask};

/// The column of numbers.
pub(super) fn number_field() -> Field {
    Field::new("row number", DataType::UInt64, false)
}

/// Bits of a number that say which row of the file.
const ROW_BITS: u32 = 40;

/// Whether a row number has room for the number of a file.
pub(super) fn can_number(file: u64) -> bool {
    file >> (u64::BITS - ROW_BITS) == 0
}

/// The number of the first row of a file.
pub(super) fn first_number(file: u64) -> u64 {
    file << ROW_BITS
}

/// The number of a row's file, and the row's place in it.
pub(super) fn place_of(number: u64) -> (u64, u64) {
    (number >> ROW_BITS, number & ((1 << ROW_BITS) - 1))
}

/// Rows by the number of their data file: ranges of rows of the file, which ascend.
pub(crate) type RowsByFile = BTreeMap<u64, Vec<Range<u64>>>;

/// The numbers of rows that are read and not decoded yet.
pub(super) enum Numbers {
    /// One after the other.
    From(u64),
    These(UInt64Array),
}

impl Numbers {
    /// Of the rows that a mask keeps, where the first one that it could keep has the number `first`.
    pub fn of(mask: &Mask, first: u64) -> Self {
        match mask.indices() {
            AllOr::All => Self::From(first),
            AllOr::None => Self::These(UInt64Array::from_iter_values([])),
            AllOr::Some(places) => {
                let numbers = places.iter().map(|place| first + *place as u64);
                Self::These(UInt64Array::from_iter_values(numbers))
            }
        }
    }

    /// The numbers of the first rows that remain, as a column.
    pub fn next(&mut self, row_count: usize) -> ArrayRef {
        match self {
            Self::From(first) => {
                let end = *first + row_count as u64;
                Arc::new(UInt64Array::from_iter_values(
                    std::mem::replace(first, end)..end,
                ))
            }
            Self::These(numbers) => {
                let rest = numbers.slice(row_count, numbers.len() - row_count);
                Arc::new(std::mem::replace(numbers, rest).slice(0, row_count))
            }
        }
    }
}

/// Rows with their numbers as the last column.
pub(super) fn with_numbers(
    rows: &RecordBatch,
    numbers: ArrayRef,
    schema: &Arc<Schema>,
) -> QueryResult<RecordBatch> {
    let columns = rows.columns().iter().cloned().chain([numbers]);
    Ok(RecordBatch::try_new(schema.clone(), columns.collect())?)
}
