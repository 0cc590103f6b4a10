//! What a sort compares: columns of its rows, and expressions, which become columns for as long as the sort lasts.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use hotshelf_operators::sort::SortKey;

/// The keys of a sort, and the columns that are made for them.
pub(super) struct SortColumns {
    pub keys: Vec<SortKey>,
    /// Of the rows with the columns that are made.
    pub schema: SchemaRef,
    made: Vec<Arc<dyn PhysicalExpr>>,
    input_schema: SchemaRef,
}

impl SortColumns {
    pub fn new(ordering: &LexOrdering, input_schema: SchemaRef) -> QueryResult<Self> {
        let mut fields: Vec<_> = input_schema.fields().iter().cloned().collect();
        let mut keys = Vec::with_capacity(ordering.len());
        let mut made = Vec::new();
        for sort in ordering {
            let column = match sort.expr.downcast_ref::<Column>() {
                Some(column) => column.index(),
                None => {
                    let data_type = sort.expr.data_type(&input_schema)?;
                    let name = format!("sort key {}", made.len());
                    fields.push(Arc::new(Field::new(name, data_type, true)));
                    made.push(sort.expr.clone());
                    fields.len() - 1
                }
            };
            keys.push(SortKey {
                column,
                options: sort.options,
            });
        }
        let metadata = input_schema.metadata().clone();
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
        Ok(Self {
            keys,
            schema,
            made,
            input_schema,
        })
    }

    /// Whether all keys have types that can be compared as bytes.
    pub fn are_comparable(&self) -> bool {
        let field = |key: &SortKey| {
            let data_type = self.schema.field(key.column).data_type().clone();
            SortField::new_with_options(data_type, key.options)
        };
        let fields: Vec<SortField> = self.keys.iter().map(field).collect();
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
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }

    /// Rows without them.
    pub fn remove(&self, batch: RecordBatch) -> QueryResult<RecordBatch> {
        if self.made.is_empty() {
            return Ok(batch);
        }
        let wanted: Vec<usize> = (0..self.input_schema.fields().len()).collect();
        Ok(batch
            .project(&wanted)?
            .with_schema(self.input_schema.clone())?)
    }
}
