//! How many rows a statement's batches may have: a long literal is repeated for every row of a batch.
//!
//! Operators account for batches when they get them. Eight thousand copies of a literal of a megabyte would have
//! taken all memory by then, so such a statement works on fewer rows at a time.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Copies of the longest literal may take this part of what operators can have, for each worker.
const PART: u64 = 4;
/// Shorter literals make batches no larger than columns do.
const LONG_BYTES: usize = 1 << 10;

/// Rows of a batch, `usual` or fewer, for an optimized plan whose `threads` workers share `bytes`.
pub(super) fn batch_rows(
    plan: &LogicalPlan,
    usual: usize,
    bytes: u64,
    threads: usize,
) -> QueryResult<usize> {
    let share = bytes / PART / threads.max(1) as u64;
    let longest = longest_literal(plan)?;
    if longest < LONG_BYTES {
        return Ok(usual);
    }
    let rows = usize::try_from(share / longest as u64).unwrap_or(usize::MAX);
    Ok(rows.clamp(1, usual.max(1)))
}

/// Bytes of the longest literal that operators repeat: those of VALUES are rows themselves, those of lists are
/// compared where they are.
fn longest_literal(plan: &LogicalPlan) -> QueryResult<usize> {
    let mut longest = 0;
    plan.apply_with_subqueries(|node| {
        if matches!(node, LogicalPlan::Values(_)) {
            return Ok(TreeNodeRecursion::Continue);
        }
        node.apply_expressions(|expr| {
            expr.apply(|part| match part {
                Expr::InList(_) => Ok(TreeNodeRecursion::Jump),
                Expr::Literal(value, _) => {
                    longest = longest.max(value.size());
                    Ok(TreeNodeRecursion::Continue)
                }
                _ => Ok(TreeNodeRecursion::Continue),
            })
        })
    })?;
    Ok(longest)
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
    fn literals_of_values_and_lists_do_not_count() {
        let long = || lit("x".repeat(1 << 20));
        let values = LogicalPlanBuilder::values(vec![vec![long()]]).unwrap();
        let plan = values.filter(datafusion::prelude::col("column1").in_list(vec![long()], false));
        let plan = plan.unwrap().build().unwrap();
        assert_eq!(batch_rows(&plan, 8_192, 64 << 20, 2).unwrap(), 8_192);
    }
}
