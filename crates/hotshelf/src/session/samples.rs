//! Reads samples of the tables of a statement, so that its plan can try predicates on them.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::LogicalPlan;

use crate::stored_table::StoredTable;

/// Has the samples of all tables in memory whose rows the plan filters, joins or groups, where operators may hold this
/// many bytes. What is known already is not read again.
pub(super) fn read_samples(plan: &LogicalPlan, operator_bytes: u64) -> QueryResult<()> {
    let mut has_choice = false;
    let mut scanned = Vec::new();
    plan.apply_with_subqueries(|node| {
        has_choice |= matches!(
            node,
            LogicalPlan::Filter(_)
                | LogicalPlan::Join(_)
                | LogicalPlan::Aggregate(_)
                | LogicalPlan::Distinct(_)
                | LogicalPlan::Window(_)
        );
        if let LogicalPlan::TableScan(scan) = node {
            scanned.extend(source_as_provider(&scan.source));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !has_choice {
        return Ok(());
    }
    for provider in scanned {
        if let Some(StoredTable { table, .. }) = provider.downcast_ref() {
            table
                .sample
                .read(&table.schema, &table.files, operator_bytes);
        }
    }
    Ok(())
}
