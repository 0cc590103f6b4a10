//! Reads columns of which a statement's plan would be another one if they had no value twice.

use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::LogicalPlan;
use futures::TryStreamExt;

use crate::plan::wants_unique;
use crate::scan::read_in_order;
use crate::statistics::unique::SeenValues;
use crate::stored_table::StoredTable;

/// Learns what the plan wants to know, of each table once. A column that cannot be read is left alone: a query of it
/// says why.
pub(super) async fn learn_unique(plan: &LogicalPlan) -> QueryResult<()> {
    for (table, columns) in wants_unique(plan)? {
        for column in columns {
            if table.table.unique.get(column).is_some() {
                continue;
            }
            match is_unique(&table, column).await {
                Ok(is_unique) => table.table.unique.learn(column, is_unique),
                Err(error) => {
                    let table = &table.table.name;
                    tracing::debug!(table, column, %error, "the column could not be read");
                }
            }
        }
    }
    Ok(())
}

async fn is_unique(table: &StoredTable, column: usize) -> QueryResult<bool> {
    let data_type = table.table.schema.field(column).data_type();
    let seen = SeenValues::expected(&table.table.statistics, column, data_type);
    let Some(mut seen) = seen else {
        return Ok(false);
    };
    let mut rows = read_in_order(&table.env, table.table.clone(), Some(vec![column]))?;
    while let Some(batch) = rows.try_next().await? {
        if !seen.are_new(batch.column(0)) {
            return Ok(false);
        }
    }
    Ok(true)
}
