//! What the plan of a query consists of, which says whether it may be kept.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};

use crate::kept_plans::Parts;
use crate::stored_table::StoredTable;

/// What a plan consists of. None if it reads anything but stored tables, or depends on when it was made.
pub(super) fn parts_of(plan: &LogicalPlan) -> QueryResult<Option<Parts>> {
    let (mut tables, mut count, mut means_the_same) = (Vec::new(), 0, true);
    plan.apply_with_subqueries(|node| {
        count += 1;
        match node {
            LogicalPlan::TableScan(scan) => {
                let provider = source_as_provider(&scan.source)?;
                match provider.downcast_ref::<StoredTable>() {
                    Some(stored) => tables.push(stored.table.id),
                    None => means_the_same = false,
                }
            }
            LogicalPlan::Extension(_) => means_the_same = false,
            _ => {}
        }
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                count += 1;
                means_the_same &= always_means_the_same(part);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(means_the_same.then_some(Parts { tables, count }))
}

/// Whether an expression's value depends on rows only: `now()` is a constant of the plan.
fn always_means_the_same(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Immutable,
        Expr::ScalarVariable(..) | Expr::Placeholder(_) => false,
        _ => true,
    }
}
