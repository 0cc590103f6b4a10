//! A subquery that stands for a value is NULL where it has no rows, whatever its column's type says.
//!
//! The engine takes the type at its word, and fails (`docs/upstream/value-of-no-rows.md`).

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Expr, LogicalPlan, lit};

use super::super::expressions::{node_has_expression, with_names_kept};
use super::one_row::one_row;
use super::simple::always_one_row;

/// The plan with such values in an expression that may be NULL.
pub(super) fn may_be_null(plan: LogicalPlan) -> QueryResult<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        if !node_has_expression(&node, is_never_null)? {
            return Ok(Transformed::no(node));
        }
        let node = with_names_kept(node, |expr| {
            expr.transform_up(|part| {
                Ok(match is_never_null(&part) {
                    true => Transformed::yes(one_row(part, lit(1i64))),
                    false => Transformed::no(part),
                })
            })
        })?;
        node.map_data(LogicalPlan::recompute_schema)
    })
    .data()
}

fn is_never_null(expr: &Expr) -> bool {
    let Expr::ScalarSubquery(subquery) = expr else {
        return false;
    };
    let plan = subquery.subquery.as_ref();
    let (_, field) = plan.schema().qualified_field(0);
    subquery.outer_ref_columns.is_empty() && !field.is_nullable() && !always_one_row(plan)
}
