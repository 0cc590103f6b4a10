//! Keeps filters above projections that would make them long.
//!
//! The engine writes a predicate below a projection with what that computes in the place of columns. In a nest of
//! projections that each use a column twice it is twice as long after each (`docs/upstream/long-pushed-filters.md`).

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan};
use datafusion::optimizer::OptimizerConfig;

use super::decisions::{all_shown, wanted};
use super::node_rule::EngineRule;

/// Predicates that would have more parts than this, and half as many again as they have, stay where they are.
const PARTS_MAX: usize = 500;

/// Whether a predicate of `own` parts would be long with as many as `below`.
pub(super) fn is_long(below: usize, own: usize) -> bool {
    below > PARTS_MAX && below > own + own / 2
}

/// A rule of the engine that looks at predicates as they would be below all projections, without the long ones.
pub(super) fn keep_long_filters(
    rule: &EngineRule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> QueryResult<Transformed<LogicalPlan>> {
    if let Some(notes) = wanted(&config.options())
        && let LogicalPlan::Filter(filter) = &plan
        && let Some((long, _)) = parted(filter)
        && !long.is_empty()
    {
        notes.note(format!(
            "{} is tested above the projections below it, in whose terms it would have more than {PARTS_MAX} parts",
            all_shown(long)
        ));
    }
    without_long(plan, |plan| rule.rewrite(plan, config))
}

/// Rewrites a filter without those of its conditions that would be long below the projections that it is above. They
/// stay in a filter of their own.
pub(super) fn without_long(
    plan: LogicalPlan,
    rewrite: impl FnOnce(LogicalPlan) -> QueryResult<Transformed<LogicalPlan>>,
) -> QueryResult<Transformed<LogicalPlan>> {
    let LogicalPlan::Filter(filter) = &plan else {
        return rewrite(plan);
    };
    let Some((long, short)) = parted(filter) else {
        return rewrite(plan);
    };
    let all_of = |parts: Vec<&Expr>| conjunction(parts.into_iter().cloned());
    match (all_of(long), all_of(short)) {
        (None, _) => rewrite(plan),
        (Some(_), None) => Ok(Transformed::no(plan)),
        (Some(long), Some(short)) => {
            let input = Filter::try_new(short, filter.input.clone())?;
            let rewritten = rewrite(LogicalPlan::Filter(input))?;
            if !rewritten.transformed {
                return Ok(Transformed::no(plan));
            }
            let kept = Filter::try_new(long, Arc::new(rewritten.data))?;
            Ok(Transformed::yes(LogicalPlan::Filter(kept)))
        }
    }
}

/// The conditions of a filter that would be long below the projections that it is above, and the others. `None`: it is
/// above none.
fn parted(filter: &Filter) -> Option<(Vec<&Expr>, Vec<&Expr>)> {
    let below = written_out(&filter.input)?;
    let schema = filter.input.schema();
    let becomes_long = |part: &&Expr| {
        is_long(
            parts_of(part, schema, Some(&below)),
            parts_of(part, schema, None),
        )
    };
    let parts = split_conjunction(&filter.predicate).into_iter();
    Some(parts.partition(becomes_long))
}

/// Parts of what each of a plan's columns is computed by, below all of its projections. `None`: it has none.
fn written_out(plan: &LogicalPlan) -> Option<Vec<usize>> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => written_out(&alias.input),
        LogicalPlan::Filter(filter) => written_out(&filter.input),
        LogicalPlan::Projection(projection) => {
            let below = written_out(&projection.input);
            let schema = projection.input.schema();
            let exprs = projection.expr.iter();
            Some(
                exprs
                    .map(|expr| parts_of(expr, schema, below.as_deref()))
                    .collect(),
            )
        }
        _ => None,
    }
}

/// Parts of an expression over columns that have as many each.
fn parts_of(expr: &Expr, schema: &DFSchema, columns: Option<&[usize]>) -> usize {
    let mut parts: usize = 0;
    let counted = expr.apply(|part| {
        let of_column = match (part, columns) {
            (Expr::Column(column), Some(columns)) => {
                let idx = schema.maybe_index_of_column(column);
                idx.and_then(|idx| columns.get(idx)).copied()
            }
            _ => None,
        };
        parts = parts.saturating_add(of_column.unwrap_or(1));
        Ok(TreeNodeRecursion::Continue)
    });
    counted.map_or(usize::MAX, |_| parts)
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;
    use super::*;
    use datafusion::logical_expr::LogicalPlanBuilder;
    use datafusion::prelude::{col, lit};

    /// As many projections that each use a column twice, and leave another alone.
    fn nest(projections: usize) -> LogicalPlanBuilder {
        let mut plan = LogicalPlanBuilder::values(vec![vec![lit(1), lit(2)]]).unwrap();
        plan = plan
            .project([col("column1").alias("x"), col("column2").alias("y")])
            .unwrap();
        for step in 0..projections {
            plan = plan
                .project([(col("x") + col("x")).alias("x"), col("y")])
                .unwrap();
            plan = plan.alias(format!("s{step}")).unwrap();
        }
        plan
    }

    /// What a rule is given of a filter, and what remains above.
    fn rewritten(predicate: Expr, projections: usize) -> (Option<String>, String) {
        let plan = nest(projections)
            .filter(predicate)
            .unwrap()
            .build()
            .unwrap();
        let mut given = None;
        let found = without_long(plan, |plan| {
            given = Some(plan.display().to_string());
            Ok(Transformed::yes(plan))
        });
        (given, found.unwrap().data.display().to_string())
    }

    #[test]
    fn what_doubles_with_each_projection_stays_above_after_some() {
        let long = || col("x").gt(lit(3));
        assert!(rewritten(long(), 6).0.is_some());
        for projections in [12, 100] {
            let (given, above) = rewritten(long(), projections);
            assert_eq!(given, None, "{above}");
        }
    }

    #[test]
    fn short_conditions_go_on_without_the_long_ones() {
        let (given, above) = rewritten(col("x").gt(lit(3)).and(col("y").lt(lit(5))), 12);
        assert_eq!(given.unwrap(), "Filter: s11.y < Int32(5)");
        assert_eq!(above, "Filter: s11.x > Int32(3)");
    }

    #[test]
    fn an_outer_join_is_simplified_by_short_conditions() {
        let query = "
            SELECT x, y FROM (
                SELECT x + x + x + x + x + x + x AS x, y FROM (
                    SELECT x + x + x + x + x + x + x AS x, y FROM (
                        SELECT s.x + s.x + s.x + s.x + s.x + s.x + s.x AS x, s.k AS y FROM t LEFT JOIN s ON t.k = s.k
                    )
                )
            ) WHERE x > 3 AND y > 5";
        before_after("eliminate_outer_join", &[query]).is(
            "
            Projection: x, y
              Filter: x > Int64(3) AND y > Int64(5)
                Projection: x + x + x + x + x + x + x AS x, y
                  Projection: x + x + x + x + x + x + x AS x, y
                    Projection: s.x + s.x + s.x + s.x + s.x + s.x + s.x AS x, s.k AS y
                      Left Join: t.k = s.k
                        TableScan: t
                        TableScan: s
            ",
            "
            Projection: x, y
              Filter: x > Int64(3)
                Filter: y > Int64(5)
                  Projection: x + x + x + x + x + x + x AS x, y
                    Projection: x + x + x + x + x + x + x AS x, y
                      Projection: s.x + s.x + s.x + s.x + s.x + s.x + s.x AS x, s.k AS y
                        Inner Join: t.k = s.k
                          TableScan: t
                          TableScan: s
            ",
        );
    }

    #[test]
    fn long_lists_that_stay_as_long_may_move() {
        let list = (0..2_000).map(lit).collect();
        let (given, _) = rewritten(col("y").in_list(list, false), 12);
        assert!(given.is_some());
    }
}
