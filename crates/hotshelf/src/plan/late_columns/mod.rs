//! The first rows of groups take their texts last: `GROUP BY k, name, address … ORDER BY sum(x) DESC LIMIT 20`.
//!
//! Where one group key has no value twice in its table, the table's other columns depend on it, and so do those of
//! tables that are joined to it by keys of their own (TPC-H Q10: a customer's name, address and nation). The groups are
//! made by the key alone, and the rest is read for the groups that the limit leaves: late materialization
//! (Abadi et al., ICDE 2007) above an aggregation.

mod groups;
mod late;
mod origin;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{LogicalPlan, Sort};
use datafusion::optimizer::ApplyOrder;

use super::join_order::estimate;
use super::node_rule::NodeRule;
use crate::settings::SessionSettings;
use crate::stored_table::StoredTable;
use groups::Groups;
use late::Late;

/// Rows that a limit leaves, at most.
const FETCH_MAX: usize = 1_000;
/// Groups that are expected for each row that the limit leaves, at least.
const GROUPS_PER_ROW: f64 = 4.0;

/// Takes columns that depend on a group key after the limit.
pub(super) const LATE_COLUMNS: NodeRule = NodeRule {
    name: "late_columns",
    says: Some("columns that depend on a key are read for the groups that the limit leaves"),
    order: ApplyOrder::TopDown,
    rewrite,
};

fn rewrite(plan: &LogicalPlan, _: &SessionSettings) -> QueryResult<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(sort) => Ok(late(sort)),
        _ => Ok(None),
    }
}

fn late(sort: &Sort) -> Option<LogicalPlan> {
    let fetch = sort.fetch.filter(|fetch| *fetch <= FETCH_MAX)?;
    let groups = Groups::below(sort)?;
    let late = Late::of(&groups, &mut Vec::new())?;
    let group_count = estimate(&LogicalPlan::Aggregate(groups.aggregate.clone()))?.rows;
    if group_count < GROUPS_PER_ROW * fetch as f64 {
        return None;
    }
    let last = late.last(sort, &groups);
    last.inspect_err(|error| tracing::debug!(%error, "columns are not taken last"))
        .ok()
}

/// Columns of which a query with groups has to know whether they have no value twice, as far as that follows from what
/// is known: by index in their table. Without an order and a limit, groups carry what depends on them (`carried_keys`).
pub(super) fn wants_unique(plan: &LogicalPlan) -> QueryResult<Vec<(StoredTable, usize)>> {
    let mut asked = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node
            && let Some(groups) = Groups::of(aggregate)
        {
            Late::of(&groups, &mut asked);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let columns = asked.into_iter();
    Ok(columns
        .filter_map(|origin| Some((StoredTable::of(&origin.scan)?, origin.column)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn texts_are_read_for_groups_that_the_limit_leaves() {
        let statements = [
            "CREATE TABLE c AS SELECT value * 3 AS k, 'name ' || value AS name FROM generate_series(1, 60000) AS \
                g(value)",
            "SELECT c.k, c.name, sum(t.n) AS a FROM t JOIN c ON t.n = c.k GROUP BY c.k, c.name ORDER BY a DESC \
                LIMIT 5",
        ];
        before_after("late_columns", &statements).is(
            "
            Limit: skip=0, fetch=5
              Sort: a DESC NULLS FIRST, fetch=5
                Projection: c.k, c.name, sum(t.n) AS a
                  Aggregate: groupBy=[[c.k, c.name]], aggr=[[sum(t.n)]]
                    Inner Join: t.n = c.k
                      TableScan: t
                      TableScan: c
            ",
            "
            Limit: skip=0, fetch=5
              Sort: a DESC NULLS FIRST, fetch=5
                Projection: c.k, __late_0.__late_0_1 AS name, a
                  Inner Join: c.k = __late_0.__late_0_0
                    Sort: a DESC NULLS FIRST, fetch=5
                      Projection: c.k, sum(t.n) AS a
                        Aggregate: groupBy=[[c.k]], aggr=[[sum(t.n)]]
                          Inner Join: t.n = c.k
                            TableScan: t
                            TableScan: c
                    SubqueryAlias: __late_0
                      Projection: c.k AS __late_0_0, c.name AS __late_0_1
                        TableScan: c projection=[k, name]
            ",
        );
    }
}
