//! Counts combinations of values where a statement joins or groups by several columns of a table.

use arrow::array::ArrayRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::LogicalPlan;
use futures::TryStreamExt;

use crate::interrupt::Interrupt;
use crate::scan::read_in_order;
use crate::statistics::combinations::{Counting, ROWS_MAX};
use crate::stored_table::StoredTable;

/// Counts what the making of a plan wanted to know about its tables. Whether it is known now, so that another plan may
/// be made.
///
/// # Errors
/// The statement was cancelled.
pub(super) async fn count_combinations(
    plan: &LogicalPlan,
    interrupt: &Interrupt,
) -> QueryResult<bool> {
    let mut tables: Vec<StoredTable> = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(stored) = StoredTable::of(scan)
            && tables.iter().all(|known| known.table.id != stored.table.id)
        {
            tables.push(stored);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut is_known = false;
    for stored in tables {
        for columns in stored.table.combinations.asked() {
            let counted = count(&stored, &columns, interrupt).await;
            interrupt.check()?;
            if let Err(error) = &counted {
                let table = &stored.table.name;
                tracing::debug!(table, ?columns, %error, "combinations could not be counted");
            }
            let counted = counted.unwrap_or(None);
            is_known |= counted.is_some();
            let rows = stored.table.row_count();
            stored.table.combinations.learn(&columns, counted, rows);
        }
    }
    Ok(is_known)
}

async fn count(
    stored: &StoredTable,
    columns: &[usize],
    interrupt: &Interrupt,
) -> QueryResult<Option<f64>> {
    if stored.table.row_count() > ROWS_MAX {
        return Ok(None);
    }
    let mut rows = read_in_order(&stored.env, stored.table.clone(), Some(columns.to_vec()))?;
    let mut counting = Counting::default();
    while let Some(batch) = rows.try_next().await? {
        interrupt.check()?;
        let columns: &[ArrayRef] = batch.columns();
        if !counting.add(columns) {
            return Ok(None);
        }
        // What is in memory comes without waiting; the caller may have gone.
        tokio::task::yield_now().await;
    }
    Ok(Some(counting.finish()))
}
