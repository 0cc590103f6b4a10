//! Which expressions may be computed for rows that the plan as it was written would have dropped before.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator};

/// Whether an expression gives a value whatever its columns are, and always the same. A division, or a cast of text to
/// a number, may fail for a row that another join drops.
pub(crate) fn cannot_fail(expr: &Expr, schema: &DFSchema) -> bool {
    let mut safe = true;
    let visited = expr.apply(|part| {
        safe &= is_safe(part, schema);
        Ok(match safe {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    });
    visited.is_ok() && safe
}

/// Whether nothing fails that scans, joins and what lies between them compute, whatever rows they have.
pub(crate) fn rows_cannot_fail(plan: &LogicalPlan) -> bool {
    let inputs = || plan.inputs().into_iter().all(rows_cannot_fail);
    match plan {
        LogicalPlan::Join(join) => {
            let mut keys = join.on.iter();
            let are_safe = |(left, right): &(Expr, Expr)| {
                cannot_fail(left, join.left.schema()) && cannot_fail(right, join.right.schema())
            };
            let mut tests = join.filter.iter();
            keys.all(are_safe) && tests.all(|test| cannot_fail(test, &join.schema)) && inputs()
        }
        LogicalPlan::Filter(filter) => {
            cannot_fail(&filter.predicate, filter.input.schema()) && inputs()
        }
        LogicalPlan::Projection(projection) => {
            let schema = projection.input.schema();
            let mut exprs = projection.expr.iter();
            exprs.all(|expr| cannot_fail(expr, schema)) && inputs()
        }
        LogicalPlan::TableScan(scan) => {
            let name = scan.table_name.clone();
            let schema = DFSchema::try_from_qualified_schema(name, &scan.source.schema());
            let mut filters = scan.filters.iter();
            scan.filters.is_empty()
                || schema.is_ok_and(|schema| filters.all(|test| cannot_fail(test, &schema)))
        }
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::Union(_) => inputs(),
        // What is computed of all rows fails in any case.
        _ => true,
    }
}

/// Whether the topmost operation of an expression cannot fail.
fn is_safe(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::Column(_)
        | Expr::Literal(..)
        | Expr::Alias(_)
        | Expr::Like(_)
        | Expr::Not(_)
        | Expr::IsNotNull(_)
        | Expr::IsNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Between(_)
        | Expr::TryCast(_)
        | Expr::InList(_) => true,
        Expr::BinaryExpr(binary) => is_safe_operator(binary) || is_safe_sum(binary, schema),
        Expr::ScalarFunction(call) => is_safe_function(call, schema),
        Expr::Cast(cast) => is_safe_cast(cast, schema),
        _ => false,
    }
}

/// Functions of texts that have a value for every text: no part of one has fewer than no characters. A date has every
/// part that the planner knows.
fn is_safe_function(call: &ScalarFunction, schema: &DFSchema) -> bool {
    let is_date = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Date32));
    let is_count = |expr: &Expr| matches!(expr, Expr::Literal(ScalarValue::Int64(Some(count)), _) if *count >= 0);
    match call.func.name() {
        "lower" | "upper" | "btrim" | "ltrim" | "rtrim" | "character_length" => true,
        "substr" => call.args.iter().skip(1).all(is_count),
        "date_part" => matches!(call.args.as_slice(), [Expr::Literal(..), date] if is_date(date)),
        _ => false,
    }
}

/// Comparisons and logic; a few days more or less are a date for every date that is likely to be stored.
fn is_safe_operator(binary: &BinaryExpr) -> bool {
    let is_days = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if is_few_days(value));
    match binary.op {
        Operator::Plus | Operator::Minus => is_days(&binary.right),
        Operator::Eq
        | Operator::NotEq
        | Operator::Lt
        | Operator::LtEq
        | Operator::Gt
        | Operator::GtEq
        | Operator::IsDistinctFrom
        | Operator::IsNotDistinctFrom => true,
        op => op.is_logic_operator(),
    }
}

/// Sums, differences and products of floating-point numbers, of integers, which begin anew beyond the greatest, and of
/// decimals whose results have room in 128 bits.
fn is_safe_sum(binary: &BinaryExpr, schema: &DFSchema) -> bool {
    use DataType::{Decimal128, Float32, Float64};
    // Ten to this power has room 1.7 times.
    const DIGITS_MAX: i32 = 38;
    let (Ok(left), Ok(right)) = (binary.left.get_type(schema), binary.right.get_type(schema))
    else {
        return false;
    };
    let is_sum = matches!(
        binary.op,
        Operator::Plus | Operator::Minus | Operator::Multiply
    );
    let [(left, left_scale), (right, right_scale)] = match (left, right) {
        (Float32 | Float64, Float32 | Float64) => return is_sum,
        (left, right) if left.is_integer() && right.is_integer() => return is_sum,
        (Decimal128(left, left_scale), Decimal128(right, right_scale)) => {
            [(left, left_scale), (right, right_scale)]
                .map(|(digits, scale)| (i32::from(digits), i32::from(scale)))
        }
        _ => return false,
    };
    match binary.op {
        Operator::Plus | Operator::Minus => {
            let scale = left_scale.max(right_scale);
            let (left, right) = (left + scale - left_scale, right + scale - right_scale);
            left.max(right) <= DIGITS_MAX && left.min(right) < DIGITS_MAX
        }
        Operator::Multiply => left + right <= DIGITS_MAX,
        _ => false,
    }
}

fn is_few_days(value: &ScalarValue) -> bool {
    const DAYS_MAX: i32 = 10_000;
    match value {
        ScalarValue::IntervalMonthDayNano(Some(interval)) => {
            let whole = interval.months == 0 && interval.nanoseconds == 0;
            whole && interval.days.abs() < DAYS_MAX
        }
        ScalarValue::IntervalDayTime(Some(interval)) => {
            interval.milliseconds == 0 && interval.days.abs() < DAYS_MAX
        }
        _ => false,
    }
}

/// A cast that has a value for every value.
fn is_safe_cast(cast: &Cast, schema: &DFSchema) -> bool {
    let Ok(from) = cast.expr.get_type(schema) else {
        return false;
    };
    let to = cast.field.data_type();
    let is_text = |data_type: &DataType| {
        use DataType::{LargeUtf8, Utf8, Utf8View};
        matches!(data_type, Utf8 | LargeUtf8 | Utf8View)
    };
    if from == *to || (is_text(&from) && is_text(to)) {
        return true;
    }
    let is_number = from.is_integer() || from.is_decimal() || from == DataType::Float32;
    match to {
        DataType::Float64 => is_number,
        DataType::Decimal128(precision, scale) => digits(&from).is_some_and(|(whole, fraction)| {
            let (precision, scale) = (i32::from(*precision), i32::from(*scale));
            fraction <= scale && whole <= precision - scale
        }),
        _ if from.is_integer() && to.is_integer() => widens(&from, to),
        _ => false,
    }
}

/// Decimal digits before and after the point.
fn digits(data_type: &DataType) -> Option<(i32, i32)> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => {
            let (precision, scale) = (i32::from(*precision), i32::from(*scale));
            (precision - scale, scale)
        }
        _ => return None,
    })
}

/// Whether every integer of one type is one of the other.
fn widens(from: &DataType, to: &DataType) -> bool {
    let bytes = |data_type: &DataType| data_type.primitive_width().unwrap_or(0);
    let signs = from.is_signed_integer() == to.is_signed_integer() || to.is_signed_integer();
    signs && bytes(from) < bytes(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{Field, Schema};
    use datafusion::functions::expr_fn::{lower, substring, to_hex};
    use datafusion::logical_expr::{cast, col, lit};

    #[test]
    fn what_fails_for_some_value_is_not_safe() {
        let fields = [
            ("i", DataType::Int32),
            ("s", DataType::Utf8),
            ("d", DataType::Decimal128(15, 2)),
            ("e", DataType::Decimal128(38, 4)),
        ];
        let fields = fields.map(|(name, data_type)| Field::new(name, data_type, true));
        let schema = DFSchema::try_from(Schema::new(fields.to_vec())).unwrap();
        let safe = [
            col("i").eq(lit(1)).or(col("s").like(lit("a%"))),
            cast(col("i"), DataType::Int64).eq(lit(1_i64)),
            cast(col("i"), DataType::Decimal128(12, 2)).gt(lit(1)),
            substring(lower(col("s")), lit(1_i64), lit(2_i64)).eq(lit("ab")),
            (col("d") * col("d") - col("e")).gt(col("d")),
            (col("i") * col("i") - lit(53)).eq(col("i") + lit(1)),
        ];
        for expr in safe {
            assert!(cannot_fail(&expr, &schema), "{expr}");
        }
        let unsafe_ones = [
            (lit(1) / col("i")).eq(lit(1)),
            (col("i") % col("i")).eq(lit(1)),
            cast(col("s"), DataType::Int32).eq(lit(1)),
            cast(col("i"), DataType::Int16).eq(lit(1)),
            cast(col("i"), DataType::Decimal128(10, 2)).gt(lit(1)),
            (col("d") * col("e")).gt(col("d")),
            (col("e") + col("e")).gt(col("d")),
            (col("e") / col("d")).gt(col("d")),
            substring(col("s"), lit(1_i64), lit(-2_i64)).eq(lit("ab")),
            substring(col("s"), lit(1_i64), col("i")).eq(lit("ab")),
            to_hex(col("i")).eq(lit("ab")),
        ];
        for expr in unsafe_ones {
            assert!(!cannot_fail(&expr, &schema), "{expr}");
        }
    }
}
