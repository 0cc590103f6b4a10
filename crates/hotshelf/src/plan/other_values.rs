//! Semi joins that ask whether a key has another value than the row's: `EXISTS (… WHERE s.k = t.k AND s.v <> t.v)`.
//!
//! Of all values of a key the least and the greatest tell: if both are the row's value, there is no other. Where keys
//! repeat and most are asked for, one row of them for each is looked up in place of pairs of rows (TPC-DS Q95 had 17
//! million pairs for 60 000 keys).

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, ExprSchema, NullEquality};
use datafusion::error::Result as QueryResult;
use datafusion::functions_aggregate::expr_fn::{max, min};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, Join, JoinConstraint, JoinType, LogicalPlan, Operator,
};
use datafusion::optimizer::ApplyOrder;

use super::join_order::estimate;
use super::node_rule::NodeRule;
use crate::settings::SessionSettings;

/// Groups cost less than pairs where there are this many rows for each group on both sides.
const ROWS_PER_GROUP: f64 = 3.0;
/// Fewer rows are quick in any form.
const ROWS_MIN: f64 = 20_000.0;

/// Looks up the least and the greatest value of each key.
pub(super) const OTHER_VALUES: NodeRule = NodeRule {
    name: "other_values",
    says: Some("a test for another value of a key compares the key's least and greatest"),
    order: ApplyOrder::BottomUp,
    rewrite,
};

fn rewrite(plan: &LogicalPlan, _: &SessionSettings) -> QueryResult<Option<LogicalPlan>> {
    let LogicalPlan::Join(join) = plan else {
        return Ok(None);
    };
    match other_value(join) {
        Some((own, other, keys)) if is_worth_it(join, &keys) => {
            by_extremes(join, own, other, keys).map(Some)
        }
        _ => Ok(None),
    }
}

/// What a join asks for if that is another value: the row's own, the column of others, and their keys.
fn other_value(join: &Join) -> Option<(Column, Column, Vec<Expr>)> {
    let is_plain = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNothing
        && !join.null_aware
        && !join.on.is_empty();
    let Some(Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::NotEq,
        right,
    })) = &join.filter
    else {
        return None;
    };
    let (Expr::Column(left), Expr::Column(right)) = (left.as_ref(), right.as_ref()) else {
        return None;
    };
    let (rows, values) = (join.left.schema(), join.right.schema());
    let (own, other) = match rows.has_column(left) && values.has_column(right) {
        true => (left, right),
        false => (right, left),
    };
    let data_type = rows.field_from_column(own).ok()?.data_type();
    let has_order =
        *data_type == *values.field_from_column(other).ok()?.data_type() && has_extremes(data_type);
    let mut keys: Vec<Expr> = Vec::new();
    for (_, key) in &join.on {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    let are_columns = keys.iter().all(|key| matches!(key, Expr::Column(_)));
    (is_plain && has_order && are_columns).then(|| (own.clone(), other.clone(), keys))
}

/// Whether values of a type have a least and a greatest, and are equal only if they are the same.
fn has_extremes(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_decimal()
        || data_type.is_temporal() && !matches!(data_type, DataType::Interval(_))
        || data_type.is_string()
}

/// Whether keys repeat, and the rows ask for most of them.
fn is_worth_it(join: &Join, keys: &[Expr]) -> bool {
    let (Some(rows), Some(values)) = (estimate(&join.left), estimate(&join.right)) else {
        return false;
    };
    let keys = keys
        .iter()
        .map(|key| values.of_expr(key, join.right.schema()).distinct);
    let groups = keys.product::<f64>().max(1.0);
    rows.rows.min(values.rows) >= (ROWS_PER_GROUP * groups).max(ROWS_MIN)
}

fn by_extremes(
    join: &Join,
    own: Column,
    other: Column,
    keys: Vec<Expr>,
) -> QueryResult<LogicalPlan> {
    let other = Expr::Column(other);
    let extremes = vec![min(other.clone()), max(other)];
    let groups = Aggregate::try_new(join.right.clone(), keys, extremes)?;
    let columns = groups.schema.columns();
    let extremes = columns[columns.len() - 2..].iter();
    let differs =
        extremes.map(|extreme| Expr::Column(own.clone()).not_eq(Expr::Column(extreme.clone())));
    let join = Join::try_new(
        join.left.clone(),
        Arc::new(LogicalPlan::Aggregate(groups)),
        join.on.clone(),
        differs.reduce(Expr::or),
        join.join_type,
        JoinConstraint::On,
        join.null_equality,
        false,
    )?;
    Ok(LogicalPlan::Join(join))
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn another_value_is_the_least_or_the_greatest() {
        let query =
            "SELECT n FROM t WHERE EXISTS (SELECT 1 FROM t u WHERE u.k = t.k AND u.v <> t.v)";
        before_after("other_values", &[query]).is(
            "
            Projection: t.n
              LeftSemi Join: t.k = __correlated_sq_1.k Filter: __correlated_sq_1.v != t.v
                TableScan: t
                SubqueryAlias: __correlated_sq_1
                  Projection: Int64(1), u.k, u.v
                    SubqueryAlias: u
                      TableScan: t
            ",
            "
            Projection: t.n
              LeftSemi Join: t.k = __correlated_sq_1.k Filter: t.v != min(__correlated_sq_1.v) OR t.v != \
                  max(__correlated_sq_1.v)
                TableScan: t
                Aggregate: groupBy=[[__correlated_sq_1.k]], aggr=[[min(__correlated_sq_1.v), \
                    max(__correlated_sq_1.v)]]
                  SubqueryAlias: __correlated_sq_1
                    Projection: Int64(1), u.k, u.v
                      SubqueryAlias: u
                        TableScan: t
            ",
        );
    }
}
