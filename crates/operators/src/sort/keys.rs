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

/// The first bytes that all keys of a set have in common. The eight bytes behind them order most rows.
#[derive(Debug, Clone, Default)]
pub(super) struct CommonStart {
    /// `None`: there are no keys yet.
    bytes: Option<Vec<u8>>,
}

impl CommonStart {
    pub(super) fn add(&mut self, keys: &Rows) {
        for key in keys {
            let key = key.data();
            let Some(bytes) = &mut self.bytes else {
                self.bytes = Some(key.to_vec());
                continue;
            };
            if !key.starts_with(bytes) {
                let same = bytes.iter().zip(key).take_while(|(a, b)| a == b);
                let len = same.count();
                bytes.truncate(len);
            }
            if bytes.is_empty() {
                return;
            }
        }
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        match (&mut self.bytes, &other.bytes) {
            (_, None) => {}
            (None, Some(_)) => self.bytes.clone_from(&other.bytes),
            (Some(bytes), Some(others)) => {
                let same = bytes.iter().zip(others).take_while(|(a, b)| a == b);
                let len = same.count();
                bytes.truncate(len);
            }
        }
    }

    /// The bytes of a key behind the common start, as a number that compares like them as far as it goes.
    pub(super) fn prefix(&self, key: &[u8]) -> u64 {
        let rest = &key[self.bytes.as_ref().map_or(0, Vec::len)..];
        let mut bytes = [0; 8];
        let len = rest.len().min(8);
        bytes[..len].copy_from_slice(&rest[..len]);
        u64::from_be_bytes(bytes)
    }
}
