//! The rows that a domain is made of: they are computed twice, once for the domain and once to be joined with what
//! the subquery has for it.
//!
//! What the second run has and the first had not would find no partner. So limits are left out of the domain's rows,
//! which may be more than are asked for, and rows that may differ from run to run are refused.

use std::sync::Arc;

use datafusion::common::{Column, JoinType};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, ExprSchemable, LogicalPlan};

use super::super::expressions::node_has_expression;
use super::parts::refused;

/// Rows that have all values that `wanted` has in `rows` in any run.
pub(super) fn all_values(rows: &LogicalPlan, wanted: &[Column]) -> QueryResult<LogicalPlan> {
    of(rows, Some(wanted), true)
}

/// `wanted`: the columns that count, while nothing above reads others. `more`: whether more rows do no harm.
fn of(plan: &LogicalPlan, wanted: Option<&[Column]>, more: bool) -> QueryResult<LogicalPlan> {
    if node_has_expression(plan, Expr::is_volatile_node)? {
        return Err(differs());
    }
    match plan {
        LogicalPlan::Limit(limit) if more => return of(&limit.input, wanted, more),
        LogicalPlan::Sort(sort) if more || sort.fetch.is_none() => {
            return of(&sort.input, wanted, more);
        }
        LogicalPlan::Window(window) => {
            let below = window.input.schema();
            let is_below = |column: &Column| below.has_column(column);
            return match wanted {
                Some(wanted) if wanted.iter().all(is_below) => {
                    of(&window.input, Some(wanted), more)
                }
                _ => Err(differs()),
            };
        }
        LogicalPlan::Limit(_) | LogicalPlan::Sort(_) => return Err(differs()),
        LogicalPlan::Aggregate(groups) if !is_exact(groups)? => return Err(differs()),
        _ => {}
    }
    let more = more
        && match plan {
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::Distinct(Distinct::All(_)) => true,
            LogicalPlan::Join(join) => join.join_type == JoinType::Inner,
            _ => false,
        };
    let inputs = plan.inputs();
    if inputs.is_empty() {
        return Ok(plan.clone());
    }
    let inputs = inputs.into_iter().map(|input| of(input, None, more));
    let inputs: Vec<LogicalPlan> = inputs.collect::<QueryResult<_>>()?;
    match plan {
        LogicalPlan::SubqueryAlias(alias) => {
            let mut alias = alias.clone();
            for input in inputs {
                alias.input = Arc::new(input);
            }
            Ok(LogicalPlan::SubqueryAlias(alias))
        }
        _ => plan.with_new_exprs(plan.expressions(), inputs),
    }
}

/// Whether groups have the same values in any order of their rows.
fn is_exact(groups: &Aggregate) -> QueryResult<bool> {
    for expr in &groups.aggr_expr {
        let Expr::AggregateFunction(function) = expr.clone().unalias() else {
            return Ok(false);
        };
        let is_exact = match function.func.name() {
            "count" | "min" | "max" | "bool_and" | "bool_or" => true,
            "sum" | "avg" => !expr.get_type(groups.input.schema())?.is_floating(),
            _ => false,
        };
        if !is_exact {
            return Ok(false);
        }
    }
    Ok(true)
}

fn differs() -> datafusion::error::DataFusionError {
    refused("rows around it that may differ from run to run: a table of them can be made first")
}
