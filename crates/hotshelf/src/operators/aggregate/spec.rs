//! What an `AggregateExec` says, in the words of `crates/operators`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, new_null_array};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, aggregate_expressions};
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::GroupsAccumulatorAdapter;
use hotshelf_operators::OperatorError;
use hotshelf_operators::aggregate::{
    Accumulate, Aggregate, AggregateFunction, AggregateSpec, GroupNumbers, Phase,
};

use super::super::Reason;
use super::super::columns::{Columns, are_comparable};
use super::super::work;
use super::sets::Sets;

/// An aggregation, and the columns of its input.
pub(super) struct Spec {
    pub aggregate: AggregateSpec,
    pub columns: Arc<Columns>,
    pub sets: Option<Sets>,
    /// Of each function, as rows have them; where there are sets.
    argument_types: Vec<Vec<DataType>>,
    carried: Option<Carried>,
}

/// Keys that depend on others, so that groups carry them: behind the results or states of functions.
struct Carried {
    /// By index among the keys.
    keys: Vec<usize>,
    /// The columns of the output, and the index of each in what is aggregated.
    schema: SchemaRef,
    places: Vec<usize>,
}

impl Carried {
    fn of(keys: Vec<usize>, schema: &SchemaRef) -> Self {
        let others = (0..schema.fields().len()).filter(|column| !keys.contains(column));
        let inside: Vec<usize> = others.chain(keys.iter().copied()).collect();
        let mut places = vec![0; inside.len()];
        for (place, column) in inside.into_iter().enumerate() {
            places[column] = place;
        }
        Self {
            keys,
            schema: schema.clone(),
            places,
        }
    }

    /// The columns of what is aggregated.
    fn schema_inside(&self) -> SchemaRef {
        let mut fields: Vec<_> = self.places.iter().zip(self.schema.fields()).collect();
        fields.sort_by_key(|(place, _)| **place);
        let fields = fields.into_iter().map(|(_, field)| field.clone());
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn as_output(&self, groups: &RecordBatch) -> QueryResult<RecordBatch> {
        let columns = self.places.iter();
        let columns = columns.map(|place| groups.column(*place).clone());
        Ok(RecordBatch::try_new(
            self.schema.clone(),
            columns.collect(),
        )?)
    }
}

impl Spec {
    /// Or why an aggregation is left to DataFusion.
    pub fn of(exec: &AggregateExec) -> QueryResult<Result<Self, Reason>> {
        let phase = phase_of(*exec.mode());
        let group_by = exec.group_expr();
        let mut functions = exec.aggr_expr().iter();
        let has_orders = functions.any(|function| !function.order_bys().is_empty());
        if group_by.is_empty() {
            return Ok(Err("it has one group"));
        }
        if *exec.input_order_mode() != InputOrderMode::Linear || has_orders {
            return Ok(Err("it uses or keeps an order"));
        }
        if exec.limit_options().is_some() {
            return Ok(Err("it keeps few first groups"));
        }
        let mut columns = Columns::of(exec.input().schema());
        let mut number_all = |exprs: &[Arc<dyn PhysicalExpr>]| {
            let numbers = exprs.iter().map(|expr| columns.number_of(expr));
            numbers.collect::<QueryResult<Vec<usize>>>()
        };
        let keys = match group_by.is_single() {
            true => number_all(&group_by.input_exprs())?,
            false => Vec::new(),
        };
        let key_count = group_by.num_group_exprs();
        let arguments = aggregate_expressions(exec.aggr_expr(), exec.mode(), key_count)?;
        let functions = exec.aggr_expr().iter().zip(exec.filter_expr());
        let mut aggregates = Vec::with_capacity(arguments.len());
        for ((function, filter), arguments) in functions.zip(arguments) {
            let filter = filter.iter().filter(|_| !phase.reads_states());
            let filter = number_all(&filter.cloned().collect::<Vec<_>>())?;
            aggregates.push(Aggregate {
                function: Arc::new(Function(function.clone())),
                columns: number_all(&arguments)?,
                filter: filter.first().copied(),
                states: function.state_fields()?,
            });
        }
        let sets = Sets::of(exec, columns.schema());
        let (input, keys) = match &sets {
            Some(sets) => (sets.schema().clone(), sets.keys().collect()),
            None => (columns.schema().clone(), keys),
        };
        let mut types = keys.iter().map(|&key| input.field(key).data_type());
        // DataFusion's groups tell zero from minus zero.
        if types.clone().any(|key| key.is_floating()) {
            return Ok(Err("a key is a floating-point number"));
        }
        if !are_comparable(&mut types) {
            return Ok(Err("a type that cannot be compared as bytes"));
        }
        let aggregate = AggregateSpec {
            input: input.clone(),
            keys,
            aggregates,
            phase,
            schema: exec.schema(),
        };
        Ok(Ok(Self {
            aggregate,
            columns: Arc::new(columns),
            argument_types: match &sets {
                Some(_) => argument_types(exec)?,
                None => Vec::new(),
            },
            sets,
            carried: None,
        }))
    }

    /// The same where rows that agree in the other keys agree in these, by index: groups are not found by them. A key
    /// of a type that groups do not carry remains one. `None`: all of them do, or there are sets.
    pub fn carrying(&self, keys: &[usize]) -> Option<Self> {
        let spec = &self.aggregate;
        let carry = |key: &usize| {
            let column = *spec.keys.get(*key)?;
            Aggregate::carrying(column, spec.input.field(column).data_type())
        };
        let carried = keys.iter().filter_map(|key| Some((*key, carry(key)?)));
        let (keys, carry_all): (Vec<usize>, Vec<Aggregate>) = carried.unzip();
        if keys.is_empty() || self.sets.is_some() || self.carried.is_some() {
            return None;
        }
        let found_by = spec.keys.iter().enumerate();
        let found_by = found_by.filter(|(key, _)| !keys.contains(key));
        let found_by = found_by.map(|(_, column)| *column).collect();
        let carried = Carried::of(keys, &spec.schema);
        Some(Self {
            aggregate: AggregateSpec {
                input: spec.input.clone(),
                keys: found_by,
                aggregates: spec.aggregates.iter().cloned().chain(carry_all).collect(),
                phase: spec.phase,
                schema: carried.schema_inside(),
            },
            columns: self.columns.clone(),
            sets: None,
            argument_types: Vec::new(),
            carried: Some(carried),
        })
    }

    /// The keys that groups carry, by index.
    pub fn carried(&self) -> &[usize] {
        self.carried.as_ref().map_or(&[], |carried| &carried.keys)
    }

    /// Groups with their columns in the order of the output.
    pub fn as_output(&self, groups: RecordBatch) -> QueryResult<RecordBatch> {
        match &self.carried {
            Some(carried) => carried.as_output(&groups),
            None => Ok(groups),
        }
    }

    /// Whether there is a group of all rows, also of none.
    pub fn has_empty_set(&self) -> bool {
        self.sets.as_ref().is_some_and(|sets| sets.has_empty_set())
    }

    /// Whether a row becomes several.
    pub fn has_several_sets(&self) -> bool {
        self.sets.as_ref().is_some_and(|sets| sets.count() > 1)
    }

    /// Gives rows to `take`, with the keys of each set if there are several.
    pub fn give(
        &self,
        batches: Vec<RecordBatch>,
        mut take: impl FnMut(RecordBatch) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        match &self.sets {
            Some(sets) => batches
                .iter()
                .try_for_each(|batch| sets.give(batch, &mut take)),
            None => batches.into_iter().try_for_each(take),
        }
    }

    /// The groups of no rows: those of the empty sets.
    pub fn of_no_rows(&self) -> QueryResult<RecordBatch> {
        let spec = &self.aggregate;
        let mut columns = match &self.sets {
            Some(sets) => sets.keys_of_empty_sets()?,
            None => return Ok(RecordBatch::new_empty(spec.schema.clone())),
        };
        let count = columns.first().map_or(0, |keys| keys.len());
        // Rows that do not count: of no rows at all some functions take it that each group has one.
        let (groups, counts): (Vec<usize>, _) = ((0..count).collect(), vec![false; count].into());
        for (aggregate, types) in spec.aggregates.iter().zip(&self.argument_types) {
            let nulls = types.iter().map(|value| new_null_array(value, count));
            let answers = || {
                let mut accumulator = aggregate.function.accumulator()?;
                let nulls: Vec<ArrayRef> = nulls.collect();
                accumulator.update(&nulls, Some(&counts), &groups, count)?;
                match spec.phase.writes_states() {
                    true => accumulator.state(),
                    false => Ok(vec![accumulator.evaluate()?]),
                }
            };
            columns.extend(answers().map_err(work::failed)?);
        }
        Ok(RecordBatch::try_new(spec.schema.clone(), columns)?)
    }

    /// Whether keys are a few words, or have one column of texts.
    pub fn has_quick_keys(&self) -> bool {
        let types = self.aggregate.keys.iter().map(|&key| {
            let field = self.aggregate.input.field(key);
            (field.data_type().clone(), field.is_nullable())
        });
        let numbers = GroupNumbers::try_new(&types.collect::<Vec<_>>());
        numbers.is_ok_and(|numbers| numbers.is_quick())
    }
}

fn phase_of(mode: AggregateMode) -> Phase {
    match mode {
        AggregateMode::Final | AggregateMode::FinalPartitioned => Phase::Final,
        AggregateMode::Single | AggregateMode::SinglePartitioned => Phase::Single,
        AggregateMode::Partial => Phase::Partial,
        AggregateMode::PartialReduce => Phase::Reduce,
    }
}

/// The types of each function's arguments in rows, whatever the phase.
fn argument_types(exec: &AggregateExec) -> QueryResult<Vec<Vec<DataType>>> {
    let rows = exec.input_schema();
    let functions = exec.aggr_expr().iter();
    let types = functions.map(|function| {
        let arguments = function.expressions().into_iter();
        arguments
            .map(|argument| argument.data_type(&rows))
            .collect()
    });
    types.collect()
}

/// A function of DataFusion's.
struct Function(Arc<AggregateFunctionExpr>);

impl AggregateFunction for Function {
    fn accumulator(&self) -> Result<Box<dyn Accumulate>, OperatorError> {
        let accumulator: Box<dyn GroupsAccumulator> = if self.0.groups_accumulator_supported() {
            self.0.create_groups_accumulator().map_err(failed)?
        } else {
            let function = self.0.clone();
            let each = move || function.create_accumulator();
            Box::new(GroupsAccumulatorAdapter::new(each))
        };
        Ok(Box::new(Accumulator(accumulator)))
    }
}

struct Accumulator(Box<dyn GroupsAccumulator>);

impl Accumulate for Accumulator {
    fn update(
        &mut self,
        arguments: &[ArrayRef],
        filter: Option<&BooleanArray>,
        groups: &[usize],
        group_count: usize,
    ) -> Result<(), OperatorError> {
        let updated = self.0.update_batch(arguments, groups, filter, group_count);
        updated.map_err(failed)
    }

    fn merge(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<(), OperatorError> {
        let merged = self.0.merge_batch(states, groups, group_count);
        merged.map_err(failed)
    }

    fn state(&mut self) -> Result<Vec<ArrayRef>, OperatorError> {
        self.0.state(EmitTo::All).map_err(failed)
    }

    fn evaluate(&mut self) -> Result<ArrayRef, OperatorError> {
        self.0.evaluate(EmitTo::All).map_err(failed)
    }

    fn bytes(&self) -> u64 {
        self.0.size() as u64
    }
}

pub(super) fn failed(error: DataFusionError) -> OperatorError {
    ArrowError::ExternalError(Box::new(error)).into()
}
