//! Keeps what is known about the rows below grouping sets, outer joins and running extremes from being believed of the
//! rows above.
//!
//! The first two make NULLs of values; the last is NULL until there is a value (`docs/upstream/running-extremes.md`).
//! The engine still takes a column that was constant below, or equal to another, for that, drops sorts and aggregates
//! as if equal keys were together (`docs/upstream/grouping-sets-order.md`). Sorts with a limit below other sorts,
//! window functions in an order and in its reverse, and the columns that a merging join compares
//! (`docs/upstream/columns-compared-by-merging-joins.md`) are kept apart in the same way.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Statistics};
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::SetMonotonicity;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, WindowExpr,
};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions,
};

use crate::settings::{SessionSettings, Use};

/// Puts [`ForgetExec`] above every aggregation by several grouping sets, every outer join that pads rows with
/// constants, running extremes, and joins that merge.
#[derive(Debug)]
pub(super) struct ForgetBelowPaddedRows;

impl PhysicalOptimizerRule for ForgetBelowPaddedRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let settings = config.extensions.get::<SessionSettings>();
        let turns = settings.is_some_and(|settings| settings.operators != Use::Off);
        let plan = plan
            .transform_up(|node| {
                let node = match turns_back(&node).filter(|_| turns) {
                    Some(input) => {
                        let forgotten: Arc<dyn ExecutionPlan> =
                            Arc::new(ForgetExec::new(input.clone()));
                        Transformed::yes(node.replace_children(vec![forgotten], anew())?)
                    }
                    None => Transformed::no(node),
                };
                let is_merging = node.data.is::<PiecewiseMergeJoinExec>();
                Ok(if is_merging || makes_nulls(&node.data) {
                    Transformed::yes(Arc::new(ForgetExec::new(node.data)) as _)
                } else {
                    node
                })
            })
            .data()?;
        forget_limited_orders(plan, Above::default())
    }

    fn name(&self) -> &str {
        "forget_below_padded_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Puts [`ForgetExec`] above sorts with a limit, and limits above them, that are below another sort: the engine drops
/// such sorts though they are not replaced (`docs/upstream/sort-above-limit.md`).
fn forget_limited_orders(
    plan: Arc<dyn ExecutionPlan>,
    above: Above,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let is_limit = plan.downcast_ref::<GlobalLimitExec>().is_some()
        || plan.downcast_ref::<LocalLimitExec>().is_some();
    let is_projection = plan.downcast_ref::<ProjectionExec>().is_some();
    let below = Above {
        sort: above.sort || plan.downcast_ref::<SortExec>().is_some(),
        limit: is_limit || above.limit && is_projection,
    };
    let ends_order = above.sort && !above.limit && is_limited_order(&plan);
    let plan = plan
        .map_children(|child| forget_limited_orders(child, below).map(Transformed::yes))
        .data()?;
    Ok(match ends_order {
        true => Arc::new(ForgetExec::new(plan)),
        false => plan,
    })
}

/// What is above a node.
#[derive(Clone, Copy, Default)]
struct Above {
    /// A limit, and nothing but projections between: it needs the order.
    limit: bool,
    /// A sort: it gives the rows an order of its own.
    sort: bool,
}

/// Whether a node is a sort with a limit, or a limit above a sort.
fn is_limited_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        return sort.fetch().is_some();
    }
    let limit = plan.downcast_ref::<GlobalLimitExec>();
    let mut input = limit.map(GlobalLimitExec::input);
    while let Some(projection) = input.and_then(|input| input.downcast_ref::<ProjectionExec>()) {
        input = Some(projection.input());
    }
    input.is_some_and(|input| input.downcast_ref::<SortExec>().is_some())
}

fn anew() -> ReplaceChildrenOptions {
    ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute)
}

/// The input of window functions that are computed in the reverse of an order of others below them: the engine would
/// turn frames around rather than sort, and those that `window_shares` has turned would reach to the partition's end
/// again. The numbers of rows, which others below compute, are in an order, too.
fn turns_back(node: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let order = first_order(node)?;
    let children = node.children();
    let input: &Arc<dyn ExecutionPlan> = children.first()?;
    let number = order.expr.downcast_ref::<Column>().map(Column::name);
    let mut is_reversed = order.options.descending;
    let mut below = input;
    loop {
        if let Some(projection) = below.downcast_ref::<ProjectionExec>() {
            below = projection.input();
            continue;
        }
        if let Some(forget) = below.downcast_ref::<ForgetExec>() {
            below = &forget.input;
            continue;
        }
        let windows = windows_of(below);
        let is_number = windows.iter().any(|window| Some(window.name()) == number);
        let other = first_order(below);
        let is_turned = other.as_ref().is_some_and(|other| {
            is_same(&order.expr, &other.expr) && order.options == !other.options
        });
        if is_turned || is_number && is_reversed {
            return Some(input);
        }
        is_reversed |= other.is_some_and(|other| other.options.descending);
        let inputs = below.children();
        below = inputs.first().copied().filter(|_| !windows.is_empty())?;
    }
}

/// What window functions order rows by first.
fn first_order(node: &Arc<dyn ExecutionPlan>) -> Option<PhysicalSortExpr> {
    let window = windows_of(node).first()?;
    window.order_by().first().cloned()
}

/// Whether expressions over different inputs are the same. Columns are where their names are equal: others may have
/// come between.
fn is_same(one: &Arc<dyn PhysicalExpr>, other: &Arc<dyn PhysicalExpr>) -> bool {
    match (one.downcast_ref::<Column>(), other.downcast_ref::<Column>()) {
        (Some(one), Some(other)) => one.name() == other.name(),
        _ => one.eq(other),
    }
}

fn windows_of(node: &Arc<dyn ExecutionPlan>) -> &[Arc<dyn WindowExpr>] {
    match (
        node.downcast_ref::<WindowAggExec>(),
        node.downcast_ref::<BoundedWindowAggExec>(),
    ) {
        (Some(windows), _) => windows.window_expr(),
        (_, Some(windows)) => windows.window_expr(),
        _ => &[],
    }
}

/// Whether the node aggregates by several grouping sets, pads what it knows too much of, or takes running extremes,
/// which are NULL as long as there is no value.
fn makes_nulls(node: &Arc<dyn ExecutionPlan>) -> bool {
    if windows_of(node).iter().any(is_running_extreme) {
        return true;
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return aggregate.group_expr().groups().len() > 1;
    }
    let join_type = match (
        node.downcast_ref::<HashJoinExec>(),
        node.downcast_ref::<NestedLoopJoinExec>(),
        node.downcast_ref::<SortMergeJoinExec>(),
    ) {
        (Some(join), ..) => *join.join_type(),
        (_, Some(join), _) => *join.join_type(),
        (.., Some(join)) => join.join_type(),
        _ => return false,
    };
    let children = node.children();
    let [left, right] = children.as_slice() else {
        return false;
    };
    match join_type {
        JoinType::Full => true,
        JoinType::Left => has_constants(right),
        JoinType::Right => has_constants(left),
        _ => false,
    }
}

/// Whether a window function is taken for sorted although it may begin with NULLs.
fn is_running_extreme(window: &Arc<dyn WindowExpr>) -> bool {
    let window = window.as_any();
    let aggregate = match (
        window.downcast_ref::<PlainAggregateWindowExpr>(),
        window.downcast_ref::<SlidingAggregateWindowExpr>(),
    ) {
        (Some(plain), _) => plain.get_aggregate_expr(),
        (_, Some(sliding)) => sliding.get_aggregate_expr(),
        _ => return false,
    };
    let is_sorted = aggregate.set_monotonicity() != SetMonotonicity::NotMonotonic;
    is_sorted && aggregate.field().is_nullable()
}

fn has_constants(plan: &Arc<dyn ExecutionPlan>) -> bool {
    !plan.equivalence_properties().constants().is_empty()
}

/// Passes rows on, about which nothing is known but their number, types and partitions.
#[derive(Debug)]
pub(super) struct ForgetExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl ForgetExec {
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self {
            input,
            properties: Arc::new(properties),
        }
    }
}

impl ExecutionPlan for ForgetExec {
    fn name(&self) -> &str {
        "ForgetExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> QueryResult<TreeNodeRecursion>,
    ) -> QueryResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let input = children.into_iter().next();
        Ok(Arc::new(Self::new(
            input.unwrap_or_else(|| self.input.clone()),
        )))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> QueryResult<Arc<Statistics>> {
        let num_rows = inputs
            .first()
            .map_or(Precision::Absent, |input| input.num_rows.to_inexact());
        Ok(Arc::new(Statistics {
            num_rows,
            ..Statistics::new_unknown(&self.schema())
        }))
    }
}

impl DisplayAs for ForgetExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ForgetExec")
    }
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn what_was_constant_is_forgotten_above_an_outer_join() {
        let query = "SELECT t.n, s.one FROM t LEFT JOIN (SELECT k, 1 AS one FROM s) s ON t.n = s.k";
        before_after("forget_below_padded_rows", &[query]).is(
            "
            ProjectionExec: expr=[n@0 as n, one@2 as one]
              HashJoinExec: mode=Auto, join_type=Left, on=[(n@0, k@0)]
                DataSourceExec: HotshelfScan: table=t, columns=[n]
                ProjectionExec: expr=[k@0 as k, 1 as one]
                  DataSourceExec: HotshelfScan: table=s, columns=[k]
            ",
            "
            ProjectionExec: expr=[n@0 as n, one@2 as one]
              ForgetExec
                HashJoinExec: mode=Auto, join_type=Left, on=[(n@0, k@0)]
                  DataSourceExec: HotshelfScan: table=t, columns=[n]
                  ProjectionExec: expr=[k@0 as k, 1 as one]
                    DataSourceExec: HotshelfScan: table=s, columns=[k]
            ",
        );
    }
}
