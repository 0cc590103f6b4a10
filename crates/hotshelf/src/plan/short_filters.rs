//! Keeps filters above projections that would make them long.
//!
//! The engine writes a predicate below a projection with what that computes in the place of columns. In a nest of
//! projections that each use a column twice it is twice as long after each (`docs/upstream/long-pushed-filters.md`).

use std::collections::HashMap;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Expr, Filter, LogicalPlan};
use datafusion::optimizer::OptimizerConfig;

use super::node_rule::EngineRule;

/// Predicates that would have more parts than this, and twice as many as they have, stay where they are.
const PARTS_MAX: usize = 500;

/// A rule of the engine that looks at predicates as they would be below all projections, without the long ones.
pub(super) fn keep_long_filters(
    rule: &EngineRule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> QueryResult<Transformed<LogicalPlan>> {
    match &plan {
        LogicalPlan::Filter(filter) if becomes_long(filter) => Ok(Transformed::no(plan)),
        _ => rule.rewrite(plan, config),
    }
}

/// Whether a predicate would be long below the projections that it is above.
pub(super) fn becomes_long(filter: &Filter) -> bool {
    if !matches!(filter.input.as_ref(), LogicalPlan::Projection(_)) {
        return false;
    }
    let parts = parts_of(&filter.predicate, &written_out(&filter.input));
    parts > PARTS_MAX && parts > 2 * parts_of(&filter.predicate, &HashMap::new())
}

/// Parts of what a plan's columns are computed by, below all of its projections.
fn written_out(plan: &LogicalPlan) -> HashMap<Column, usize> {
    let LogicalPlan::Projection(projection) = plan else {
        return HashMap::new();
    };
    let below = written_out(&projection.input);
    let parts = projection.expr.iter().map(|expr| parts_of(expr, &below));
    projection.schema.columns().into_iter().zip(parts).collect()
}

/// Parts of an expression where its columns have as many.
fn parts_of(expr: &Expr, columns: &HashMap<Column, usize>) -> usize {
    let mut parts: usize = 0;
    let counted = expr.apply(|part| {
        let of_column = match part {
            Expr::Column(column) => columns.get(column),
            _ => None,
        };
        parts = parts.saturating_add(of_column.copied().unwrap_or(1));
        Ok(TreeNodeRecursion::Continue)
    });
    counted.map_or(usize::MAX, |_| parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::LogicalPlanBuilder;
    use datafusion::prelude::{col, lit};

    /// A filter above as many projections that each use a column twice.
    fn above(projections: usize) -> Filter {
        let mut plan = LogicalPlanBuilder::values(vec![vec![lit(1)]]).unwrap();
        plan = plan.project([col("column1").alias("x")]).unwrap();
        for _ in 0..projections {
            plan = plan.project([(col("x") + col("x")).alias("x")]).unwrap();
        }
        Filter::try_new(col("x").gt(lit(3)), plan.build().unwrap().into()).unwrap()
    }

    #[test]
    fn what_doubles_with_each_projection_is_long_after_some() {
        assert!(!becomes_long(&above(1)));
        assert!(!becomes_long(&above(6)));
        assert!(becomes_long(&above(12)));
        assert!(becomes_long(&above(200)));
    }

    #[test]
    fn long_predicates_that_stay_as_long_may_move() {
        let list = (0..2_000).map(lit).collect();
        let one = above(1);
        let input = match one.input.as_ref() {
            LogicalPlan::Projection(projection) => projection.input.clone(),
            other => panic!("{other}"),
        };
        let filter = Filter::try_new(col("x").in_list(list, false), input).unwrap();
        assert!(!becomes_long(&filter));
    }
}
