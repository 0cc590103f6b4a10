//! The aggregates of a star pipeline: tallies of words where they can be, otherwise DataFusion's own accumulators.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use super::narrow::Computation;
use super::rows::Rows;
use super::tallies::{Tallies, TallyPlan};
use super::tally::GroupNumbers;
use crate::look_ups::LookUpShelf;

/// What is computed per group, over the columns of the survivors' batch.
#[derive(Debug, Clone)]
pub(super) struct Aggregates {
    pub functions: Vec<Arc<AggregateFunctionExpr>>,
    /// Arguments of each function.
    pub arguments: Vec<Vec<Computation>>,
    /// Condition of each function (`FILTER (WHERE …)`).
    pub conditions: Vec<Option<Computation>>,
    /// Which of the functions are tallies.
    pub tallies: Arc<TallyPlan>,
    /// Whether to give final values instead of states for another aggregation to merge.
    pub finish: bool,
    /// Whether rows are expected to hardly meet others of their groups.
    pub hardly_groups: bool,
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
    Values(Vec<Computation>),
}

/// What one function is computed of: its arguments and the rows it counts.
pub(super) struct Input {
    pub values: Vec<ArrayRef>,
    pub condition: Option<BooleanArray>,
}

impl Aggregates {
    /// The functions that are not tallies.
    pub fn others(&self) -> impl Iterator<Item = usize> {
        (0..self.functions.len()).filter(|idx| !self.tallies.has(*idx))
    }

    /// The input of a function.
    pub fn input(&self, function: usize, rows: &mut Rows<'_>) -> QueryResult<Input> {
        let condition = self.conditions[function].as_ref();
        let condition = condition.map(|condition| rows.set(condition)).transpose()?;
        Ok(Input {
            values: arrays(&self.arguments[function], rows)?,
            condition: condition.map(|set| BooleanArray::new(set, None)),
        })
    }

    /// The columns of the output after the keys: tallies and what others give.
    fn columns(
        &self,
        tallies: &mut Tallies,
        group_count: usize,
        mut other: impl FnMut(usize) -> QueryResult<Vec<ArrayRef>>,
    ) -> QueryResult<Vec<ArrayRef>> {
        let mut columns = Vec::new();
        for (idx, function) in self.functions.iter().enumerate() {
            match (self.tallies.has(idx), self.finish) {
                (true, true) => columns.push(tallies.values(function, idx, group_count)?),
                (true, false) => columns.extend(tallies.states(idx, group_count)?),
                (false, _) => columns.extend(other(idx)?),
            }
        }
        Ok(columns)
    }
}

/// The aggregates of many groups.
pub(super) struct GroupAccumulators {
    aggregates: Arc<Aggregates>,
    schema: SchemaRef,
    tallies: Tallies,
    /// DataFusion's, by function.
    others: Vec<Option<Box<dyn GroupsAccumulator>>>,
    numbers: Vec<usize>,
}

impl GroupAccumulators {
    /// `schema` is the output's: the keys, then values or states.
    pub fn new(aggregates: Arc<Aggregates>, schema: SchemaRef) -> QueryResult<Self> {
        let mut others: Vec<_> = aggregates.functions.iter().map(|_| None).collect();
        for idx in aggregates.others() {
            others[idx] = Some(aggregates.functions[idx].create_groups_accumulator()?);
        }
        Ok(Self {
            tallies: Tallies::new(aggregates.tallies.clone(), false),
            others,
            aggregates,
            schema,
            numbers: Vec::new(),
        })
    }

    /// Adds rows, each to the group of its number below `group_count`.
    pub fn update(
        &mut self,
        rows: &mut Rows<'_>,
        group_of_row: &[u32],
        group_count: usize,
    ) -> QueryResult<()> {
        let groups = GroupNumbers::Each {
            numbers: group_of_row,
            count: group_count,
        };
        self.tallies.update(rows, groups)?;
        self.numbers.clear();
        for (idx, other) in self.others.iter_mut().enumerate() {
            let Some(other) = other else { continue };
            if self.numbers.is_empty() {
                self.numbers
                    .extend(group_of_row.iter().map(|number| *number as usize));
            }
            let Input { values, condition } = self.aggregates.input(idx, rows)?;
            other.update_batch(&values, &self.numbers, condition.as_ref(), group_count)?;
        }
        Ok(())
    }

    /// Each row of a batch as a group of its own, to be merged with others above.
    pub fn pass(&self, keys: Vec<ArrayRef>, rows: &mut Rows<'_>) -> QueryResult<RecordBatch> {
        let row_count = rows.count();
        let numbers: Vec<u32> = (0..row_count as u32).collect();
        let mut tallies = Tallies::new(self.aggregates.tallies.clone(), false);
        let groups = GroupNumbers::Each {
            numbers: &numbers,
            count: row_count,
        };
        tallies.update(rows, groups)?;
        let mut columns = keys;
        columns.extend(self.aggregates.columns(&mut tallies, row_count, |idx| {
            let Input { values, condition } = self.aggregates.input(idx, rows)?;
            match &self.others[idx] {
                Some(other) => other.convert_to_state(&values, condition.as_ref()),
                None => Ok(Vec::new()),
            }
        })?);
        output(&self.schema, columns, row_count)
    }

    /// Takes all groups out, with their keys: values or states.
    pub fn take(&mut self, keys: Vec<ArrayRef>, group_count: usize) -> QueryResult<RecordBatch> {
        let (mut columns, finish) = (keys, self.aggregates.finish);
        let others = &mut self.others;
        columns.extend(
            self.aggregates
                .columns(&mut self.tallies, group_count, |idx| {
                    match &mut others[idx] {
                        Some(other) if finish => Ok(vec![other.evaluate(EmitTo::All)?]),
                        Some(other) => other.state(EmitTo::All),
                        None => Ok(Vec::new()),
                    }
                })?,
        );
        self.tallies.clear();
        output(&self.schema, columns, group_count)
    }

    /// Has the tallies on a shelf; what DataFusion's functions keep stays in memory.
    pub fn place_on(&self, shelf: &LookUpShelf) {
        self.tallies.place_on(shelf);
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        let others = self.others.iter().flatten().map(|other| other.size());
        self.tallies.size_bytes() + others.sum::<usize>()
    }
}

/// Aggregation without grouping.
pub(super) struct OneGroup {
    aggregates: Arc<Aggregates>,
    schema: SchemaRef,
    tallies: Tallies,
    /// DataFusion's, by function.
    others: Vec<Option<Box<dyn Accumulator>>>,
}

impl OneGroup {
    pub fn new(aggregates: Arc<Aggregates>, schema: SchemaRef) -> QueryResult<Self> {
        let mut others: Vec<_> = aggregates.functions.iter().map(|_| None).collect();
        for idx in aggregates.others() {
            others[idx] = Some(aggregates.functions[idx].create_accumulator()?);
        }
        Ok(Self {
            tallies: Tallies::new(aggregates.tallies.clone(), true),
            others,
            aggregates,
            schema,
        })
    }

    pub fn add(&mut self, rows: &mut Rows<'_>) -> QueryResult<()> {
        self.tallies.update(rows, GroupNumbers::One)?;
        for (idx, other) in self.others.iter_mut().enumerate() {
            let Some(other) = other else { continue };
            let Input {
                mut values,
                condition,
            } = self.aggregates.input(idx, rows)?;
            if let Some(condition) = condition {
                values = values
                    .iter()
                    .map(|array| Ok(filter(array, &condition)?))
                    .collect::<QueryResult<_>>()?;
            }
            other.update_batch(&values)?;
        }
        Ok(())
    }

    pub fn take(&mut self) -> QueryResult<RecordBatch> {
        let (others, finish) = (&mut self.others, self.aggregates.finish);
        let columns = self.aggregates.columns(&mut self.tallies, 1, |idx| {
            let values = match &mut others[idx] {
                Some(other) if finish => vec![other.evaluate()?],
                Some(other) => other.state()?,
                None => Vec::new(),
            };
            values.iter().map(|value| value.to_array()).collect()
        })?;
        output(&self.schema, columns, 1)
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        let others = self.others.iter().flatten().map(|other| other.size());
        self.tallies.size_bytes() + others.sum::<usize>()
    }
}

/// The values of expressions for the rows of a batch.
pub(super) fn arrays(exprs: &[Computation], rows: &mut Rows<'_>) -> QueryResult<Vec<ArrayRef>> {
    exprs.iter().map(|expr| rows.array(expr)).collect()
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
