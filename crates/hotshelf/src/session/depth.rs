//! How deep a plan may be that runs on workers, whose stacks are small. Call it on a large one.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

use crate::error::Error;

/// Nested expressions that a worker evaluates: a thread's usual stack of 2 MiB holds them in a debug build.
const EXPRESSION_DEPTH_MAX: usize = 400;
/// Operators above each other.
const PLAN_DEPTH_MAX: usize = 500;

/// Refuses plans and expressions that could exhaust the stack of the thread that runs or drops them.
pub(super) fn check(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<()> {
    descend(plan, 1)
}

fn descend(plan: &Arc<dyn ExecutionPlan>, depth: usize) -> QueryResult<()> {
    if depth > PLAN_DEPTH_MAX {
        let (what, limit) = ("plan", PLAN_DEPTH_MAX);
        return Err(Error::TooDeep { what, limit }.into());
    }
    plan.apply_expressions(&mut |expr| {
        check_expression(expr, 1)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    for child in plan.children() {
        descend(child, depth + 1)?;
    }
    Ok(())
}

fn check_expression(expr: &Arc<dyn PhysicalExpr>, depth: usize) -> QueryResult<()> {
    if depth > EXPRESSION_DEPTH_MAX {
        let (what, limit) = ("expression", EXPRESSION_DEPTH_MAX);
        return Err(Error::TooDeep { what, limit }.into());
    }
    for child in expr.children() {
        check_expression(child, depth + 1)?;
    }
    Ok(())
}
