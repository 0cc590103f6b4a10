//! Refuses correlated subqueries that the engine answers wrong (`docs/upstream/correlated-subqueries.md`).
//!
//! It joins the subquery's rows to those around it. What is computed over all rows of the subquery, or over none, is
//! then computed over those of all outer rows, or not at all.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, ScalarValue};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Expr, Join, Limit, LogicalPlan, Subquery};
use datafusion::optimizer::AnalyzerRule;

use super::expressions::{has_expression, is_subquery, node_has_expression};
use crate::error::Error;

#[derive(Debug)]
pub(super) struct RefuseUnsoundSubqueries;

impl AnalyzerRule for RefuseUnsoundSubqueries {
    fn name(&self) -> &str {
        "refuse_unsound_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> QueryResult<LogicalPlan> {
        plan.apply_with_subqueries(|node| {
            for input in node.inputs() {
                if let LogicalPlan::Subquery(lateral) = input {
                    check(lateral, SubqueryKind::Lateral)?;
                }
            }
            if is_outer_join(node) && node_has_expression(node, is_subquery)? {
                let what = "a subquery in the condition of an outer join".into();
                return Err(Error::NotSupported { what }.into());
            }
            node.apply_expressions(|expr| {
                expr.apply(|part| {
                    match part {
                        Expr::ScalarSubquery(subquery) => check(subquery, SubqueryKind::Scalar)?,
                        Expr::Exists(exists) => check(&exists.subquery, SubqueryKind::Exists)?,
                        Expr::InSubquery(test) => check(&test.subquery, SubqueryKind::Membership)?,
                        Expr::SetComparison(test) => {
                            check(&test.subquery, SubqueryKind::Membership)?
                        }
                        _ => {}
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(plan)
    }
}

fn is_outer_join(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Join(join) if join.join_type != JoinType::Inner)
}

/// How a subquery is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SubqueryKind {
    Scalar,
    Exists,
    /// IN, ANY and ALL.
    Membership,
    Lateral,
}

fn check(subquery: &Subquery, kind: SubqueryKind) -> QueryResult<()> {
    match subquery.outer_ref_columns.is_empty() {
        true => Ok(()),
        false => check_below(&subquery.subquery, kind, true),
    }
}

/// Whether the engine answers a subquery right, if it does.
pub(super) fn is_sound(plan: &LogicalPlan, kind: SubqueryKind) -> QueryResult<bool> {
    Ok(check_below(plan, kind, true).is_ok())
}

/// Checks a node and those below it. `is_top`: only what keeps rows and their number is above.
fn check_below(node: &LogicalPlan, kind: SubqueryKind, is_top: bool) -> QueryResult<()> {
    if !has_expression(node, is_outer)? {
        return Ok(());
    }
    if let Some(what) = unsound(node, kind, is_top)? {
        let what = format!("a correlated subquery with {what}");
        return Err(Error::NotSupported { what }.into());
    }
    let keeps = matches!(
        node,
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Sort(_)
    );
    let mut inputs = node.inputs().into_iter();
    inputs.try_for_each(|input| check_below(input, kind, is_top && keeps))
}

/// What the engine gets wrong at a node that has correlated rows below it, or is correlated itself.
fn unsound(
    node: &LogicalPlan,
    kind: SubqueryKind,
    is_top: bool,
) -> QueryResult<Option<&'static str>> {
    Ok(match node {
        LogicalPlan::Aggregate(groups) if groups.group_expr.is_empty() => match kind {
            SubqueryKind::Scalar | SubqueryKind::Lateral if is_top => None,
            SubqueryKind::Scalar | SubqueryKind::Lateral => {
                Some("HAVING, DISTINCT or something else above its aggregate")
            }
            SubqueryKind::Exists | SubqueryKind::Membership => {
                Some("an aggregate without GROUP BY in IN, EXISTS, ANY or ALL")
            }
        },
        LogicalPlan::Window(_) => Some("a window function"),
        LogicalPlan::Limit(limit) if skips(limit) => Some("OFFSET"),
        LogicalPlan::Limit(_)
            if matches!(kind, SubqueryKind::Membership | SubqueryKind::Lateral) =>
        {
            Some("LIMIT in IN, ANY, ALL or LATERAL")
        }
        LogicalPlan::Join(join) if pads_correlated_rows(node, join)? => {
            Some("an outer join whose condition or padded side is correlated")
        }
        _ => None,
    })
}

fn skips(limit: &Limit) -> bool {
    let skip = limit.skip.as_deref();
    skip.is_some_and(|skip| !matches!(skip, Expr::Literal(ScalarValue::Int64(Some(0) | None), _)))
}

fn pads_correlated_rows(node: &LogicalPlan, join: &Join) -> QueryResult<bool> {
    let (pads_left, pads_right) = match join.join_type {
        JoinType::Left => (false, true),
        JoinType::Right => (true, false),
        JoinType::Full => (true, true),
        _ => return Ok(false),
    };
    let condition = node_has_expression(node, is_outer)?;
    let left = pads_left && has_expression(&join.left, is_outer)?;
    let right = pads_right && has_expression(&join.right, is_outer)?;
    Ok(condition || left || right)
}

fn is_outer(expr: &Expr) -> bool {
    matches!(expr, Expr::OuterReferenceColumn(..))
}
