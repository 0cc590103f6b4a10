//! The aggregates of a star pipeline. They are DataFusion's own accumulators: their NULL, overflow and type rules
//! are its rules.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::cast::as_boolean_array;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

/// What is computed per group, over the columns of the survivors' batch.
#[derive(Debug, Clone)]
pub(super) struct Aggregates {
    pub functions: Vec<Arc<AggregateFunctionExpr>>,
    /// Arguments of each function.
    pub arguments: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    /// Condition of each function (`FILTER (WHERE …)`).
    pub conditions: Vec<Option<Arc<dyn PhysicalExpr>>>,
    /// Whether to give final values instead of states for another aggregation to merge.
    pub finish: bool,
    pub keys: Keys,
}

/// What rows are grouped by.
#[derive(Debug, Clone)]
pub(super) enum Keys {
    /// Nothing: one group, even of no rows.
    Nothing,
    /// What build rows determine: (look-up, expression over its build side).
    Builds(Vec<(usize, Arc<dyn PhysicalExpr>)>),
    /// Any expressions over the columns of the survivors' batch.
    Values(Vec<Arc<dyn PhysicalExpr>>),
}

/// What one function is computed of: its arguments and the rows it counts.
pub(super) struct Input {
    pub values: Vec<ArrayRef>,
    pub condition: Option<BooleanArray>,
}

impl Aggregates {
    /// The input of each function over the rows of a batch, computed as it is asked for.
    pub fn inputs<'a>(
        &'a self,
        batch: &'a RecordBatch,
    ) -> impl Iterator<Item = QueryResult<Input>> + 'a {
        let parts = self.arguments.iter().zip(&self.conditions);
        parts.map(|(arguments, condition)| {
            let condition = condition
                .as_ref()
                .map(|condition| -> QueryResult<BooleanArray> {
                    let array = condition.evaluate(batch)?.into_array(batch.num_rows())?;
                    Ok(as_boolean_array(&array)?.clone())
                });
            Ok(Input {
                values: evaluate(arguments, batch)?,
                condition: condition.transpose()?,
            })
        })
    }
}

/// The aggregates of many groups.
pub(super) struct GroupAccumulators {
    aggregates: Arc<Aggregates>,
    schema: SchemaRef,
    each: Vec<Box<dyn GroupsAccumulator>>,
}

impl GroupAccumulators {
    /// `schema` is the output's: the keys, then values or states.
    pub fn new(aggregates: Arc<Aggregates>, schema: SchemaRef) -> QueryResult<Self> {
        let functions = aggregates.functions.iter();
        let each = functions.map(|function| function.create_groups_accumulator());
        Ok(Self {
            each: each.collect::<QueryResult<_>>()?,
            aggregates,
            schema,
        })
    }

    /// Adds rows, each to the group of its number below `group_count`.
    pub fn update(
        &mut self,
        batch: &RecordBatch,
        group_of_row: &[usize],
        group_count: usize,
    ) -> QueryResult<()> {
        for (accumulator, input) in self.each.iter_mut().zip(self.aggregates.inputs(batch)) {
            let Input { values, condition } = input?;
            accumulator.update_batch(&values, group_of_row, condition.as_ref(), group_count)?;
        }
        Ok(())
    }

    /// Each row of a batch as a group of its own, to be merged with others above.
    pub fn pass(&self, keys: Vec<ArrayRef>, batch: &RecordBatch) -> QueryResult<RecordBatch> {
        let mut columns = keys;
        for (accumulator, input) in self.each.iter().zip(self.aggregates.inputs(batch)) {
            let Input { values, condition } = input?;
            columns.extend(accumulator.convert_to_state(&values, condition.as_ref())?);
        }
        output(&self.schema, columns, batch.num_rows())
    }

    /// Takes all groups out, with their keys: values or states.
    pub fn take(&mut self, keys: Vec<ArrayRef>, group_count: usize) -> QueryResult<RecordBatch> {
        let mut columns = keys;
        for accumulator in &mut self.each {
            if self.aggregates.finish {
                columns.push(accumulator.evaluate(EmitTo::All)?);
            } else {
                columns.extend(accumulator.state(EmitTo::All)?);
            }
        }
        output(&self.schema, columns, group_count)
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        self.each.iter().map(|each| each.size()).sum()
    }
}

/// The values of expressions for the rows of a batch.
pub(super) fn evaluate(
    exprs: &[Arc<dyn PhysicalExpr>],
    batch: &RecordBatch,
) -> QueryResult<Vec<ArrayRef>> {
    exprs
        .iter()
        .map(|expr| expr.evaluate(batch)?.into_array(batch.num_rows()))
        .collect()
}

/// A batch that may have rows but no columns.
pub(super) fn output(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    row_count: usize,
) -> QueryResult<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(row_count));
    Ok(RecordBatch::try_new_with_options(
        schema.clone(),
        columns,
        &options,
    )?)
}
