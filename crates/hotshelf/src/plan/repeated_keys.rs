//! Keys that are named twice. `GROUP BY k, t.k` has one column for both, so that the engine's aggregation has fewer
//! columns than keys and the column of a key is not at its place.

use std::collections::HashSet;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
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

/// The plan and its subqueries with each key of groups, of DISTINCT ON and of the order inside an aggregate once. The
/// columns stay the same.
pub(crate) fn without_repeated_keys(plan: LogicalPlan) -> QueryResult<LogicalPlan> {
    // Hardly any plan has one, and looking is cheaper than making all nodes again.
    if !has_repeated_keys(&plan)? {
        return Ok(plan);
    }
    let named_once = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) if is_repetitive(&aggregate)? => {
            grouped_once(aggregate).map(Transformed::yes)
        }
        LogicalPlan::Distinct(Distinct::On(on)) if repeats(&on.on_expr) => {
            let on = DistinctOn {
                on_expr: distinct(on.on_expr),
                sort_expr: on.sort_expr.map(sorted_once),
                ..on
            };
            Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(on))))
        }
        other => Ok(Transformed::no(other)),
    });
    named_once.data()
}

fn has_repeated_keys(plan: &LogicalPlan) -> QueryResult<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= match node {
            LogicalPlan::Aggregate(aggregate) => is_repetitive(aggregate)?,
            LogicalPlan::Distinct(Distinct::On(on)) => repeats(&on.on_expr),
            _ => false,
        };
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

fn is_repetitive(aggregate: &Aggregate) -> QueryResult<bool> {
    let mut is_repetitive = repeats(&aggregate.group_expr);
    for expr in &aggregate.aggr_expr {
        is_repetitive |= expr.exists(|part| Ok(sorts_twice(part)))?;
    }
    Ok(is_repetitive)
}

fn repeats(keys: &[Expr]) -> bool {
    (1..keys.len()).any(|at| keys[..at].contains(&keys[at]))
}

/// Whether an aggregate takes its rows in an order in which a key comes twice: the engine's first and last values of
/// groups panic there.
fn sorts_twice(expr: &Expr) -> bool {
    let Expr::AggregateFunction(function) = expr else {
        return false;
    };
    let order = &function.params.order_by;
    (1..order.len()).any(|at| order[..at].iter().any(|by| by.expr == order[at].expr))
}

fn grouped_once(aggregate: Aggregate) -> QueryResult<LogicalPlan> {
    let Aggregate {
        input,
        group_expr,
        aggr_expr,
        schema,
        ..
    } = aggregate;
    let names = NamePreserver::new_for_projection();
    let aggregates = aggr_expr.into_iter().map(|expr| {
        let name = names.save(&expr);
        let sorted = expr.transform_up(|part| match part {
            Expr::AggregateFunction(mut function) => {
                function.params.order_by = sorted_once(function.params.order_by);
                Ok(Transformed::yes(Expr::AggregateFunction(function)))
            }
            part => Ok(Transformed::no(part)),
        });
        sorted.data().map(|expr| name.restore(expr))
    });
    let aggregates = aggregates.collect::<QueryResult<Vec<_>>>()?;
    let keys = distinct(group_expr);
    Aggregate::try_new_with_schema(input, keys, aggregates, schema).map(LogicalPlan::Aggregate)
}

/// An order without the keys that came before, which say nothing more.
fn sorted_once(order: Vec<SortExpr>) -> Vec<SortExpr> {
    let mut known = HashSet::new();
    let first = |by: &SortExpr| known.insert(by.expr.clone());
    order.into_iter().filter(first).collect()
}
