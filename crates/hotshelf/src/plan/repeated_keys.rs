//! Group keys that are named twice: `GROUP BY k, t.k` has one column for both, so that the engine's aggregation has
//! fewer columns than keys and the column of a key is not at its place.

use std::collections::HashSet;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Aggregate, Distinct, DistinctOn, Expr, LogicalPlan, SortExpr};
use datafusion::optimizer::AnalyzerRule;

use super::expressions::distinct;

/// [`without_repeated_keys`] before other rules, for views as well.
#[derive(Debug)]
pub(super) struct NameKeysOnce;

impl AnalyzerRule for NameKeysOnce {
    fn name(&self) -> &str {
        "name_keys_once"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> QueryResult<LogicalPlan> {
        without_repeated_keys(plan)
    }
}

/// The plan and its subqueries with each key of groups, and of DISTINCT ON, once. Their columns are the same ones.
pub(crate) fn without_repeated_keys(plan: LogicalPlan) -> QueryResult<LogicalPlan> {
    let named_once = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) if repeats(&aggregate.group_expr) => {
            let Aggregate {
                input,
                group_expr,
                aggr_expr,
                schema,
                ..
            } = aggregate;
            let keys = distinct(group_expr);
            let named_once = Aggregate::try_new_with_schema(input, keys, aggr_expr, schema)?;
            Ok(Transformed::yes(LogicalPlan::Aggregate(named_once)))
        }
        LogicalPlan::Distinct(Distinct::On(on)) if repeats(&on.on_expr) => {
            let sort_expr = on.sort_expr.map(|sorted| {
                let mut known = HashSet::new();
                let first = |by: &SortExpr| known.insert(by.expr.clone());
                sorted.into_iter().filter(first).collect()
            });
            let on = DistinctOn {
                on_expr: distinct(on.on_expr),
                sort_expr,
                ..on
            };
            Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(on))))
        }
        other => Ok(Transformed::no(other)),
    });
    named_once.data()
}

fn repeats(keys: &[Expr]) -> bool {
    (1..keys.len()).any(|at| keys[..at].contains(&keys[at]))
}
