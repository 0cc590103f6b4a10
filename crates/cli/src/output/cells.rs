//! Values as text, column by column.

use arrow::array::{Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions, ValueFormatter};

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
            .map(|column| {
                Ok(Self {
                    values: ArrayFormatter::try_new(column, options)?,
                    nulls: column.logical_nulls(),
                })
            })
            .collect()
    }

    pub fn is_null(&self, row_idx: usize) -> bool {
        self.nulls
            .as_ref()
            .is_some_and(|nulls| nulls.is_null(row_idx))
    }

    pub fn value(&self, row_idx: usize) -> ValueFormatter<'_> {
        self.values.value(row_idx)
    }
}
