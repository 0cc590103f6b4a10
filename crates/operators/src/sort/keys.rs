//! What rows are sorted by, as bytes that compare like the rows.

use std::sync::Arc;

use arrow_array::{ArrayRef, NullArray, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, DataType, SchemaRef, SortOptions as KeyOptions};

/// A column to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortKey {
    /// Its number in the schema.
    pub column: usize,
    /// Descending or ascending, NULLs first or last.
    pub options: KeyOptions,
}

/// Makes keys of batches.
pub(super) struct OrderEncoder {
    converter: RowConverter,
    columns: Vec<usize>,
}

impl OrderEncoder {
    pub(super) fn new(schema: &SchemaRef, keys: &[SortKey]) -> Result<Self, ArrowError> {
        let field = |key: &SortKey| {
            let data_type = schema.field(key.column).data_type().clone();
            SortField::new_with_options(data_type, key.options)
        };
        let mut fields: Vec<SortField> = keys.iter().map(field).collect();
        if fields.is_empty() {
            // The converter makes no rows of no columns.
            fields.push(SortField::new(DataType::Null));
        }
        Ok(Self {
            converter: RowConverter::new(fields)?,
            columns: keys.iter().map(|key| key.column).collect(),
        })
    }

    pub(super) fn keys(&self, batch: &RecordBatch) -> Result<Rows, ArrowError> {
        let column = |&column: &usize| batch.column(column).clone();
        let mut columns: Vec<ArrayRef> = self.columns.iter().map(column).collect();
        if columns.is_empty() {
            columns.push(Arc::new(NullArray::new(batch.num_rows())));
        }
        self.converter.convert_columns(&columns)
    }

    /// The values of a row with this key, a column of one row each.
    pub(super) fn values(&self, key: &[u8]) -> Result<Vec<ArrayRef>, ArrowError> {
        let parser = self.converter.parser();
        self.converter.convert_rows([parser.parse(key)])
    }
}
