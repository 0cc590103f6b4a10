//! What becomes of survivors that are aggregated, by what they are grouped by: nothing, build rows (numbered
//! beforehand, see `groups`), or any values (numbered by DataFusion's own hash tables as they come).
//!
//! The aggregates are DataFusion's accumulators throughout: their NULL, overflow and type rules are its rules.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::cast::as_boolean_array;
use datafusion::error::Result as QueryResult;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

use super::groups::{Aggregates, GroupCodes, GroupTable, Keys};

/// The groups one worker has seen.
pub(super) enum Groups {
    One(OneGroup),
    Codes(GroupTable),
    Values(ValueGroups),
}

impl Groups {
    pub fn new(
        codes: Option<&Arc<GroupCodes>>,
        aggregates: &Arc<Aggregates>,
        schema: &SchemaRef,
        context: &TaskContext,
    ) -> QueryResult<Self> {
        let (aggregates, schema) = (aggregates.clone(), schema.clone());
        Ok(match (&aggregates.keys, codes) {
            (Keys::Builds(_), Some(codes)) => {
                Self::Codes(GroupTable::new(codes.clone(), aggregates, schema)?)
            }
            (Keys::Values(_), _) => Self::Values(ValueGroups::new(aggregates, schema, context)?),
            _ => Self::One(OneGroup::new(aggregates, schema)?),
        })
    }

    /// Adds rows: `slots` by look-up, and the columns the arguments need. What is not worth grouping here comes
    /// back as states.
    pub fn add(
        &mut self,
        slots: &[Vec<u32>],
        batch: &RecordBatch,
    ) -> QueryResult<Option<RecordBatch>> {
        match self {
            Self::One(one) => one.add(batch).map(|()| None),
            Self::Codes(table) => table.add(slots, batch).map(|()| None),
            Self::Values(values) => values.add(batch),
        }
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::One(one) => one.accumulators.iter().map(|each| each.size()).sum(),
            Self::Codes(table) => table.size_bytes(),
            Self::Values(values) => values.size_bytes(),
        }
    }

    /// Takes the groups out early, to be merged with others above. `None` if that frees nothing.
    pub fn take_early(&mut self) -> QueryResult<Option<RecordBatch>> {
        match self {
            Self::One(_) => Ok(None),
            Self::Codes(table) => table.take().map(Some),
            Self::Values(values) => values.take().map(Some),
        }
    }

    /// Takes all groups out when there are no more rows.
    pub fn finish(&mut self) -> QueryResult<Option<RecordBatch>> {
        match self {
            Self::One(one) => one.take().map(Some),
            Self::Codes(table) if table.group_count() > 0 => table.take().map(Some),
            Self::Values(values) if !values.values.is_empty() => values.take().map(Some),
            _ => Ok(None),
        }
    }
}

/// Aggregation without grouping.
pub(super) struct OneGroup {
    aggregates: Arc<Aggregates>,
    schema: SchemaRef,
    accumulators: Vec<Box<dyn Accumulator>>,
}

impl OneGroup {
    fn new(aggregates: Arc<Aggregates>, schema: SchemaRef) -> QueryResult<Self> {
        let accumulators = aggregates
            .functions
            .iter()
            .map(|function| function.create_accumulator())
            .collect::<QueryResult<_>>()?;
        Ok(Self {
            aggregates,
            schema,
            accumulators,
        })
    }

    fn add(&mut self, batch: &RecordBatch) -> QueryResult<()> {
        let aggregates = self.aggregates.clone();
        let parts = aggregates.arguments.iter().zip(&aggregates.conditions);
        for (accumulator, (arguments, condition)) in self.accumulators.iter_mut().zip(parts) {
            let mut values = evaluate(arguments, batch)?;
            if let Some(condition) = condition {
                let condition = evaluate_condition(condition, batch)?;
                values = values
                    .iter()
                    .map(|array| Ok(filter(array, &condition)?))
                    .collect::<QueryResult<_>>()?;
            }
            accumulator.update_batch(&values)?;
        }
        Ok(())
    }

    fn take(&mut self) -> QueryResult<RecordBatch> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for accumulator in &mut self.accumulators {
            if self.aggregates.finish {
                columns.push(accumulator.evaluate()?.to_array()?);
            } else {
                for state in accumulator.state()? {
                    columns.push(state.to_array()?);
                }
            }
        }
        output(&self.schema, columns, 1)
    }
}

/// Aggregation by values that are found as the rows come.
pub(super) struct ValueGroups {
    aggregates: Arc<Aggregates>,
    schema: SchemaRef,
    values: Box<dyn GroupValues>,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    group_of_row: Vec<usize>,
    row_count: usize,
    /// Rows after which grouping here must have paid, and the share of groups in rows above which it has not.
    probe: (usize, f64),
    /// Whether rows are handed on as they are because nearly each is a group of its own.
    passing: bool,
}

impl ValueGroups {
    fn new(
        aggregates: Arc<Aggregates>,
        schema: SchemaRef,
        context: &TaskContext,
    ) -> QueryResult<Self> {
        let accumulators = aggregates
            .functions
            .iter()
            .map(|function| function.create_groups_accumulator())
            .collect::<QueryResult<_>>()?;
        let key_count = match &aggregates.keys {
            Keys::Values(keys) => keys.len(),
            _ => 0,
        };
        let keys = Arc::new(Schema::new(schema.fields()[..key_count].to_vec()));
        let execution = &context.session_config().options().execution;
        Ok(Self {
            values: new_group_values(keys, &GroupOrdering::None)?,
            aggregates,
            schema,
            accumulators,
            group_of_row: Vec::new(),
            row_count: 0,
            probe: (
                execution.skip_partial_aggregation_probe_rows_threshold,
                execution.skip_partial_aggregation_probe_ratio_threshold,
            ),
            passing: false,
        })
    }

    fn add(&mut self, batch: &RecordBatch) -> QueryResult<Option<RecordBatch>> {
        let Keys::Values(keys) = &self.aggregates.keys else {
            return Ok(None);
        };
        let keys = evaluate(keys, batch)?;
        if self.passing {
            return self.pass(keys, batch).map(Some);
        }
        self.values.intern(&keys, &mut self.group_of_row)?;
        let groups = self.values.len();
        let aggregates = self.aggregates.clone();
        let parts = aggregates.arguments.iter().zip(&aggregates.conditions);
        for (accumulator, (arguments, condition)) in self.accumulators.iter_mut().zip(parts) {
            let values = evaluate(arguments, batch)?;
            let condition = condition
                .as_ref()
                .map(|condition| evaluate_condition(condition, batch))
                .transpose()?;
            accumulator.update_batch(&values, &self.group_of_row, condition.as_ref(), groups)?;
        }
        self.row_count += batch.num_rows();
        let (rows, share) = self.probe;
        let useless = self.row_count >= rows && groups as f64 > share * self.row_count as f64;
        if useless && !self.aggregates.finish {
            self.passing = true;
            return self.take().map(Some);
        }
        Ok(None)
    }

    /// Each row as a group of its own.
    fn pass(&self, keys: Vec<ArrayRef>, batch: &RecordBatch) -> QueryResult<RecordBatch> {
        let mut columns = keys;
        let parts = self.aggregates.arguments.iter();
        let parts = parts.zip(&self.aggregates.conditions);
        for (accumulator, (arguments, condition)) in self.accumulators.iter().zip(parts) {
            let values = evaluate(arguments, batch)?;
            let condition = condition
                .as_ref()
                .map(|condition| evaluate_condition(condition, batch))
                .transpose()?;
            columns.extend(accumulator.convert_to_state(&values, condition.as_ref())?);
        }
        output(&self.schema, columns, batch.num_rows())
    }

    fn size_bytes(&self) -> usize {
        let accumulators: usize = self.accumulators.iter().map(|each| each.size()).sum();
        self.values.size() + accumulators + self.group_of_row.capacity() * 8
    }

    fn take(&mut self) -> QueryResult<RecordBatch> {
        let row_count = self.values.len();
        let mut columns = self.values.emit(EmitTo::All)?;
        for accumulator in &mut self.accumulators {
            if self.aggregates.finish {
                columns.push(accumulator.evaluate(EmitTo::All)?);
            } else {
                columns.extend(accumulator.state(EmitTo::All)?);
            }
        }
        self.values.clear_shrink(0);
        self.group_of_row = Vec::new();
        output(&self.schema, columns, row_count)
    }
}

fn evaluate(exprs: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> QueryResult<Vec<ArrayRef>> {
    exprs
        .iter()
        .map(|expr| expr.evaluate(batch)?.into_array(batch.num_rows()))
        .collect()
}

fn evaluate_condition(
    condition: &Arc<dyn PhysicalExpr>,
    batch: &RecordBatch,
) -> QueryResult<BooleanArray> {
    let array = condition.evaluate(batch)?.into_array(batch.num_rows())?;
    Ok(as_boolean_array(&array)?.clone())
}

fn output(
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
