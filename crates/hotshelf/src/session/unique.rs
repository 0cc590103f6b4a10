//! Reads columns of which a statement's plan may be another one if they have no value twice.

use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::LogicalPlan;
use futures::TryStreamExt;

use crate::interrupt::Interrupt;
use crate::plan::wants_unique;
use crate::scan::read_in_order;
use crate::statistics::unique::SeenValues;
use crate::stored_table::StoredTable;

/// What is noted while a column is read takes at most one part in this many of what operators may hold.
const MEMORY_PARTS: u64 = 64;

/// Learns what the plan wants to know about its tables, where operators may hold this many bytes. A column that cannot
/// be read, or not within a part of that, is taken for one that repeats values.
///
/// # Errors
/// The statement was cancelled.
pub(super) async fn learn_unique(
    plan: &LogicalPlan,
    operator_bytes: u64,
    interrupt: &Interrupt,
) -> QueryResult<()> {
    loop {
        let wanted = wants_unique(plan)?;
        if wanted.is_empty() {
            return Ok(());
        }
        for (table, column) in wanted {
            // Several rules may want to know it.
            if table.table.unique.get(column).is_some() {
                continue;
            }
            let is_unique = is_unique(&table, column, operator_bytes, interrupt).await;
            interrupt.check()?;
            if let Err(error) = &is_unique {
                let table = &table.table.name;
                tracing::debug!(table, column, %error, "the column could not be read");
            }
            let is_unique = is_unique.unwrap_or(false);
            table.table.unique.learn(column, is_unique);
        }
    }
}

async fn is_unique(
    table: &StoredTable,
    column: usize,
    operator_bytes: u64,
    interrupt: &Interrupt,
) -> QueryResult<bool> {
    let data_type = table.table.schema.field(column).data_type();
    let bytes_max = operator_bytes / MEMORY_PARTS;
    let statistics = &table.table.statistics;
    let seen = SeenValues::expected(statistics, column, data_type, bytes_max);
    let Some(mut seen) = seen else {
        return Ok(false);
    };
    let mut rows = read_in_order(&table.env, table.table.clone(), Some(vec![column]))?;
    while let Some(batch) = rows.try_next().await? {
        interrupt.check()?;
        if !seen.are_new(batch.column(0)) {
            return Ok(false);
        }
        // What is in memory comes without waiting; the caller may have gone.
        tokio::task::yield_now().await;
    }
    Ok(true)
}
