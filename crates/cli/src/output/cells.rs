//! Values as text, column by column.

use std::fmt::Write as _;

use arrow::array::{Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// The values of one column of a batch.
pub(super) struct Cells<'a> {
    values: ArrayFormatter<'a>,
    nulls: Option<NullBuffer>,
}

impl<'a> Cells<'a> {
    /// All columns of a batch.
    pub fn of(
        batch: &'a RecordBatch,
        options: &FormatOptions<'a>,
    ) -> Result<Vec<Self>, ArrowError> {
        let columns = batch.columns().iter();
        columns
            .map(|column| Self::of_column(column, options))
            .collect()
    }

    /// One column.
    pub fn of_column(
        column: &'a dyn Array,
        options: &FormatOptions<'a>,
    ) -> Result<Self, ArrowError> {
        Ok(Self {
            values: ArrayFormatter::try_new(column, options)?,
            nulls: column.logical_nulls(),
        })
    }

    pub fn is_null(&self, row_idx: usize) -> bool {
        self.nulls
            .as_ref()
            .is_some_and(|nulls| nulls.is_null(row_idx))
    }

    /// Adds the value to a text. Fails if the value has none, such as a time beyond the calendar.
    pub fn push(&self, row_idx: usize, text: &mut String) -> Result<(), ArrowError> {
        let value = self.values.value(row_idx);
        match write!(text, "{value}") {
            Ok(()) => Ok(()),
            // Written once more for the error.
            Err(_) => value.try_to_string().map(|_| ()),
        }
    }

    /// The value as a text.
    pub fn text(&self, row_idx: usize) -> Result<String, ArrowError> {
        self.values.value(row_idx).try_to_string()
    }
}
