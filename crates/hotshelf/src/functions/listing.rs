//! Rows as columns: how table functions make a batch of what they list.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array,
};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::error::Result as QueryResult;

/// Columns by name, in order.
pub(super) type Columns = Vec<(&'static str, ArrayRef)>;

/// Rows of one kind and the columns made of them so far. A column's value is `None` where it is NULL.
pub(super) struct Listing<R> {
    rows: Vec<R>,
    columns: Columns,
}

impl<R> Listing<R> {
    pub fn of(rows: Vec<R>) -> Self {
        Self {
            rows,
            columns: Vec::new(),
        }
    }

    /// A column of text.
    pub fn text<V: Into<Option<String>>>(
        self,
        name: &'static str,
        value: impl Fn(&R) -> V,
    ) -> Self {
        self.column::<StringArray, String>(name, |row| value(row).into())
    }

    /// A column of counts and sizes.
    pub fn count<V: Into<Option<u64>>>(self, name: &'static str, value: impl Fn(&R) -> V) -> Self {
        self.column::<UInt64Array, u64>(name, |row| value(row).into())
    }

    /// A column of changes.
    pub fn signed<V: Into<Option<i64>>>(self, name: &'static str, value: impl Fn(&R) -> V) -> Self {
        self.column::<Int64Array, i64>(name, |row| value(row).into())
    }

    /// A column of measurements.
    pub fn real<V: Into<Option<f64>>>(self, name: &'static str, value: impl Fn(&R) -> V) -> Self {
        self.column::<Float64Array, f64>(name, |row| value(row).into())
    }

    /// A column that says whether.
    pub fn flag(self, name: &'static str, value: impl Fn(&R) -> bool) -> Self {
        self.column::<BooleanArray, bool>(name, |row| Some(value(row)))
    }

    fn column<A, V>(mut self, name: &'static str, value: impl Fn(&R) -> Option<V>) -> Self
    where
        A: FromIterator<Option<V>> + arrow::array::Array + 'static,
    {
        let values: A = self.rows.iter().map(value).collect();
        self.columns.push((name, Arc::new(values)));
        self
    }

    pub fn columns(self) -> Columns {
        self.columns
    }
}

/// A table of columns.
pub(super) fn table(columns: Columns) -> QueryResult<Arc<dyn TableProvider>> {
    let batch = RecordBatch::try_from_iter(columns)?;
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
    Ok(Arc::new(table))
}
