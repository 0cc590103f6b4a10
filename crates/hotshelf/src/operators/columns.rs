//! Columns that are made of a batch's: sorts and joins compare columns, and their keys may be expressions.

use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use hotshelf_operators::keys::{KeyEncoder, KeyShape, Nulls};

/// The columns of an input, and those that are made of them for as long as an operator lasts.
pub(super) struct Columns {
    input: SchemaRef,
    /// With the columns that are made.
    schema: SchemaRef,
    made: Vec<Arc<dyn PhysicalExpr>>,
}

impl Columns {
    pub fn of(input: SchemaRef) -> Self {
        Self {
            schema: input.clone(),
            input,
            made: Vec::new(),
        }
    }

    /// The number of the column that an expression is, or becomes.
    pub fn number_of(&mut self, expr: &Arc<dyn PhysicalExpr>) -> QueryResult<usize> {
        if let Some(column) = expr.downcast_ref::<Column>() {
            return Ok(column.index());
        }
        let data_type = expr.data_type(&self.input)?;
        let name = format!("key {}", self.made.len());
        let made = Arc::new(Field::new(name, data_type, true));
        let fields = self.schema.fields().iter().cloned().chain([made]);
        self.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        self.made.push(expr.clone());
        Ok(self.schema.fields().len() - 1)
    }

    /// With the columns that are made.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub fn data_type(&self, number: usize) -> &DataType {
        self.schema.field(number).data_type()
    }

    /// Rows with the columns that are made.
    pub fn add(&self, batch: RecordBatch) -> QueryResult<RecordBatch> {
        if self.made.is_empty() {
            return Ok(batch);
        }
        let mut columns = batch.columns().to_vec();
        for expr in &self.made {
            columns.push(expr.evaluate(&batch)?.into_array(batch.num_rows())?);
        }
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }

    /// Rows without them.
    pub fn remove(&self, batch: RecordBatch) -> QueryResult<RecordBatch> {
        if self.made.is_empty() {
            return Ok(batch);
        }
        let columns = &batch.columns()[..self.input.fields().len()];
        // All columns may be made.
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let (schema, columns) = (self.input.clone(), columns.to_vec());
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

/// Whether keys of these types, each with whether it may be NULL, are a few words. Others are copied row by row, which
/// DataFusion's operators do not.
pub(super) fn are_words(keys: &[(DataType, bool)], nulls: Nulls) -> bool {
    let encoder = KeyEncoder::try_new(keys, nulls);
    encoder.is_ok_and(|encoder| matches!(encoder.shape(), KeyShape::Words(_)))
}

/// Whether values of these types can be compared, and stored, as bytes.
pub(super) fn are_comparable<'a>(types: impl Iterator<Item = &'a DataType>) -> bool {
    let fields: Vec<SortField> = types.cloned().map(SortField::new).collect();
    RowConverter::supports_fields(&fields)
}
