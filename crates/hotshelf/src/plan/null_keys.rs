//! Joins whose keys are equal where both are NULL: the engine mixes them with joins by `=`
//! (`docs/upstream/null-equal-keys.md`).

use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan, Projection};
use datafusion::optimizer::OptimizerConfig;

use super::decisions::{shown, wanted};
use super::node_rule::EngineRule;

/// The engine's rule that makes keys of equalities, for joins by `=`.
pub(super) fn keep_equalities(
    extract: &EngineRule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> QueryResult<Transformed<LogicalPlan>> {
    match &plan {
        LogicalPlan::Join(join) if equates_nulls(join) => {
            if let Some(notes) = wanted(&config.options())
                && let Some(filter) = &join.filter
                && let Ok(mixed) = extract.rewrite(plan.clone(), config)
                && mixed.transformed
            {
                notes.note(why_kept(join, filter));
            }
            Ok(Transformed::no(plan))
        }
        _ => extract.rewrite(plan, config),
    }
}

/// Why a condition stays one, for EXPLAIN VERBOSE.
fn why_kept(join: &Join, filter: &Expr) -> String {
    let keys = join
        .on
        .iter()
        .map(|(left, right)| format!("{left} = {right}"));
    let keys = keys.collect::<Vec<_>>().join(" and ");
    let filter = shown(filter);
    format!(
        "{filter} makes no keys of the join on {keys}, whose keys are equal where both are NULL"
    )
}

fn equates_nulls(join: &Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNull
}

/// Such inner joins between projections, which keep them out of a tree of joins.
pub(super) fn apart(plan: LogicalPlan) -> QueryResult<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(mut join)
            if join.join_type == JoinType::Inner && equates_nulls(&join) =>
        {
            for input in [&mut join.left, &mut join.right] {
                if matches!(input.as_ref(), LogicalPlan::Join(_)) {
                    *input = Arc::new(projected(input.clone())?);
                }
            }
            projected(Arc::new(LogicalPlan::Join(join))).map(Transformed::yes)
        }
        node => Ok(Transformed::no(node)),
    })
}

fn projected(plan: Arc<LogicalPlan>) -> QueryResult<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    Projection::try_new(columns.collect(), plan).map(LogicalPlan::Projection)
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_join_of_nulls_stays_out_of_other_joins() {
        let query =
            "SELECT t.n FROM t JOIN s ON t.k IS NOT DISTINCT FROM s.k, s AS o WHERE t.v = o.x";
        before_after("eliminate_cross_join", &[query]).is(
            "
            Projection: t.n
              Filter: t.v = o.x
                Cross Join:
                  Inner Join: t.k = s.k
                    TableScan: t
                    TableScan: s
                  SubqueryAlias: o
                    TableScan: s
            ",
            "
            Projection: t.n
              Inner Join: t.v = o.x
                Projection: t.k, t.n, t.v, t.w, s.k, s.name, s.x
                  Inner Join: t.k = s.k
                    TableScan: t
                    TableScan: s
                SubqueryAlias: o
                  TableScan: s
            ",
        );
    }

    #[test]
    fn a_join_of_nulls_takes_no_other_keys() {
        let query = "SELECT t.n, l.x FROM t LEFT JOIN LATERAL (SELECT s.x FROM s WHERE s.k < t.k) AS l ON l.x = t.v";
        before_after("extract_equijoin_predicate", &[query]).is_the_same();
    }
}
