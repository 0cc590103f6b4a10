//! Which share of rows a predicate keeps.

use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::utils::{split_binary, split_conjunction};
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Like, Operator};

use super::estimate::Estimate;
use super::sampled::Sampled;
use crate::statistics::column::{
    COMPARISON, ColumnEstimate, EQUALITY, PATTERN, PREFIX, number, together,
};

/// Rows of which those remain that pass a predicate: by a sample of the rows, and where that says little, by what
/// the statistics know about their columns.
pub(super) fn filtered(mut rows: Estimate, predicate: &Expr, schema: &DFSchema) -> Estimate {
    let (mut shares, mut by_column) = (Vec::new(), vec![1.0; rows.columns.len()]);
    let mut own = vec![false; rows.columns.len()];
    let sampled = rows.sampled.take();
    let mut tries = sampled.as_ref().map(Sampled::tries);
    for part in split_conjunction(predicate) {
        let spread = sampled.as_ref();
        let narrowed = narrowed_column(part, &rows, schema, spread);
        let share = match &narrowed {
            Some((_, _, share)) => *share,
            None => selectivity(part, &rows, schema),
        };
        let kept = sampled.as_ref().and_then(|rows| rows.keeping(part, schema));
        let is_tried = kept.is_some();
        if let Some((tries, kept)) = tries.as_mut().zip(kept) {
            tries.add(kept, share);
        }
        if let Some((idx, column, _)) = narrowed {
            rows.columns[idx] = column;
            own[idx] |= share < 1.0;
            by_column[idx] *= if is_tried { 1.0 } else { share };
        } else if !is_tried {
            shares.push(share);
        }
    }
    let narrowed: Vec<_> = rows.columns.clone();
    shares.extend(by_column.into_iter().filter(|share| *share < 1.0));
    let tried = tries.and_then(|tries| tries.finish());
    shares.extend(tried.as_ref().map(|(share, _)| *share));
    let mut rows = rows.thinned(together(shares));
    for ((column, narrowed), own) in rows.columns.iter_mut().zip(narrowed).zip(own) {
        if own {
            column.distinct = narrowed.distinct.min(rows.rows);
        }
    }
    rows.sampled = match tried {
        Some((_, passing)) => sampled.map(|rows| rows.with(passing)),
        None => sampled,
    };
    rows
}

type Narrowed = (usize, ColumnEstimate, f64);

/// The column that a predicate narrows to some values, the narrowed one, and the share of rows.
fn narrowed_column(
    predicate: &Expr,
    rows: &Estimate,
    schema: &DFSchema,
    sampled: Option<&Sampled>,
) -> Option<Narrowed> {
    let spread = |idx: usize| sampled.and_then(|rows| rows.distribution(idx));
    if let Some((idx, values)) = listed(predicate, schema) {
        let column = *rows.columns.get(idx)?;
        // The sample knows the frequent ones itself.
        let rare = spread(idx).and_then(|spread| spread.rare_share(column.domain));
        let each = rare.unwrap_or((1.0 - column.nulls) / column.domain.max(1.0));
        return Some((idx, column.with_values(values), (values * each).min(1.0)));
    }
    let (idx, low, high) = range(predicate, schema)?;
    let column = *rows.columns.get(idx)?;
    let (narrowed, share) = column.within(low, high)?;
    let unit = if column.is_whole { 1.0 } else { 0.0 };
    let spread = spread(idx).and_then(|spread| spread.share_within(low, high, unit));
    let share = spread.unwrap_or(share * (1.0 - column.nulls));
    Some((idx, narrowed, share))
}

/// The column and how many values of it a predicate lists: an equality, IN, or several of them with OR.
fn listed(predicate: &Expr, schema: &DFSchema) -> Option<(usize, f64)> {
    match predicate {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq,
            right,
        }) => {
            let (column, _) = with_literal(left, right)?;
            Some((column_index(column, schema)?, 1.0))
        }
        Expr::InList(InList {
            expr,
            list,
            negated: false,
        }) => Some((column_index(expr, schema)?, list.len() as f64)),
        Expr::BinaryExpr(BinaryExpr {
            op: Operator::Or, ..
        }) => {
            let parts = split_binary(predicate, Operator::Or).into_iter();
            let lists = parts.map(|part| listed(part, schema));
            let lists = lists.collect::<Option<Vec<_>>>()?;
            let (idx, _) = *lists.first()?;
            let same = lists.iter().all(|(other, _)| *other == idx);
            same.then(|| (idx, lists.iter().map(|(_, values)| values).sum()))
        }
        _ => None,
    }
}

/// The column that a predicate compares with numbers, and the range that it leaves.
fn range(predicate: &Expr, schema: &DFSchema) -> Option<(usize, f64, f64)> {
    match predicate {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (column, value) = with_literal(left, right)?;
            let op = match matches!(left.as_ref(), Expr::Literal(..)) {
                true => op.swap()?,
                false => *op,
            };
            let (idx, value) = (number_index(column, schema)?, number(value)?);
            let is_whole = value.fract() == 0.0 && is_whole(idx, schema);
            let step = if is_whole { 1.0 } else { 0.0 };
            match op {
                Operator::Lt => Some((idx, f64::MIN, value - step)),
                Operator::LtEq => Some((idx, f64::MIN, value)),
                Operator::Gt => Some((idx, value + step, f64::MAX)),
                Operator::GtEq => Some((idx, value, f64::MAX)),
                _ => None,
            }
        }
        Expr::Between(Between {
            expr,
            negated: false,
            low,
            high,
        }) => {
            let (Expr::Literal(low, _), Expr::Literal(high, _)) = (low.as_ref(), high.as_ref())
            else {
                return None;
            };
            Some((number_index(expr, schema)?, number(low)?, number(high)?))
        }
        _ => None,
    }
}

fn is_whole(idx: usize, schema: &DFSchema) -> bool {
    let data_type = schema.field(idx).data_type();
    data_type.is_integer() || matches!(data_type, arrow::datatypes::DataType::Date32)
}

/// The side of a comparison that is not a literal, and the literal.
fn with_literal<'a>(left: &'a Expr, right: &'a Expr) -> Option<(&'a Expr, &'a ScalarValue)> {
    match (left, right) {
        (Expr::Literal(value, _), expr) | (expr, Expr::Literal(value, _)) => Some((expr, value)),
        _ => None,
    }
}

/// The column that an expression is, cast or not.
fn column_index(expr: &Expr, schema: &DFSchema) -> Option<usize> {
    match expr {
        Expr::Column(column) => schema.maybe_index_of_column(column),
        Expr::Cast(cast) => column_index(&cast.expr, schema),
        Expr::TryCast(cast) => column_index(&cast.expr, schema),
        _ => None,
    }
}

/// The column that an expression is, whose numbers mean what they mean in the table.
fn number_index(expr: &Expr, schema: &DFSchema) -> Option<usize> {
    let idx = column_index(expr, schema)?;
    let plain = match expr {
        Expr::Cast(cast) => {
            cast.field.data_type().is_numeric() && schema.field(idx).data_type().is_numeric()
        }
        Expr::Column(_) => true,
        _ => false,
    };
    plain.then_some(idx)
}

/// The share of rows that pass a predicate.
pub(super) fn selectivity(predicate: &Expr, rows: &Estimate, schema: &DFSchema) -> f64 {
    if let Some((_, _, share)) = narrowed_column(predicate, rows, schema, rows.sampled.as_ref()) {
        return share;
    }
    let of = |expr: &Expr| selectivity(expr, rows, schema);
    match predicate {
        Expr::BinaryExpr(binary) => of_binary(binary, rows, schema),
        Expr::Not(inner) => 1.0 - of(inner),
        Expr::IsTrue(inner) => of(inner),
        Expr::IsNotTrue(inner) | Expr::IsFalse(inner) => 1.0 - of(inner),
        Expr::IsNull(inner) => rows.of_expr(inner, schema).nulls,
        Expr::IsNotNull(inner) => 1.0 - rows.of_expr(inner, schema).nulls,
        Expr::Like(like) => of_pattern(like),
        Expr::InList(list) => {
            let values = list.list.len() as f64;
            let column = column_index(&list.expr, schema).and_then(|idx| rows.columns.get(idx));
            let share = match column {
                Some(column) => (values / column.domain.max(1.0)).min(1.0),
                None => (values * EQUALITY).min(0.5),
            };
            if list.negated { 1.0 - share } else { share }
        }
        Expr::Between(between) => {
            let share = COMPARISON * COMPARISON;
            if between.negated { 1.0 - share } else { share }
        }
        Expr::Literal(ScalarValue::Boolean(value), _) => match value {
            Some(true) => 1.0,
            _ => 0.0,
        },
        Expr::Column(_) => 0.5,
        _ => COMPARISON,
    }
}

fn of_binary(binary: &BinaryExpr, rows: &Estimate, schema: &DFSchema) -> f64 {
    let BinaryExpr { left, op, right } = binary;
    let of = |expr: &Expr| selectivity(expr, rows, schema);
    let equal = || {
        let (left, right) = (rows.of_expr(left, schema), rows.of_expr(right, schema));
        1.0 / left.domain.max(right.domain).max(1.0)
    };
    let is_plain = |expr: &Expr| column_index(expr, schema).is_some();
    match op {
        Operator::And => together(vec![of(left), of(right)]),
        Operator::Or => 1.0 - (1.0 - of(left)) * (1.0 - of(right)),
        Operator::Eq if is_plain(left) || is_plain(right) => equal(),
        Operator::NotEq if is_plain(left) || is_plain(right) => 1.0 - equal(),
        Operator::Eq => EQUALITY,
        Operator::NotEq => 1.0 - EQUALITY,
        Operator::IsNotDistinctFrom => equal(),
        Operator::IsDistinctFrom => 1.0 - equal(),
        _ => COMPARISON,
    }
}

fn of_pattern(like: &Like) -> f64 {
    let begins_with_text = matches!(like.pattern.as_ref(),
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _)
            if !text.starts_with(['%', '_']));
    let share = if begins_with_text { PREFIX } else { PATTERN };
    if like.negated { 1.0 - share } else { share }
}
