//! What an `AggregateExec` says, in the words of `crates/operators`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
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

/// An aggregation, and the columns of its input.
pub(super) struct Spec {
    pub aggregate: AggregateSpec,
    pub columns: Arc<Columns>,
}

impl Spec {
    /// Or why an aggregation is left to DataFusion.
    pub fn of(exec: &AggregateExec) -> QueryResult<Result<Self, Reason>> {
        let phase = match exec.mode() {
            AggregateMode::Final | AggregateMode::FinalPartitioned => Phase::Final,
            AggregateMode::Single | AggregateMode::SinglePartitioned => Phase::Single,
            AggregateMode::Partial => Phase::Partial,
            AggregateMode::PartialReduce => return Ok(Err("it merges groups for others to merge")),
        };
        let group_by = exec.group_expr();
        let has_orders = || {
            exec.aggr_expr()
                .iter()
                .any(|one| !one.order_bys().is_empty())
        };
        if group_by.is_empty() {
            return Ok(Err("it has one group"));
        }
        if !group_by.is_single() {
            return Ok(Err("it has grouping sets"));
        }
        if *exec.input_order_mode() != InputOrderMode::Linear || has_orders() {
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
        let keys: Vec<usize> = number_all(&group_by.input_exprs())?;
        let arguments = aggregate_expressions(exec.aggr_expr(), exec.mode(), keys.len())?;
        let mut aggregates = Vec::with_capacity(arguments.len());
        for ((function, arguments), filter) in exec
            .aggr_expr()
            .iter()
            .zip(arguments)
            .zip(exec.filter_expr())
        {
            let filter = filter.as_ref().filter(|_| phase != Phase::Final);
            let filter: Vec<usize> = number_all(&filter.cloned().into_iter().collect::<Vec<_>>())?;
            aggregates.push(Aggregate {
                function: Arc::new(Function(function.clone())),
                columns: number_all(&arguments)?,
                filter: filter.first().copied(),
                states: function.state_fields()?,
            });
        }
        let mut types = keys.iter().map(|&key| columns.data_type(key));
        // DataFusion's groups tell zero from minus zero.
        if types.clone().any(|key| key.is_floating()) {
            return Ok(Err("a key is a floating-point number"));
        }
        if !are_comparable(&mut types) {
            return Ok(Err("a type that cannot be compared as bytes"));
        }
        let aggregate = AggregateSpec {
            input: columns.schema().clone(),
            keys,
            aggregates,
            phase,
            schema: exec.schema(),
        };
        Ok(Ok(Self {
            aggregate,
            columns: Arc::new(columns),
        }))
    }

    /// Whether keys are a few words, or one column of texts.
    pub fn has_quick_keys(&self) -> bool {
        let types = self.aggregate.keys.iter().map(|&key| {
            let field = self.aggregate.input.field(key);
            (field.data_type().clone(), field.is_nullable())
        });
        let numbers = GroupNumbers::try_new(&types.collect::<Vec<_>>());
        numbers.is_ok_and(|numbers| numbers.is_quick())
    }
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

fn failed(error: DataFusionError) -> OperatorError {
    ArrowError::ExternalError(Box::new(error)).into()
}
