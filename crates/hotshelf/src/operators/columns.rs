//! Columns that are made of a batch's: sorts and joins compare columns, and their keys may be expressions.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

/// The columns of an input, and those that are made of them for as long as an operator lasts.
pub(super) struct Columns {
    input: SchemaRef,
    fields: Vec<FieldRef>,
    made: Vec<Arc<dyn PhysicalExpr>>,
}

impl Columns {
    pub fn of(input: SchemaRef) -> Self {
        Self {
            fields: input.fields().iter().cloned().collect(),
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
        self.fields
            .push(Arc::new(Field::new(name, data_type, true)));
        self.made.push(expr.clone());
        Ok(self.fields.len() - 1)
    }

    /// With the columns that are made.
    pub fn schema(&self) -> SchemaRef {
        match self.made.is_empty() {
            true => self.input.clone(),
            false => Arc::new(Schema::new(self.fields.clone())),
        }
    }

    pub fn data_type(&self, number: usize) -> &DataType {
        self.fields[number].data_type()
    }

    /// Whether all columns have types that can be compared, and stored, as bytes.
    pub fn are_comparable(&self) -> bool {
        let types = self.fields.iter().map(|field| field.data_type().clone());
        let fields: Vec<SortField> = types.map(SortField::new).collect();
        RowConverter::supports_fields(&fields)
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
        Ok(RecordBatch::try_new(self.schema(), columns)?)
    }

    /// Rows without them.
    pub fn remove(&self, batch: RecordBatch) -> QueryResult<RecordBatch> {
        if self.made.is_empty() {
            return Ok(batch);
        }
        let wanted: Vec<usize> = (0..self.input.fields().len()).collect();
        Ok(batch.project(&wanted)?.with_schema(self.input.clone())?)
    }
}
