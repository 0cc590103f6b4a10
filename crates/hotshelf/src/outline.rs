//! Physical plans as far as they are the same whenever a query is asked: kept with its optimized plan, and finished
//! each time for what is in memory by then.
//!
//! Each run has its own copy, as operators keep what a run finds out: build sides, bounds that are passed to scans,
//! counters. A plan with an operator that is not known to come fresh has no outline.

mod values;

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result as QueryResult;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::scalar_subquery::{ScalarSubqueryExec, ScalarSubqueryLink};
use datafusion::physical_plan::sorts::sort::SortExec;

use crate::error::{Error, Result};
use crate::kept_plans::{KeptPlan, Outline};
use crate::operators::StoredValuesExec;
use crate::plan::{early_rules, finished, late_rules};
use crate::scan::TableScan;
use crate::session::{interrupt_of, plan_physically, ready};
use crate::shared::{self, SharedExec, SharedRows};
use values::{Values, has_value};

/// Operators that come fresh when they are given their inputs again, or are made to in [`Copying`], and leaves that
/// keep nothing.
const KNOWN: [&str; 23] = [
    "AggregateExec",
    "BoundedWindowAggExec",
    "CoalescePartitionsExec",
    "CrossJoinExec",
    "EmptyExec",
    "FilterExec",
    "ForgetExec",
    "GlobalLimitExec",
    "HashJoinExec",
    "InterleaveExec",
    "LocalLimitExec",
    "NestedLoopJoinExec",
    "PlaceholderRowExec",
    "ProjectionExec",
    "RepartitionExec",
    "ScalarSubqueryExec",
    "SortExec",
    "SortExec(TopK)",
    "SortPreservingMergeExec",
    "StoredValuesExec",
    "UnionExec",
    "UnnestExec",
    "WindowAggExec",
];

/// The plan of a query that was asked before.
pub(crate) async fn plan_by_outline(
    query: &KeptPlan,
    state: &SessionState,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = match query.outline.get() {
        Some(known) => {
            let plan = known.as_ref().map(|outline| finish(outline, state));
            plan.transpose().map_err(Error::from_query)?
        }
        None => {
            let made = of(&query.optimized, state).await;
            let made = made.map_err(Error::from_query)?;
            let plan = made.as_ref().and_then(|made| finish(made, state).ok());
            // One that cannot be finished does not serve.
            query
                .outline
                .get_or_init(|| made.filter(|_| plan.is_some()));
            plan
        }
    };
    match plan {
        Some(plan) => ready(plan, &interrupt_of(state)).map_err(Error::from_query),
        None => plan_physically(&query.optimized, state).await,
    }
}

/// None if the plan has to be made anew each time.
pub(crate) async fn of(
    optimized: &LogicalPlan,
    state: &SessionState,
) -> QueryResult<Option<Outline>> {
    if matches!(optimized, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_)) {
        return Ok(None);
    }
    let rules = state.physical_optimizers();
    let early = SessionStateBuilder::new_from_existing(state.clone())
        .with_physical_optimizer_rules(early_rules(rules).to_vec())
        .build();
    let plan = shared::plan_early(optimized, &early, late_rules(rules).to_vec()).await?;
    Ok(comes_fresh(&plan)?.then_some(Outline(plan)))
}

/// A plan to be run once.
pub(crate) fn finish(
    outline: &Outline,
    state: &SessionState,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    Copying::of(state).finished_copy(&outline.0)
}

/// Whether copies of a plan share nothing that changes while one of them runs.
fn comes_fresh(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<bool> {
    if let Some(shared) = plan.downcast_ref::<SharedExec>() {
        return comes_fresh(&shared.rows().plan);
    }
    let has_place = || ["FilterExec", "ProjectionExec"].contains(&plan.name());
    let is_known = KNOWN.contains(&plan.name()) || TableScan::of(plan).is_some();
    if !is_known || (has_value(plan)? && !has_place()) {
        return Ok(false);
    }
    for input in plan.children() {
        if !comes_fresh(input)? {
            return Ok(false);
        }
    }
    Ok(true)
}

struct Copying<'a> {
    state: &'a SessionState,
    values: Values,
    /// Parts that have been copied, by number.
    shared: HashMap<usize, Arc<SharedRows>>,
}

impl<'a> Copying<'a> {
    fn of(state: &'a SessionState) -> Self {
        Self {
            state,
            values: Values::default(),
            shared: HashMap::new(),
        }
    }

    fn finished_copy(
        &mut self,
        outline: &Arc<dyn ExecutionPlan>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let copy = self.copy(outline)?;
        let late = late_rules(self.state.physical_optimizers());
        finished(copy, late, self.state.config_options())
    }

    fn copy(&mut self, plan: &Arc<dyn ExecutionPlan>) -> QueryResult<Arc<dyn ExecutionPlan>> {
        if let Some(shared) = plan.downcast_ref::<SharedExec>() {
            let rows = self.copied_rows(shared.rows())?;
            return Ok(Arc::new(SharedExec::new(rows)));
        }
        if let Some(scan) = TableScan::of(plan) {
            return Ok(DataSourceExec::from_data_source(scan.anew()));
        }
        if let Some(values) = plan.downcast_ref::<StoredValuesExec>() {
            return Ok(Arc::new(values.anew()));
        }
        if let Some(subqueries) = plan.downcast_ref::<ScalarSubqueryExec>() {
            return self.with_subqueries(subqueries);
        }
        let inputs = plan.children().into_iter().map(|input| self.copy(input));
        let inputs: Vec<_> = inputs.collect::<QueryResult<_>>()?;
        if inputs.is_empty() {
            return Ok(Arc::clone(plan));
        }
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            let builder = join.builder().with_new_children(inputs)?;
            return builder.reset_state().build_exec();
        }
        if let Some(aggregate) = plan.downcast_ref::<AggregateExec>()
            && !plan.dynamic_expressions_produced().is_empty()
            && let [input] = &inputs[..]
        {
            return with_new_bounds(aggregate, input);
        }
        if let [input] = &inputs[..]
            && !self.values.is_empty()
            && has_value(plan)?
            && let Some(copy) = self.values.copied(plan, input)?
        {
            return Ok(copy);
        }
        // Also over the same leaf: what it keeps is dropped.
        let properties = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        let copy = Arc::clone(plan).replace_children(inputs, properties)?;
        Ok(match copy.downcast_ref::<SortExec>() {
            // What it tells scans begins anew with its limit.
            Some(sort) if sort.fetch().is_some() => {
                Arc::new(sort.with_fetch(None).with_fetch(sort.fetch()))
            }
            _ => copy,
        })
    }

    fn with_subqueries(
        &mut self,
        plan: &ScalarSubqueryExec,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        // What uses the values is copied after.
        let results = self.values.add(plan);
        let links = plan.subqueries().iter().map(|link| {
            Ok(ScalarSubqueryLink {
                plan: self.copy(&link.plan)?,
                index: link.index,
            })
        });
        let links = links.collect::<QueryResult<_>>()?;
        let input = self.copy(plan.input())?;
        Ok(Arc::new(ScalarSubqueryExec::new(input, links, results)))
    }

    fn copied_rows(&mut self, rows: &SharedRows) -> QueryResult<Arc<SharedRows>> {
        if let Some(copied) = self.shared.get(&rows.number) {
            return Ok(Arc::clone(copied));
        }
        let plan = self.finished_copy(&rows.plan)?;
        let copied = Arc::new(rows.of_plan(ready(plan, &interrupt_of(self.state))?));
        self.shared.insert(rows.number, Arc::clone(&copied));
        Ok(copied)
    }
}

/// An aggregation that may tell scans which rows it still needs.
fn with_new_bounds(
    aggregate: &AggregateExec,
    input: &Arc<dyn ExecutionPlan>,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let anew = AggregateExec::try_new(
        *aggregate.mode(),
        aggregate.group_expr().clone(),
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        Arc::clone(input),
        aggregate.input_schema(),
    )?;
    Ok(Arc::new(anew.with_limit_options(aggregate.limit_options())))
}
