//! Outer joins of which no padded row is kept are inner joins, those of which no other row is kept are anti joins.
//!
//! The engine sees that a filter drops padded rows, but not that a join above does by comparing a column of theirs
//! (TPC-DS Q93), and keeps `t LEFT JOIN s ON t.k = s.k WHERE s.k IS NULL` (Q78). `join_order` takes inner and anti
//! joins together with those around them; an outer join is a border for it.

use std::sync::Arc;

use datafusion::common::{Column, NullEquality};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, Filter, Join, JoinConstraint, JoinType, LogicalPlan, Projection, SubqueryAlias, lit,
};
use datafusion::optimizer::ApplyOrder;
use datafusion::scalar::ScalarValue;

use super::decisions::{all_shown, wanted_of};
use super::node_rule::NodeRule;
use super::semi_join::plain_column;
use crate::settings::{Notes, SessionSettings};

/// Gives outer joins the type that says which rows are kept.
pub(super) const PADDED_JOINS: NodeRule = NodeRule {
    name: "padded_joins",
    says: None,
    order: ApplyOrder::TopDown,
    rewrite,
};

fn rewrite(plan: &LogicalPlan, settings: &SessionSettings) -> QueryResult<Option<LogicalPlan>> {
    let notes = wanted_of(settings);
    match plan {
        LogicalPlan::Filter(filter) => only_padded(filter, notes),
        LogicalPlan::Join(join) => without_padded(join, notes),
        _ => Ok(None),
    }
}

/// The rows without a match, with NULLs for the columns of the other side, where a filter keeps no others.
fn only_padded(filter: &Filter, notes: Option<&Notes>) -> QueryResult<Option<LogicalPlan>> {
    let LogicalPlan::Join(join) = filter.input.as_ref() else {
        return Ok(None);
    };
    if join.join_type != JoinType::Left || !drops_null_keys(join) {
        return Ok(None);
    }
    let (padded, others): (Vec<Expr>, Vec<Expr>) =
        split_conjunction_owned(filter.predicate.clone())
            .into_iter()
            .partition(|part| is_null_key(part, join));
    if padded.is_empty() {
        return Ok(None);
    }
    if let Some(notes) = notes {
        let tests = all_shown(&padded);
        notes.note(format!(
            "{}: no row with a match passes {tests}",
            described(join)
        ));
    }
    let anti = Join::try_new(
        join.left.clone(),
        join.right.clone(),
        join.on.clone(),
        join.filter.clone(),
        JoinType::LeftAnti,
        JoinConstraint::On,
        join.null_equality,
        join.null_aware,
    )?;
    let mut exprs: Vec<Expr> = join
        .left
        .schema()
        .columns()
        .into_iter()
        .map(Expr::Column)
        .collect();
    for (qualifier, field) in join.right.schema().iter() {
        let null = lit(ScalarValue::try_from(field.data_type())?);
        exprs.push(null.alias_qualified(qualifier.cloned(), field.name()));
    }
    let anti = Arc::new(LogicalPlan::Join(anti));
    let schema = join.schema.clone();
    let rows = LogicalPlan::Projection(Projection::try_new_with_schema(exprs, anti, schema)?);
    Ok(Some(match conjunction(others) {
        Some(others) => LogicalPlan::Filter(Filter::try_new(others, Arc::new(rows))?),
        None => rows,
    }))
}

/// Whether a predicate says that a key of a join's right side is NULL, which it is in no row that has a match.
fn is_null_key(predicate: &Expr, join: &Join) -> bool {
    let Expr::IsNull(tested) = predicate else {
        return false;
    };
    let mut keys = join.on.iter().map(|(_, right)| right);
    matches!(tested.as_ref(), Expr::Column(_)) && keys.any(|key| key == tested.as_ref())
}

fn drops_null_keys(join: &Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNothing && !join.null_aware
}

/// An outer join as EXPLAIN VERBOSE names it.
fn described(join: &Join) -> String {
    let keys = join
        .on
        .iter()
        .map(|(left, right)| format!("{left} = {right}"));
    format!("left join on {}", keys.collect::<Vec<_>>().join(" and "))
}

/// A join with inner joins below in place of those left joins whose padded rows have NULL for one of its keys.
fn without_padded(join: &Join, notes: Option<&Notes>) -> QueryResult<Option<LogicalPlan>> {
    let keys = |side: fn(&(Expr, Expr)) -> &Expr| -> Vec<Column> {
        let columns = join.on.iter().filter_map(|pair| match side(pair) {
            Expr::Column(column) => Some(column.clone()),
            _ => None,
        });
        columns.collect()
    };
    let (of_left, of_right) = match join.join_type {
        JoinType::Inner | JoinType::LeftSemi => (keys(|pair| &pair.0), keys(|pair| &pair.1)),
        // A row without a key has no match.
        JoinType::Left => (Vec::new(), keys(|pair| &pair.1)),
        _ => return Ok(None),
    };
    if !drops_null_keys(join) {
        return Ok(None);
    }
    let (left, right) = (
        matched(&join.left, &of_left, notes)?,
        matched(&join.right, &of_right, notes)?,
    );
    if left.is_none() && right.is_none() {
        return Ok(None);
    }
    Ok(Some(LogicalPlan::Join(Join {
        left: left.unwrap_or_else(|| join.left.clone()),
        right: right.unwrap_or_else(|| join.right.clone()),
        ..join.clone()
    })))
}

/// A plan of whose rows those are dropped that have NULL in one of some columns: with fewer padded ones, if there are
/// any.
fn matched(
    plan: &Arc<LogicalPlan>,
    keys: &[Column],
    notes: Option<&Notes>,
) -> QueryResult<Option<Arc<LogicalPlan>>> {
    if keys.is_empty() {
        return Ok(None);
    }
    let matched = match plan.as_ref() {
        LogicalPlan::Filter(filter) => matched(&filter.input, keys, notes)?
            .map(|input| LogicalPlan::Filter(Filter::new(filter.predicate.clone(), input))),
        LogicalPlan::SubqueryAlias(alias) => {
            let places = keys
                .iter()
                .filter_map(|key| alias.schema.maybe_index_of_column(key));
            let columns = alias.input.schema().columns();
            let keys: Vec<Column> = places.map(|place| columns[place].clone()).collect();
            let input = matched(&alias.input, &keys, notes)?;
            let renamed = |input| SubqueryAlias::try_new(input, alias.alias.clone());
            input
                .map(renamed)
                .transpose()?
                .map(LogicalPlan::SubqueryAlias)
        }
        LogicalPlan::Projection(projection) => {
            let places = keys
                .iter()
                .filter_map(|key| projection.schema.maybe_index_of_column(key));
            let keys: Vec<Column> = places
                .filter_map(|place| plain_column(&projection.expr[place]))
                .collect();
            let (exprs, schema) = (projection.expr.clone(), projection.schema.clone());
            let input = matched(&projection.input, &keys, notes)?;
            let projected = |input| Projection::try_new_with_schema(exprs, input, schema);
            input
                .map(projected)
                .transpose()?
                .map(LogicalPlan::Projection)
        }
        LogicalPlan::Join(join) => matched_join(join, keys, notes)?.map(LogicalPlan::Join),
        _ => None,
    };
    Ok(matched.map(Arc::new))
}

/// The same for a join.
fn matched_join(join: &Join, keys: &[Column], notes: Option<&Notes>) -> QueryResult<Option<Join>> {
    let own = |side: &LogicalPlan| -> Vec<Column> {
        let keys = keys.iter().filter(|key| side.schema().has_column(key));
        keys.cloned().collect()
    };
    let join_type = match join.join_type {
        JoinType::Left if !own(&join.right).is_empty() => JoinType::Inner,
        other => other,
    };
    if let (Some(notes), true) = (notes, join_type != join.join_type) {
        notes.note(format!(
            "{}: a join above compares {}, which is NULL in rows without a match",
            described(join),
            all_shown(own(&join.right))
        ));
    }
    let keeps_left = matches!(
        join_type,
        JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti
    );
    let (mut left, mut right) = (None, None);
    if keeps_left {
        left = matched(&join.left, &own(&join.left), notes)?;
    }
    if join_type == JoinType::Inner {
        right = matched(&join.right, &own(&join.right), notes)?;
    }
    let is_changed = join_type != join.join_type || left.is_some() || right.is_some();
    Ok(is_changed.then(|| Join {
        join_type,
        left: left.unwrap_or_else(|| join.left.clone()),
        right: right.unwrap_or_else(|| join.right.clone()),
        ..join.clone()
    }))
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn an_outer_join_of_which_padded_rows_are_kept_is_an_anti_join() {
        let query = "SELECT t.n FROM t LEFT JOIN s ON t.k = s.k WHERE s.k IS NULL";
        before_after("padded_joins", &[query]).is(
            "
            Projection: t.n
              Filter: s.k IS NULL
                Left Join: t.k = s.k
                  TableScan: t
                  TableScan: s
            ",
            "
            Projection: t.n
              Projection: t.k, t.n, t.v, t.w, Int64(NULL) AS k, Utf8(NULL) AS name, Int64(NULL) AS x
                LeftAnti Join: t.k = s.k
                  TableScan: t
                  TableScan: s
            ",
        );
    }

    #[test]
    fn an_outer_join_of_which_a_join_drops_padded_rows_is_an_inner_join() {
        let query = "SELECT t.n FROM t LEFT JOIN s ON t.n = s.k JOIN t u ON u.n = s.x";
        before_after("padded_joins", &[query]).is(
            "
            Projection: t.n
              Inner Join: s.x = u.n
                Left Join: t.n = s.k
                  TableScan: t
                  TableScan: s
                SubqueryAlias: u
                  TableScan: t
            ",
            "
            Projection: t.n
              Inner Join: s.x = u.n
                Inner Join: t.n = s.k
                  TableScan: t
                  TableScan: s
                SubqueryAlias: u
                  TableScan: t
            ",
        );
    }
}
