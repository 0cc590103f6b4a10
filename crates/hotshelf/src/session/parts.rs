//! What the plan of a query consists of, which says whether it may be kept.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};

use crate::kept_plans::{Asked, KeptPlan, Parts};
use crate::stored_table::StoredTable;

/// About what a node or an expression takes, and a field of a schema, without names.
const PART_BYTES: usize = 1 << 10;
const FIELD_BYTES: usize = 64;

/// What a plan consists of. None if it reads anything but stored tables, or depends on when it was made.
pub(super) fn parts_of(plan: &KeptPlan, asked: &Asked) -> QueryResult<Option<Parts>> {
    let (mut tables, mut means_the_same) = (Vec::new(), true);
    plan.plan.apply_with_subqueries(|node| {
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
                means_the_same &= always_means_the_same(part);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    if !means_the_same {
        return Ok(None);
    }
    // The outline takes about as much as the plan that it is made of.
    let bytes = bytes_of(&plan.plan)? + 2 * bytes_of(&plan.optimized)?;
    let text_bytes = 2 * asked.text_bytes();
    Ok(Some(Parts {
        tables,
        bytes: bytes + text_bytes,
    }))
}

/// About what a plan takes in memory. Rules make large values of small ones.
fn bytes_of(plan: &LogicalPlan) -> QueryResult<usize> {
    let mut bytes = 0;
    plan.apply_with_subqueries(|node| {
        let fields = node.schema().fields().iter();
        let fields = fields.map(|field| FIELD_BYTES + field.name().len());
        bytes += PART_BYTES + fields.sum::<usize>();
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                bytes += PART_BYTES;
                bytes += match part {
                    Expr::Literal(value, _) => value.size(),
                    Expr::Column(column) => column.name.len(),
                    Expr::Alias(alias) => alias.name.len(),
                    _ => 0,
                };
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(bytes)
}

/// Whether an expression's value depends on rows only: `now()` is a constant of the plan.
fn always_means_the_same(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Immutable,
        Expr::ScalarVariable(..) | Expr::Placeholder(_) => false,
        _ => true,
    }
}
