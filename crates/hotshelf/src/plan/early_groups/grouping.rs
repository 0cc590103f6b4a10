//! An aggregation whose groups may be made earlier, and of what.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};

use super::values::{exprs_of, mergeable, with_exprs};

/// An aggregation over what lies below projections and names.
pub(super) struct Grouping<'a> {
    pub input: &'a LogicalPlan,
    pub keys: Vec<Expr>,
    pub calls: Vec<AggregateFunction>,
}

impl<'a> Grouping<'a> {
    /// None for functions that cannot be put together, sets of groups, and what is not the same each time.
    pub fn of(aggregate: &'a Aggregate) -> QueryResult<Option<Self>> {
        let is_plain = |key: &Expr| !matches!(key, Expr::GroupingSet(_)) && !key.is_volatile();
        let calls = match aggregate.group_expr.iter().all(is_plain) {
            true => mergeable(aggregate),
            false => None,
        };
        let Some(calls) = calls else {
            return Ok(None);
        };
        let keys = aggregate.group_expr.iter();
        let exprs = keys.chain(calls.iter().flat_map(exprs_of)).cloned();
        let Some((input, mut exprs)) = below_names(&aggregate.input, exprs.collect())? else {
            return Ok(None);
        };
        let mut of_calls = exprs.split_off(aggregate.group_expr.len()).into_iter();
        let calls = calls.iter().map(|call| with_exprs(call, &mut of_calls));
        let calls = calls.collect();
        Ok(Some(Self {
            input,
            keys: exprs,
            calls,
        }))
    }
}

/// What lies below projections and names, and expressions over it; none where one is not the same each time.
fn below_names(
    mut plan: &Arc<LogicalPlan>,
    mut exprs: Vec<Expr>,
) -> QueryResult<Option<(&LogicalPlan, Vec<Expr>)>> {
    loop {
        let (input, columns): (_, Vec<Expr>) = match plan.as_ref() {
            LogicalPlan::SubqueryAlias(alias) => {
                let columns = alias.input.schema().columns().into_iter();
                (&alias.input, columns.map(Expr::Column).collect())
            }
            LogicalPlan::Projection(projection) => {
                let columns = projection.expr.iter().cloned();
                (&projection.input, columns.map(Expr::unalias).collect())
            }
            plan => return Ok(Some((plan, exprs))),
        };
        if columns.iter().any(Expr::is_volatile) {
            return Ok(None);
        }
        let over_input = |expr: Expr| {
            let column = |expr: Expr| {
                let Expr::Column(column) = &expr else {
                    return Ok(Transformed::no(expr));
                };
                let idx = plan.schema().index_of_column(column)?;
                Ok(Transformed::yes(columns[idx].clone()))
            };
            expr.transform_up(column).data()
        };
        exprs = exprs
            .into_iter()
            .map(over_input)
            .collect::<QueryResult<_>>()?;
        plan = input;
    }
}
