//! Keeps filters above aggregations that give a row for no rows, and turns comparisons round.
//!
//! The engine pushes a predicate without columns, such as the `false` that `n = 1 AND n = 2` is simplified to, below
//! an aggregation without keys, which then answers with a row (`docs/upstream/false-below-aggregate.md`). Of `x <= 1
//! AND 1 > x` it keeps the wider part (`docs/upstream/strictest-bound.md`), of `x <= 1 AND x < 1` the right one.

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan};
use datafusion::optimizer::OptimizerConfig;

use super::node_rule::EngineRule;
use super::short_filters::without_long;

/// The engine's pushing of filters, which stops at such an aggregation.
pub(super) fn keep_filters(
    push: &EngineRule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> QueryResult<Transformed<LogicalPlan>> {
    match &plan {
        LogicalPlan::Filter(filter) if answers_for_no_rows(&filter.input) => {
            Ok(Transformed::no(plan))
        }
        LogicalPlan::Filter(_) => {
            without_long(plan, |plan| push.rewrite(columns_first(plan)?, config))
        }
        _ => push.rewrite(plan, config),
    }
}

/// The filter with `x > 1` for `1 < x`.
fn columns_first(plan: LogicalPlan) -> QueryResult<LogicalPlan> {
    if !super::node_has_expression(&plan, begins_with_literal)? {
        return Ok(plan);
    }
    let turned = plan.map_expressions(|expr| {
        expr.transform_down(|expr| match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if is_literal(&left) && !is_literal(&right) =>
            {
                Ok(match op.swap() {
                    Some(op) => {
                        Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(right, op, left)))
                    }
                    None => Transformed::no(Expr::BinaryExpr(BinaryExpr::new(left, op, right))),
                })
            }
            other => Ok(Transformed::no(other)),
        })
    });
    turned.data()
}

fn begins_with_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryExpr(binary) if is_literal(&binary.left))
}

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(..))
}

/// An aggregation without keys, or with grouping sets: one of them may have none.
fn answers_for_no_rows(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(aggregate) = plan else {
        return false;
    };
    let keys = &aggregate.group_expr;
    keys.is_empty() || keys.iter().any(|key| matches!(key, Expr::GroupingSet(_)))
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn the_strictest_bound_is_kept() {
        let query = "SELECT n FROM t WHERE 3 < n AND 5 < n";
        before_after("push_down_filter", &[query]).is(
            "
            Projection: t.n
              Filter: t.n > Int64(3) AND t.n > Int64(5)
                TableScan: t
            ",
            "
            Projection: t.n
              Filter: t.n > Int64(5)
                TableScan: t
            ",
        );
    }
}
