//! The right side of a left join, whose rows are grouped before they are joined:
//! `SELECT c.k, count(o.k) FROM c LEFT JOIN o ON c.k = o.c GROUP BY c.k`.
//!
//! A left row finds the groups of the rows that it would find, as rows of a group agree in all that the join reads, or
//! none where it would find none. Then its functions have no values, as the columns that they are of would have none.

use std::sync::Arc;

use datafusion::common::{Column, NullEquality};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan, Operator};

use super::joins::{Joins, has_early_groups};
use super::tables::{is_early_key, over_groups};
use super::values::{Values, counts_rows, exprs_of};
use crate::plan::join_order::{cannot_fail, estimate};

/// A left join, and what its right side is grouped by.
pub(super) struct PaddedGroups<'a> {
    join: &'a Join,
    keys: Vec<Expr>,
    /// How many groups there are at most.
    pub groups: f64,
    pub values: Values,
}

impl<'a> PaddedGroups<'a> {
    /// None for an aggregation by keys or of values for which groups of the right side would not do.
    pub fn of(join: &'a Join, group_keys: &[Expr], calls: &[AggregateFunction]) -> Option<Self> {
        let is_plain = join.join_type == JoinType::Left
            && join.null_equality == NullEquality::NullEqualsNothing
            && !join.null_aware
            && !join.on.is_empty();
        if !is_plain || has_early_groups(&join.left) || has_early_groups(&join.right) {
            return None;
        }
        let is_left = |expr: &Expr| reads_one(expr, &join.left, &join.right);
        let has_no_keys = |expr: &Expr| expr.column_refs().is_empty() || is_left(expr);
        let is_early = |call: &AggregateFunction| is_padded(call, join);
        let is_whole = |call: &AggregateFunction| {
            matches!(call.func.name(), "min" | "max") && exprs_of(call).all(is_left)
        };
        let mut all = calls.iter();
        let is_known = group_keys.iter().all(has_no_keys)
            && calls.iter().any(is_early)
            && all.all(|call| is_early(call) || is_whole(call));
        if !is_known {
            return None;
        }
        let keys = early_keys(join)?;
        let rows = estimate(&join.right)?;
        let count = |key: &Expr| rows.of_expr(key, join.right.schema()).distinct;
        let groups = keys.iter().map(count).product::<f64>().min(rows.rows);
        let values = Values::of(calls.iter().map(|call| (call, is_early(call))));
        let right = Joins::all(&join.right);
        right.can_sum(&values.parts).then_some(Self {
            join,
            keys,
            groups,
            values,
        })
    }

    /// Groups of the right side; none where they cannot be named.
    pub fn grouped(&self) -> QueryResult<Option<LogicalPlan>> {
        let rows = self.join.right.as_ref().clone();
        self.values.grouped(rows, &self.keys)
    }

    pub fn rows(&self) -> &LogicalPlan {
        &self.join.right
    }

    /// The same join with these groups on its right side.
    pub fn with_others(&self, groups: LogicalPlan) -> QueryResult<LogicalPlan> {
        let join = self.join;
        let on = join.on.iter();
        let on = on.map(|(left, right)| Ok((left.clone(), over_groups(right, &self.keys)?)));
        let filter = join.filter.as_ref();
        let filter = filter.map(|test| over_groups(test, &self.keys));
        Ok(LogicalPlan::Join(Join::try_new(
            join.left.clone(),
            Arc::new(groups),
            on.collect::<QueryResult<_>>()?,
            filter.transpose()?,
            join.join_type,
            join.join_constraint,
            join.null_equality,
            false,
        )?))
    }
}

/// What a left join reads of its right side; none where that may fail for rows that are not compared.
fn early_keys(join: &Join) -> Option<Vec<Expr>> {
    let tested = join.filter.iter().flat_map(Expr::column_refs);
    let mut tested: Vec<Expr> = tested.cloned().map(Expr::Column).collect();
    tested.sort_by_key(Expr::to_string);
    let is_right = |column: &Expr| reads_one(column, &join.right, &join.left);
    let is_left = |column: &Expr| reads_one(column, &join.left, &join.right);
    let (right, others): (Vec<Expr>, Vec<Expr>) = tested.into_iter().partition(is_right);
    let mut keys: Vec<Expr> = Vec::new();
    for key in join.on.iter().map(|(_, key)| key).chain(&right) {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    let schema = join.right.schema();
    let are_keys = keys.iter().all(|key| is_early_key(key, schema));
    let mut tests = join.filter.iter();
    let can_test = tests.all(|test| cannot_fail(test, &join.schema)) && others.iter().all(is_left);
    (are_keys && can_test).then_some(keys)
}

/// Whether a function is over the right side of a left join and takes no account of a row that has nothing there, or
/// counts all rows.
fn is_padded(call: &AggregateFunction, join: &Join) -> bool {
    let is_right = |expr: &Expr| {
        reads_one(expr, &join.right, &join.left) && cannot_fail(expr, join.right.schema())
    };
    let is_of_nulls = |expr: &Expr| is_right(expr) && is_null_of_nulls(expr);
    let is_filtered = call.params.filter.as_deref().is_none_or(is_right);
    counts_rows(call) || (is_filtered && call.params.args.iter().all(is_of_nulls))
}

/// Whether an expression is NULL where all columns are. It has to read one.
fn is_null_of_nulls(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Alias(alias) => is_null_of_nulls(&alias.expr),
        Expr::Cast(cast) => is_null_of_nulls(&cast.expr),
        Expr::BinaryExpr(binary) => {
            let is_sum = matches!(
                binary.op,
                Operator::Plus | Operator::Minus | Operator::Multiply
            );
            is_sum && (is_null_of_nulls(&binary.left) || is_null_of_nulls(&binary.right))
        }
        _ => false,
    }
}

/// Whether an expression reads columns of one side, and by their names none of the other.
fn reads_one(expr: &Expr, side: &LogicalPlan, other: &LogicalPlan) -> bool {
    let columns = expr.column_refs();
    let is_of_side =
        |column: &&Column| side.schema().has_column(column) && !other.schema().has_column(column);
    !columns.is_empty() && columns.iter().all(is_of_side)
}
