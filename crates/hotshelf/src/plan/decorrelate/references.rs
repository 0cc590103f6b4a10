//! What a subquery refers to around it: the rows beside it (*near*), and those around them (*far*).
//!
//! Subqueries are rewritten from the inside to the outside. What a rewritten one refers to far away is then in the
//! plan around it, where it is near to the next.

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};

use super::super::expressions::node_has_expression;
use super::parts::refused;

pub(super) fn has_outer(expr: &Expr) -> bool {
    expr.exists(|part| Ok(is_outer(part))).unwrap_or(true)
}

pub(super) fn is_outer(expr: &Expr) -> bool {
    matches!(expr, Expr::OuterReferenceColumn(..))
}

/// Visits the nodes of a plan, but not those of LATERAL subqueries in it, which refer to rows in it.
fn apply_own(
    plan: &LogicalPlan,
    visit: &mut dyn FnMut(&LogicalPlan) -> QueryResult<TreeNodeRecursion>,
) -> QueryResult<()> {
    plan.apply(|node| match node {
        LogicalPlan::Subquery(_) => Ok(TreeNodeRecursion::Jump),
        node => visit(node),
    })?;
    Ok(())
}

/// Whether a node or one below refers to the rows around the subquery.
pub(super) fn refers_out(plan: &LogicalPlan) -> QueryResult<bool> {
    let mut found = false;
    apply_own(plan, &mut |node| {
        found = node_has_expression(node, is_outer)?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// The columns around a subquery that it refers to.
pub(super) fn outer_columns(subquery: &LogicalPlan) -> QueryResult<Vec<Column>> {
    let columns = outer_expressions(subquery)?.into_iter();
    let column = |expr| match expr {
        Expr::OuterReferenceColumn(_, column) => Some(column),
        _ => None,
    };
    Ok(columns.filter_map(column).collect())
}

fn outer_expressions(subquery: &LogicalPlan) -> QueryResult<Vec<Expr>> {
    let mut outer: Vec<Expr> = Vec::new();
    apply_own(subquery, &mut |node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if is_outer(part) && !outer.contains(part) {
                    outer.push(part.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(outer)
}

/// Whether a subquery among rows with these columns refers to any others around it.
pub(super) fn refers_far(subquery: &LogicalPlan, around: &DFSchema) -> QueryResult<bool> {
    let outer = outer_columns(subquery)?;
    Ok(outer.iter().any(|column| !around.has_column(column)))
}

/// An aggregate of near columns alone belongs to the query around, which is not known here.
pub(super) fn refuse_outer_aggregates(subquery: &LogicalPlan) -> QueryResult<()> {
    apply_own(subquery, &mut |node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| match part {
                Expr::AggregateFunction(_) if has_outer(part) && part.column_refs().is_empty() => {
                    Err(refused("an aggregate of columns around it"))
                }
                _ => Ok(TreeNodeRecursion::Continue),
            })
        })
    })
}

/// A node whose subqueries say what they refer to. The engine leaves out what subqueries inside them refer to, and
/// takes in what LATERAL inside them does.
pub(super) fn with_outer_columns(node: LogicalPlan) -> QueryResult<LogicalPlan> {
    let node = node.map_expressions(|expr| {
        expr.transform_up(|part| {
            let mut part = part;
            let Some(subquery) = subquery_in(&mut part) else {
                return Ok(Transformed::no(part));
            };
            let outer = outer_expressions(&subquery.subquery)?;
            let is_known = outer == subquery.outer_ref_columns;
            subquery.outer_ref_columns = outer;
            Ok(match is_known {
                true => Transformed::no(part),
                false => Transformed::yes(part),
            })
        })
    });
    node.data()
}

fn subquery_in(expr: &mut Expr) -> Option<&mut Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery) => Some(subquery),
        Expr::Exists(exists) => Some(&mut exists.subquery),
        Expr::InSubquery(test) => Some(&mut test.subquery),
        Expr::SetComparison(test) => Some(&mut test.subquery),
        _ => None,
    }
}

/// LATERAL that refers to the rows beside it only in a subquery inside it is a plain join to the engine, whose columns
/// may be any with these names.
pub(super) fn refuse_hidden_laterals(plan: &LogicalPlan) -> QueryResult<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Join(join) = node {
            let inside = far_columns(&join.right)?;
            if inside
                .iter()
                .any(|column| join.left.schema().has_column(column))
            {
                let what = "LATERAL around it that refers to the rows beside it in no other place";
                return Err(refused(what));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The columns outside a plan that subqueries inside it refer to.
fn far_columns(plan: &LogicalPlan) -> QueryResult<Vec<Column>> {
    let mut far = Vec::new();
    apply_own(plan, &mut |node| {
        let around = merge_schema(&node.inputs());
        node.apply_subqueries(|subquery| {
            for subquery in subquery.inputs() {
                let inside = far_columns(subquery)?.into_iter();
                let columns = outer_columns(subquery)?.into_iter().chain(inside);
                far.extend(columns.filter(|column| !around.has_column(column)));
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(far)
}
