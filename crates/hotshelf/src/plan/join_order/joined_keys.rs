//! Which columns of a query may be keys that others are looked up by: that no value occurs twice says how many rows a
//! join has at most.

use std::collections::HashMap;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, TableReference};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, TableScan};

use crate::stored_table::StoredTable;

/// A key of a larger table is not read for that.
const ROWS_MAX: usize = 4_000_000;

/// Columns of small tables that a plan compares with other columns, by index in their table, as far as it is not known
/// whether a value occurs twice. Names are taken as the text has them: a table that has the same name elsewhere in
/// the query is asked without effect at worst.
pub(in crate::plan) fn wants_unique(plan: &LogicalPlan) -> QueryResult<Vec<(StoredTable, usize)>> {
    let (mut tables, mut compared) = (HashMap::new(), Vec::new());
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) => note_table(&scan.table_name, scan, &mut tables),
            LogicalPlan::SubqueryAlias(alias) => {
                if let LogicalPlan::TableScan(scan) = alias.input.as_ref() {
                    note_table(&alias.alias, scan, &mut tables);
                }
            }
            LogicalPlan::Filter(filter) => note_equalities(&filter.predicate, &mut compared),
            LogicalPlan::Join(join) => {
                let sides = join.on.iter().flat_map(|(left, right)| [left, right]);
                compared.extend(sides.filter_map(column).cloned());
                let filters = join.filter.iter();
                filters.for_each(|filter| note_equalities(filter, &mut compared));
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut wanted: Vec<(StoredTable, usize)> = Vec::new();
    for column in compared {
        let Some(relation) = &column.relation else {
            continue;
        };
        for table in tables.get(relation).into_iter().flatten() {
            let table: &StoredTable = table;
            let Ok(idx) = table.table.schema.index_of(&column.name) else {
                continue;
            };
            let is_same = |(other, of_other): &(StoredTable, usize)| {
                *of_other == idx && other.table.id == table.table.id
            };
            if table.table.unique.get(idx).is_none() && !wanted.iter().any(is_same) {
                wanted.push((table.clone(), idx));
            }
        }
    }
    Ok(wanted)
}

fn note_table(
    name: &TableReference,
    scan: &TableScan,
    tables: &mut HashMap<TableReference, Vec<StoredTable>>,
) {
    let Some(stored) = StoredTable::of(scan) else {
        return;
    };
    let rows = stored.table.statistics.num_rows.get_value();
    if rows.is_some_and(|rows| *rows <= ROWS_MAX) {
        tables.entry(name.clone()).or_default().push(stored);
    }
}

fn note_equalities(predicate: &Expr, compared: &mut Vec<Column>) {
    for part in split_conjunction(predicate) {
        if let Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq,
            right,
        }) = part
            && let (Some(left), Some(right)) = (column(left), column(right))
        {
            compared.extend([left.clone(), right.clone()]);
        }
    }
}

fn column(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) | Expr::OuterReferenceColumn(_, column) => Some(column),
        _ => None,
    }
}
