//! The first rows of groups take their texts last: `GROUP BY k, name, address … ORDER BY sum(x) DESC LIMIT 20`.
//!
//! Where one group key has no value twice in its table, the table's other columns depend on it, and so do those of
//! tables that are joined to it by keys of their own (TPC-H Q10: a customer's name, address and nation). The groups are
//! made by the key alone, and the rest is read for the groups that are left after the limit: late materialization
//! (Abadi et al., ICDE 2007) above an aggregation.

mod groups;
mod late;
mod origin;

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{FetchType, LogicalPlan, Sort, TableScan};
use datafusion::optimizer::ApplyOrder;

use super::node_rule::NodeRule;
use super::semi_join::plain_column;
use crate::stored_table::StoredTable;
use groups::Groups;
use late::Late;

/// Rows that a limit leaves, at most, and of the table whose columns are taken last, at least.
const FETCH_MAX: usize = 10_000;
const ROWS_MIN: usize = 50_000;

/// Takes columns that depend on a group key after the limit.
pub(super) const LATE_COLUMNS: NodeRule = NodeRule {
    name: "late_columns",
    order: ApplyOrder::TopDown,
    rewrite,
};

fn rewrite(plan: LogicalPlan) -> QueryResult<Transformed<LogicalPlan>> {
    let LogicalPlan::Sort(sort) = &plan else {
        return Ok(Transformed::no(plan));
    };
    Ok(match late(sort)? {
        Some(late) => Transformed::yes(late),
        None => Transformed::no(plan),
    })
}

fn late(sort: &Sort) -> QueryResult<Option<LogicalPlan>> {
    if sort.fetch.is_none_or(|fetch| fetch > FETCH_MAX) {
        return Ok(None);
    }
    let Some(groups) = Groups::below(sort) else {
        return Ok(None);
    };
    let Some(late) = Late::of(&groups) else {
        return Ok(None);
    };
    late.last(sort, &groups).map(Some)
}

/// Columns that queries with groups and a limit would take last if they had no value twice: for each table, by index.
pub(crate) fn wants_unique(plan: &LogicalPlan) -> QueryResult<Vec<(StoredTable, Vec<usize>)>> {
    let (mut is_limited, mut groups, mut named) = (false, BTreeSet::new(), BTreeSet::new());
    let mut tables: Vec<StoredTable> = Vec::new();
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::Limit(limit) => {
                let fetch = limit.get_fetch_type()?;
                is_limited |= matches!(fetch, FetchType::Literal(Some(rows)) if rows <= FETCH_MAX);
            }
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.len() > 1 => {
                let columns = aggregate.group_expr.iter().filter_map(plain_column);
                groups.extend(columns.map(|column| column.name));
            }
            LogicalPlan::TableScan(scan) => {
                let stored = stored(scan);
                let is_new = |table: &StoredTable| {
                    !tables
                        .iter()
                        .any(|known| Arc::ptr_eq(&known.table, &table.table))
                };
                tables.extend(stored.filter(is_new));
            }
            _ => {}
        }
        node.apply_expressions(|expr| {
            named.extend(
                expr.column_refs()
                    .into_iter()
                    .map(|column| column.name.clone()),
            );
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    tables.retain(|table| {
        let mut fields = table.table.schema.fields().iter();
        fields.any(|field| is_wide(field.data_type()) && groups.contains(field.name()))
    });
    if !is_limited || !tables.iter().any(|table| row_count(table) >= ROWS_MIN) {
        return Ok(Vec::new());
    }
    let wanted = tables.into_iter().map(|table| {
        let fields = table.table.schema.fields().iter().enumerate();
        let columns = fields.filter(|(_, field)| named.contains(field.name()));
        let columns = columns.map(|(idx, _)| idx).collect();
        (table, columns)
    });
    Ok(wanted.collect())
}

fn stored(scan: &TableScan) -> Option<StoredTable> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<StoredTable>().cloned()
}

fn row_count(table: &StoredTable) -> usize {
    let rows = table.table.statistics.num_rows;
    rows.get_value().copied().unwrap_or(0)
}

/// Whether a group key takes more than a few words.
fn is_wide(data_type: &DataType) -> bool {
    data_type.primitive_width().is_none() && *data_type != DataType::Boolean
}
