//! Aggregates the survivors, by what they are grouped by: nothing, build rows (numbered
//! beforehand, see `groups`), or any values (numbered by DataFusion's own hash tables as they come).

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{filter, partition, take};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::error::Result as QueryResult;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Accumulator, EmitTo};
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

use super::accumulate::{Aggregates, GroupAccumulators, Input, Keys, evaluate, output};
use super::groups::{GroupCodes, GroupTable};

/// Rows that a run of equal keys must have on average to be worth finding.
const RUN_ROWS_MIN: usize = 2;
/// Where keys came without runs, they are looked for again after this many batches.
const BATCHES_WITHOUT_RUNS: usize = 15;

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

    /// Adds rows: `places` by look-up, and the columns the arguments need. What is not worth grouping here comes
    /// back as states.
    pub fn add(
        &mut self,
        places: &[Vec<u32>],
        batch: &RecordBatch,
    ) -> QueryResult<Option<RecordBatch>> {
        match self {
            Self::One(one) => one.add(batch).map(|()| None),
            Self::Codes(table) => table.add(places, batch).map(|()| None),
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
        let inputs = self.aggregates.inputs(batch);
        for (accumulator, input) in self.accumulators.iter_mut().zip(inputs) {
            let Input {
                mut values,
                condition,
            } = input?;
            if let Some(condition) = condition {
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
    values: Box<dyn GroupValues>,
    accumulators: GroupAccumulators,
    group_of_row: Vec<usize>,
    group_of_run: Vec<usize>,
    /// Batches to go before runs of equal keys are looked for again, where there were none.
    batches_without_runs: usize,
    row_count: usize,
    /// Rows after which grouping here must have paid,
    trial_rows: usize,
    /// and the share of groups in rows above which it has not.
    trial_share_max: f64,
    /// Whether rows are handed on as they are because nearly each is a group of its own.
    passing: bool,
}

impl ValueGroups {
    fn new(
        aggregates: Arc<Aggregates>,
        schema: SchemaRef,
        context: &TaskContext,
    ) -> QueryResult<Self> {
        let key_count = match &aggregates.keys {
            Keys::Values(keys) => keys.len(),
            _ => 0,
        };
        let keys = Arc::new(Schema::new(schema.fields()[..key_count].to_vec()));
        let execution = &context.session_config().options().execution;
        Ok(Self {
            values: new_group_values(keys, &GroupOrdering::None)?,
            accumulators: GroupAccumulators::new(aggregates.clone(), schema)?,
            aggregates,
            group_of_row: Vec::new(),
            group_of_run: Vec::new(),
            batches_without_runs: 0,
            row_count: 0,
            trial_rows: execution.skip_partial_aggregation_probe_rows_threshold,
            trial_share_max: execution.skip_partial_aggregation_probe_ratio_threshold,
            passing: false,
        })
    }

    fn add(&mut self, batch: &RecordBatch) -> QueryResult<Option<RecordBatch>> {
        let Keys::Values(keys) = &self.aggregates.keys else {
            return Ok(None);
        };
        let keys = evaluate(keys, batch)?;
        if self.passing {
            return self.accumulators.pass(keys, batch).map(Some);
        }
        self.number(&keys)?;
        let groups = self.values.len();
        self.accumulators
            .update(batch, &self.group_of_row, groups)?;
        self.row_count += batch.num_rows();
        let groups_max = self.trial_share_max * self.row_count as f64;
        let is_useless = self.row_count >= self.trial_rows && groups as f64 > groups_max;
        if is_useless && !self.aggregates.finish {
            self.passing = true;
            return self.take().map(Some);
        }
        Ok(None)
    }

    /// Numbers the group of each row. Tables are often sorted by what they are grouped by, or by what it depends
    /// on: rows that follow each other with equal keys are looked for in the hash table once.
    fn number(&mut self, keys: &[ArrayRef]) -> QueryResult<()> {
        if self.batches_without_runs > 0 {
            self.batches_without_runs -= 1;
            return self.values.intern(keys, &mut self.group_of_row);
        }
        let runs = partition(keys)?.ranges();
        let rows = runs.last().map_or(0, |run| run.end);
        if runs.len() * RUN_ROWS_MIN > rows {
            self.batches_without_runs = BATCHES_WITHOUT_RUNS;
            return self.values.intern(keys, &mut self.group_of_row);
        }
        let starts: UInt32Array = runs.iter().map(|run| run.start as u32).collect();
        let firsts = keys.iter().map(|key| Ok(take(key, &starts, None)?));
        let firsts = firsts.collect::<QueryResult<Vec<_>>>()?;
        self.values.intern(&firsts, &mut self.group_of_run)?;
        self.group_of_row.clear();
        for (run, group) in runs.iter().zip(&self.group_of_run) {
            self.group_of_row
                .extend(std::iter::repeat_n(*group, run.len()));
        }
        Ok(())
    }

    fn size_bytes(&self) -> usize {
        let numbers = self.group_of_row.capacity() + self.group_of_run.capacity();
        self.values.size() + self.accumulators.size_bytes() + numbers * size_of::<usize>()
    }

    fn take(&mut self) -> QueryResult<RecordBatch> {
        let group_count = self.values.len();
        let keys = self.values.emit(EmitTo::All)?;
        self.values.clear_shrink(0);
        self.group_of_row = Vec::new();
        self.group_of_run = Vec::new();
        self.accumulators.take(keys, group_count)
    }
}
