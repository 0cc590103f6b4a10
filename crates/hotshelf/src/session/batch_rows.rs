//! How many rows a statement's batches may have: fewer where rows are wide, or a long literal is repeated for every
//! row of a batch.
//!
//! Operators account for batches when they get them. Eight thousand copies of a literal of a megabyte, or rows of two
//! thousand columns, would have taken all memory by then, so such a statement works on fewer rows at a time.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::statistics::sizes::value_bytes;

/// A batch of the widest rows, or of copies of the longest literal, may take this part of what operators can have, for
/// each worker.
const PART: u64 = 4;
/// Shorter literals make batches no larger than columns do.
const LONG_BYTES: usize = 1 << 10;
/// Rows that are only wide come in batches of no fewer: a batch has a price for each column.
const WIDE_ROWS_MIN: usize = 256;

/// Rows of a batch, `usual` or fewer, for an optimized plan whose `threads` workers share `bytes`.
pub(super) fn batch_rows(
    plan: &LogicalPlan,
    usual: usize,
    bytes: u64,
    threads: usize,
) -> QueryResult<usize> {
    let share = bytes / PART / threads.max(1) as u64;
    let of = |bytes: usize| usize::try_from(share / bytes.max(1) as u64).unwrap_or(usize::MAX);
    let most = Most::of(plan)?;
    let rows = usual.min(of(most.row_bytes).max(WIDE_ROWS_MIN));
    if most.literal_bytes < LONG_BYTES {
        return Ok(rows);
    }
    Ok(rows.min(of(most.literal_bytes)).max(1))
}

/// The most bytes that nodes of a plan make of little.
#[derive(Default)]
struct Most {
    /// Of a row that a node gives.
    row_bytes: usize,
    /// Of a literal that operators repeat: those of VALUES are rows themselves, those of lists are compared where they
    /// are.
    literal_bytes: usize,
}

impl Most {
    fn of(plan: &LogicalPlan) -> QueryResult<Self> {
        let mut most = Self::default();
        plan.apply_with_subqueries(|node| {
            let fields = node.schema().fields().iter();
            let row_bytes = value_bytes(fields.map(|field| field.data_type()));
            most.row_bytes = most.row_bytes.max(row_bytes);
            if matches!(node, LogicalPlan::Values(_)) {
                return Ok(TreeNodeRecursion::Continue);
            }
            node.apply_expressions(|expr| {
                expr.apply(|part| match part {
                    Expr::InList(_) => Ok(TreeNodeRecursion::Jump),
                    Expr::Literal(value, _) => {
                        most.literal_bytes = most.literal_bytes.max(value.size());
                        Ok(TreeNodeRecursion::Continue)
                    }
                    _ => Ok(TreeNodeRecursion::Continue),
                })
            })
        })?;
        Ok(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::LogicalPlanBuilder;
    use datafusion::prelude::lit;

    fn rows_with(bytes: usize) -> usize {
        let plan = LogicalPlanBuilder::empty(true).project([lit("x".repeat(bytes))]);
        let plan = plan.unwrap().build().unwrap();
        batch_rows(&plan, 8_192, 64 << 20, 2).unwrap()
    }

    #[test]
    fn batches_shrink_with_the_longest_literal() {
        assert_eq!(rows_with(3), 8_192);
        assert_eq!(rows_with(500), 8_192);
        assert!(
            (70..=84).contains(&rows_with(100_000)),
            "{}",
            rows_with(100_000)
        );
        assert_eq!(rows_with(1 << 30), 1);
    }

    #[test]
    fn batches_shrink_with_wide_rows() {
        let rows = |columns: i64, bytes| {
            let values = (0..columns).map(|column| lit(column).alias(format!("c{column}")));
            let plan = LogicalPlanBuilder::empty(true).project(values);
            batch_rows(&plan.unwrap().build().unwrap(), 8_192, bytes, 2).unwrap()
        };
        assert_eq!(rows(16, 64 << 20), 8_192);
        assert_eq!(rows(2_000, 64 << 20), 524);
        assert_eq!(rows(2_000, 1 << 20), WIDE_ROWS_MIN);
    }

    #[test]
    fn literals_of_values_and_lists_do_not_count() {
        let long = || lit("x".repeat(1 << 20));
        let values = LogicalPlanBuilder::values(vec![vec![long()]]).unwrap();
        let plan = values.filter(datafusion::prelude::col("column1").in_list(vec![long()], false));
        let plan = plan.unwrap().build().unwrap();
        assert_eq!(batch_rows(&plan, 8_192, 64 << 20, 2).unwrap(), 8_192);
    }
}
