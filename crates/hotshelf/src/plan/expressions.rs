//! Which expressions a plan has.

use std::collections::HashSet;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};

/// Whether an expression of a plan, or a part of one, is of a kind. Rules ask this first: most plans have nothing for
/// them.
pub(super) fn has_expression(plan: &LogicalPlan, is_kind: fn(&Expr) -> bool) -> QueryResult<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = found || node_has_expression(node, is_kind)?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// A node whose expressions are rewritten and keep their names. Those of grouping sets are the keys' own.
pub(super) fn with_names_kept(
    plan: LogicalPlan,
    mut rewrite: impl FnMut(Expr) -> QueryResult<Transformed<Expr>>,
) -> QueryResult<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    let mut rewrite = |expr: Expr| {
        let name = names.save(&expr);
        let rewritten = rewrite(expr)?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    };
    plan.map_expressions(|expr| match expr {
        Expr::GroupingSet(_) => expr.map_children(&mut rewrite),
        expr => rewrite(expr),
    })
}

pub(super) fn is_subquery(expr: &Expr) -> bool {
    subquery_of(expr).is_some()
}

/// The expressions without those that came before.
pub(super) fn distinct(exprs: Vec<Expr>) -> Vec<Expr> {
    let mut known = HashSet::new();
    exprs
        .into_iter()
        .filter(|expr| known.insert(expr.clone()))
        .collect()
}

/// Whether a value of this type takes more than a few words.
pub(super) fn is_wide(data_type: &DataType) -> bool {
    data_type.primitive_width().is_none() && *data_type != DataType::Boolean
}

/// The query that an expression asks.
pub(super) fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery) => Some(subquery),
        Expr::Exists(exists) => Some(&exists.subquery),
        Expr::InSubquery(test) => Some(&test.subquery),
        Expr::SetComparison(test) => Some(&test.subquery),
        _ => None,
    }
}

/// [`has_expression`] for one node.
pub(super) fn node_has_expression(
    node: &LogicalPlan,
    is_kind: fn(&Expr) -> bool,
) -> QueryResult<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found = expr.exists(|part| Ok(is_kind(part)))?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}
