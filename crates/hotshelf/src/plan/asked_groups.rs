//! Groups that a join never asks for are not made: `… WHERE x < (SELECT avg(x) … WHERE s.k = t.k)`.
//!
//! The engine turns such a subquery into a join with an aggregation over all keys (TPC-H Q2, Q17, Q20). Where the other
//! side's keys come from a small filtered table, the rows of the aggregation are reduced to those keys first. That
//! reads the small table twice, and is a magic set (Bancilhon et al., PODS 1986) of one predicate.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, NullEquality};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Projection,
    SubqueryAlias, TableScan,
};
use datafusion::optimizer::ApplyOrder;

use super::decisions::wanted_of;
use super::is_subquery;
use super::node_rule::NodeRule;
use super::semi_join::{SemiJoin, plain_column};
use crate::settings::{Notes, SessionSettings};

/// What the keys that are asked for are called in the plan.
const ASKED: &str = "__asked_keys";
/// The small table has at most one row in this many of the aggregated one.
const SMALLER: usize = 4;

/// Reduces the rows of aggregations to the groups that a join asks for.
pub(super) const ASKED_GROUPS: NodeRule = NodeRule {
    name: "asked_groups",
    says: None,
    order: ApplyOrder::TopDown,
    rewrite,
};

fn rewrite(plan: &LogicalPlan, settings: &SessionSettings) -> QueryResult<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Join(join) => {
            let reduced = reduced(join, wanted_of(settings))?;
            Ok(reduced.map(LogicalPlan::Join))
        }
        _ => Ok(None),
    }
}

/// The join with fewer groups on its right side.
fn reduced(join: &Join, notes: Option<&Notes>) -> QueryResult<Option<Join>> {
    let drops_groups = matches!(
        join.join_type,
        JoinType::Inner | JoinType::Left | JoinType::LeftSemi
    );
    if !drops_groups || join.null_equality != NullEquality::NullEqualsNothing {
        return Ok(None);
    }
    for (asked, group) in &join.on {
        let (Expr::Column(asked), Expr::Column(group)) = (asked, group) else {
            continue;
        };
        let Some(keys) = source(&join.left, asked) else {
            continue;
        };
        let keys = Keys { notes, ..keys };
        if let Some(right) = with_asked(&join.right, group, &keys)? {
            let right = Arc::new(right);
            return Ok(Some(Join {
                right,
                ..join.clone()
            }));
        }
    }
    Ok(None)
}

/// A column of a filtered table.
struct Keys<'a> {
    filter: Filter,
    column: Column,
    row_count: usize,
    notes: Option<&'a Notes>,
}

/// Where all values of a column come from, if that is a filtered table: directly or by an equality of a join.
fn source(plan: &LogicalPlan, column: &Column) -> Option<Keys<'static>> {
    let idx = plan.schema().maybe_index_of_column(column)?;
    match plan {
        LogicalPlan::Projection(projection) => {
            source(&projection.input, &plain_column(projection.expr.get(idx)?)?)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let columns = alias.input.schema().columns();
            source(&alias.input, columns.get(idx)?)
        }
        LogicalPlan::Filter(filter) => match filter.input.as_ref() {
            LogicalPlan::TableScan(scan) => can_run_twice(filter, scan).then_some(Keys {
                filter: filter.clone(),
                column: column.clone(),
                row_count: row_count(scan)?,
                notes: None,
            }),
            input => source(input, column),
        },
        LogicalPlan::Join(join) => source_in_join(join, column),
        _ => None,
    }
}

/// Whether another run gives the same rows and costs no more than reading the table.
fn can_run_twice(filter: &Filter, scan: &TableScan) -> bool {
    let has_subquery = filter.predicate.exists(|expr| Ok(is_subquery(expr)));
    scan.fetch.is_none() && !filter.predicate.is_volatile() && matches!(has_subquery, Ok(false))
}

fn source_in_join(join: &Join, column: &Column) -> Option<Keys<'static>> {
    let is_inner = join.join_type == JoinType::Inner;
    let keeps_left = is_inner
        || matches!(
            join.join_type,
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti
        );
    let mut found = None;
    if keeps_left && join.left.schema().has_column(column) {
        found = source(&join.left, column);
    } else if is_inner && join.right.schema().has_column(column) {
        found = source(&join.right, column);
    }
    let has_equals = is_inner || join.join_type == JoinType::LeftSemi;
    let equals = join.on.iter().filter(|_| has_equals);
    let by_equality = |(left, right): &(Expr, Expr)| match (left, right) {
        (Expr::Column(left), Expr::Column(right)) if left == column => source(&join.right, right),
        (Expr::Column(left), Expr::Column(right)) if right == column && is_inner => {
            source(&join.left, left)
        }
        _ => None,
    };
    found.or_else(|| equals.into_iter().find_map(by_equality))
}

/// A plan of groups with those alone whose column is among the keys.
fn with_asked(
    plan: &LogicalPlan,
    column: &Column,
    keys: &Keys<'_>,
) -> QueryResult<Option<LogicalPlan>> {
    let Some(idx) = plan.schema().maybe_index_of_column(column) else {
        return Ok(None);
    };
    match plan {
        LogicalPlan::SubqueryAlias(alias) => {
            let columns = alias.input.schema().columns();
            let input = with_asked(&alias.input, &columns[idx], keys)?;
            let renamed = |input| SubqueryAlias::try_new(Arc::new(input), alias.alias.clone());
            Ok(input
                .map(renamed)
                .transpose()?
                .map(LogicalPlan::SubqueryAlias))
        }
        LogicalPlan::Projection(projection) => {
            let Some(column) = plain_column(&projection.expr[idx]) else {
                return Ok(None);
            };
            let (exprs, schema) = (projection.expr.clone(), projection.schema.clone());
            let input = with_asked(&projection.input, &column, keys)?;
            let projected = |input| Projection::try_new_with_schema(exprs, Arc::new(input), schema);
            Ok(input
                .map(projected)
                .transpose()?
                .map(LogicalPlan::Projection))
        }
        LogicalPlan::Filter(filter) => {
            let input = with_asked(&filter.input, column, keys)?;
            let filtered = |input| Filter::try_new(filter.predicate.clone(), Arc::new(input));
            Ok(input.map(filtered).transpose()?.map(LogicalPlan::Filter))
        }
        LogicalPlan::Aggregate(aggregate) => {
            let Some(Expr::Column(group)) = aggregate.group_expr.get(idx) else {
                return Ok(None);
            };
            let aggregate = of_asked_rows(aggregate, group, keys)?;
            Ok(aggregate.map(LogicalPlan::Aggregate))
        }
        _ => Ok(None),
    }
}

fn of_asked_rows(
    aggregate: &Aggregate,
    group: &Column,
    keys: &Keys<'_>,
) -> QueryResult<Option<Aggregate>> {
    if !is_worth_it(&aggregate.input, group, keys)? {
        return Ok(None);
    }
    let asked = LogicalPlanBuilder::from(LogicalPlan::Filter(keys.filter.clone()))
        .project([Expr::Column(keys.column.clone())])?
        .alias(ASKED)?
        .build()?;
    let key = Expr::Column(Column::new(Some(ASKED), keys.column.name()));
    let semi = SemiJoin {
        on: vec![(group.clone(), key)],
        keys: Arc::new(asked),
    };
    let rows = Arc::new(semi.place(&aggregate.input)?);
    let (groups, functions) = (aggregate.group_expr.clone(), aggregate.aggr_expr.clone());
    let schema = aggregate.schema.clone();
    Aggregate::try_new_with_schema(rows, groups, functions, schema).map(Some)
}

/// Whether the keys are few beside the rows, which have not been reduced yet.
fn is_worth_it(rows: &LogicalPlan, group: &Column, keys: &Keys<'_>) -> QueryResult<bool> {
    let (mut most, mut is_reduced) = (0, false);
    rows.apply(|node| {
        match node {
            LogicalPlan::TableScan(scan) => most = most.max(row_count(scan).unwrap_or(0)),
            LogicalPlan::SubqueryAlias(alias) => is_reduced |= alias.alias.table() == ASKED,
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let is_small = keys.row_count <= most / SMALLER;
    if let (Some(notes), false) = (keys.notes, is_reduced) {
        notes.note(keys.why(group, most, is_small));
    }
    Ok(!is_reduced && is_small)
}

impl Keys<'_> {
    /// Why groups by a column of tables of at most this many rows are reduced or not, for EXPLAIN VERBOSE.
    fn why(&self, group: &Column, most: usize, is_small: bool) -> String {
        let (made, compared) = match is_small {
            true => ("only the asked groups", "at most"),
            false => ("all groups", "more than"),
        };
        format!(
            "{made} by {group} are made: {} is of a filtered table of {} rows, {compared} a quarter of {most} rows to \
             group",
            self.column, self.row_count
        )
    }
}

/// How many rows a table has.
fn row_count(scan: &TableScan) -> Option<usize> {
    let provider: Arc<dyn TableProvider> = source_as_provider(&scan.source).ok()?;
    provider.statistics()?.num_rows.get_value().copied()
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn groups_are_made_of_keys_that_are_asked_for() {
        let query = "SELECT t.n FROM t JOIN s ON t.k = s.k WHERE s.x = 3 AND t.v < (SELECT avg(v) FROM t u \
            WHERE u.k = s.k)";
        before_after("asked_groups", &[query]).is(
            "
            Projection: t.n
              Projection: t.k, t.n, t.v, t.w, s.k, s.name, s.x
                Inner Join: s.k = __scalar_sq_1.k Filter: CAST(t.v AS Float64) < __scalar_sq_1.avg(u.v)
                  Inner Join: t.k = s.k
                    TableScan: t
                    Filter: s.x = Int64(3)
                      TableScan: s
                  SubqueryAlias: __scalar_sq_1
                    Projection: avg(u.v), u.k, __always_true
                      Aggregate: groupBy=[[u.k, Boolean(true) AS __always_true]], aggr=[[avg(CAST(u.v AS Float64))]]
                        SubqueryAlias: u
                          TableScan: t
            ",
            "
            Projection: t.n
              Projection: t.k, t.n, t.v, t.w, s.k, s.name, s.x
                Inner Join: s.k = __scalar_sq_1.k Filter: CAST(t.v AS Float64) < __scalar_sq_1.avg(u.v)
                  Inner Join: t.k = s.k
                    TableScan: t
                    Filter: s.x = Int64(3)
                      TableScan: s
                  SubqueryAlias: __scalar_sq_1
                    Projection: avg(u.v), u.k, __always_true
                      Aggregate: groupBy=[[u.k, Boolean(true) AS __always_true]], aggr=[[avg(CAST(u.v AS Float64))]]
                        LeftSemi Join: u.k = __asked_keys.k
                          SubqueryAlias: u
                            TableScan: t
                          SubqueryAlias: __asked_keys
                            Projection: s.k
                              Filter: s.x = Int64(3)
                                TableScan: s
            ",
        );
    }
}
