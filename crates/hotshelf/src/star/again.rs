//! Whether a build side may run a second time, as part of the plan that a star falls back to.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::sorts::sort::SortExec;

/// Whether a plan gives the same rows each time. A sort with a limit, or a single least or greatest value, tells the
/// scans below what they need not read any more; a second run would begin with that.
pub(super) fn may_run_twice(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<bool> {
    let has_limit = |sort: &SortExec| sort.fetch().is_some();
    let is_aggregate = plan.downcast_ref::<AggregateExec>().is_some();
    let narrows = plan.downcast_ref::<SortExec>().is_some_and(has_limit)
        || is_aggregate && !plan.dynamic_expressions_produced().is_empty();
    if narrows && has_dynamic_filters(plan)? {
        return Ok(false);
    }
    for child in plan.children() {
        if !may_run_twice(child)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a node below has a filter that changes while it runs.
fn has_dynamic_filters(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<bool> {
    for child in plan.children() {
        let mut found = false;
        child.apply_expressions(&mut |expr| {
            found |=
                expr.exists(|expr| Ok(expr.downcast_ref::<DynamicFilterPhysicalExpr>().is_some()))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if found || has_dynamic_filters(child)? {
            return Ok(true);
        }
    }
    Ok(false)
}
