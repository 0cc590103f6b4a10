//! Literals beside decimals and floats, before types are coerced.
//!
//! The engine reads `0.1` as a double. Next to a decimal that makes both sides doubles, and `d = -9128.22` misses its
//! row (`docs/upstream/decimal-literals.md`): such a literal becomes the decimal it was written as, and a decimal
//! literal next to a float becomes a double. And -0.0 is not 0.0 in longer lists, which the engine looks up by bits,
//! and in scans, which compare in the total order of floats (`docs/upstream/negative-zero.md`): a list with one zero
//! gets both, and comparisons with zero are rewritten so that they mean the same in either order. EXTRACT is guarded
//! against years that no timestamp has (`docs/upstream/years-out-of-range.md`). The places that a number is rounded to
//! are of the type that settles the type of the result (`docs/upstream/places-of-round.md`).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::expr::{Between, BinaryExpr, Case, Cast, InList, ScalarFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, lit, when};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

use super::expressions::with_names_kept;
use super::rounded::with_settled_places;
use crate::functions::with_years_in_range;

/// Functions whose arguments are brought to one type.
const UNIFYING: &[&str] = &["coalesce", "nullif", "nvl", "ifnull", "greatest", "least"];
/// Digits of the widest decimal.
const DIGITS_MAX: usize = 38;

#[derive(Debug)]
pub(super) struct ExactLiterals;

impl AnalyzerRule for ExactLiterals {
    fn name(&self) -> &str {
        "exact_literals"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> QueryResult<LogicalPlan> {
        match super::has_expression(&plan, may_change)? {
            true => plan.transform_up_with_subqueries(rewrite_node).data(),
            false => Ok(plan),
        }
    }
}

/// Whether the expression is of a kind that could change what is around it.
fn may_change(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Float64(_) | ScalarValue::Float32(_), _) => true,
        Expr::Literal(ScalarValue::Int64(value), _) => *value == Some(0),
        Expr::Literal(ScalarValue::Decimal128(..), _) => true,
        Expr::Cast(cast) => is_decimal_text(cast),
        Expr::ScalarFunction(call) => ["date_part", "round"].contains(&call.name()),
        _ => false,
    }
}

fn rewrite_node(plan: LogicalPlan) -> QueryResult<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let rewritten = with_names_kept(plan, |expr| {
        expr.transform_up(|expr| rewrite(expr, &schema))
    })?;
    match rewritten.transformed {
        true => rewritten.map_data(|plan| plan.recompute_schema()),
        false => Ok(rewritten),
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> QueryResult<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(binary) => rewrite_binary(binary, schema),
        Expr::Between(between) => rewrite_between(between, schema),
        Expr::InList(list) => rewrite_list(list, schema),
        Expr::Case(case) => rewrite_case(case, schema),
        Expr::ScalarFunction(call) if UNIFYING.contains(&call.name()) => {
            return rewrite_call(call, schema);
        }
        Expr::ScalarFunction(call) if call.name() == "round" => with_settled_places(call, schema),
        Expr::ScalarFunction(call) => match with_years_in_range(&call.func) {
            Some(guarded) => {
                let call = ScalarFunction::new_udf(guarded.into(), call.args);
                Transformed::yes(Expr::ScalarFunction(call))
            }
            None => Transformed::no(Expr::ScalarFunction(call)),
        },
        other => Transformed::no(other),
    })
}

fn rewrite_binary(mut binary: BinaryExpr, schema: &DFSchema) -> Transformed<Expr> {
    use Operator::{Minus, Modulo, Multiply, Plus};
    let computes = matches!(binary.op, Plus | Minus | Multiply | Modulo);
    if !computes && !binary.op.supports_propagation() {
        return Transformed::no(Expr::BinaryExpr(binary));
    }
    if !computes && let Some(expr) = compare_with_zero(&binary, schema) {
        return Transformed::yes(expr);
    }
    let mut changed = unify([&mut *binary.left, &mut *binary.right], schema);
    if !computes {
        changed |= unsign_zeros(vec![&mut *binary.left, &mut *binary.right], schema);
    }
    Transformed::new_transformed(Expr::BinaryExpr(binary), changed)
}

fn rewrite_between(mut between: Between, schema: &DFSchema) -> Transformed<Expr> {
    let mut changed = unify(
        [&mut *between.expr, &mut *between.low, &mut *between.high],
        schema,
    );
    if is_float(&between.expr, schema) {
        for (bound, zero) in [(&mut between.low, -0.0), (&mut between.high, 0.0)] {
            if is_zero(bound) {
                **bound = lit(zero);
                changed = true;
            }
        }
    } else {
        let sides = vec![&mut *between.expr, &mut *between.low, &mut *between.high];
        changed |= unsign_zeros(sides, schema);
    }
    Transformed::new_transformed(Expr::Between(between), changed)
}

fn rewrite_list(mut list: InList, schema: &DFSchema) -> Transformed<Expr> {
    let exprs = std::iter::once(&mut *list.expr).chain(&mut list.list);
    let mut changed = unify(exprs, schema);
    let has_zero = |zero: &Expr| is_zero(zero) && has_two_zeros(&list.expr, zero, schema);
    if list.list.iter().any(has_zero) {
        list.list.retain(|expr| !is_zero(expr));
        list.list.extend([lit(-0.0), lit(0.0)]);
        changed = true;
    } else {
        let exprs = std::iter::once(&mut *list.expr).chain(&mut list.list);
        changed |= unsign_zeros(exprs.collect(), schema);
    }
    Transformed::new_transformed(Expr::InList(list), changed)
}

fn rewrite_case(mut case: Case, schema: &DFSchema) -> Transformed<Expr> {
    let mut changed = compare_bases_with_zero(&mut case, schema);
    if let Some(base) = &mut case.expr {
        let whens = case.when_then_expr.iter_mut().map(|(when, _)| &mut **when);
        let mut compared: Vec<_> = std::iter::once(&mut **base).chain(whens).collect();
        changed |= unify(compared.iter_mut().map(|expr| &mut **expr), schema);
        changed |= unsign_zeros(compared, schema);
    }
    let thens = case.when_then_expr.iter_mut().map(|(_, then)| &mut **then);
    let results = thens.chain(case.else_expr.iter_mut().map(|expr| &mut **expr));
    changed |= unify(results, schema);
    Transformed::new_transformed(Expr::Case(case), changed)
}

/// `CASE f WHEN 0 THEN …` as `CASE WHEN f = 0 THEN …`, with comparisons that treat both zeros alike.
fn compare_bases_with_zero(case: &mut Case, schema: &DFSchema) -> bool {
    let Some(base) = &case.expr else {
        return false;
    };
    let compare = |when: &Expr| BinaryExpr {
        left: base.clone(),
        op: Operator::Eq,
        right: Box::new(when.clone()),
    };
    let whens = case.when_then_expr.iter();
    let comparisons: Vec<_> = whens.map(|(when, _)| compare(when)).collect();
    let rewritten: Vec<_> = comparisons
        .iter()
        .map(|comparison| compare_with_zero(comparison, schema))
        .collect();
    if rewritten.iter().all(Option::is_none) {
        return false;
    }
    let conditions = rewritten.into_iter().zip(comparisons);
    for ((when, _), (rewritten, plain)) in case.when_then_expr.iter_mut().zip(conditions) {
        **when = rewritten.unwrap_or(Expr::BinaryExpr(plain));
    }
    case.expr = None;
    true
}

fn rewrite_call(mut call: ScalarFunction, schema: &DFSchema) -> QueryResult<Transformed<Expr>> {
    if let Some(expr) = nullif_zero(&call, schema)? {
        return Ok(Transformed::yes(expr));
    }
    let mut changed = unify(&mut call.args, schema);
    if call.name() == "nullif"
        && let [value, other] = call.args.as_mut_slice()
        && is_exact(value, schema)
    {
        changed |= unsign(other);
    }
    Ok(Transformed::new_transformed(
        Expr::ScalarFunction(call),
        changed,
    ))
}

/// `nullif(f, 0)` as a CASE whose comparison treats both zeros alike.
fn nullif_zero(call: &ScalarFunction, schema: &DFSchema) -> QueryResult<Option<Expr>> {
    let ("nullif", [value, other]) = (call.name(), call.args.as_slice()) else {
        return Ok(None);
    };
    let comparison = BinaryExpr {
        left: Box::new(value.clone()),
        op: Operator::Eq,
        right: Box::new(other.clone()),
    };
    let Some(equal) = compare_with_zero(&comparison, schema) else {
        return Ok(None);
    };
    let null = ScalarValue::try_from(value.get_type(schema)?)?;
    when(equal, lit(null)).otherwise(value.clone()).map(Some)
}

/// Makes decimals of float literals that are compared or mixed with decimals and with no other floats, and doubles of
/// decimal literals that are compared or mixed with floats: the engine would make decimals of the floats.
fn unify<'a>(exprs: impl IntoIterator<Item = &'a mut Expr>, schema: &DFSchema) -> bool {
    let (mut written_floats, mut written_decimals) = (Vec::new(), Vec::new());
    let (mut decimals, mut floats) = (false, false);
    for expr in exprs {
        if float_literal(expr).is_some() {
            written_floats.push(expr);
            continue;
        }
        if let Some(value) = decimal_literal(expr) {
            written_decimals.push((expr, value));
            continue;
        }
        let kind = expr.get_type(schema);
        decimals |= kind.as_ref().is_ok_and(DataType::is_decimal);
        floats |= kind.is_ok_and(|kind| kind.is_floating());
    }
    let mut changed = false;
    if floats {
        for (expr, value) in written_decimals {
            *expr = lit(value);
            changed = true;
        }
    } else if decimals || !written_decimals.is_empty() {
        for expr in written_floats {
            if let Some(value) = float_literal(expr).and_then(exact_decimal) {
                *expr = lit(value);
                changed = true;
            }
        }
    }
    changed
}

/// The double next to a literal that is a decimal: a parameter's value, or a number that was written with more digits
/// than a double has.
fn decimal_literal(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Literal(value @ ScalarValue::Decimal128(Some(_), ..), _) => {
            value.to_string().parse().ok()
        }
        Expr::Negative(inner) => decimal_literal(inner).map(|value| -value),
        Expr::Cast(cast) if is_decimal_text(cast) => match cast.expr.as_ref() {
            Expr::Literal(text, _) => {
                let value = text.cast_to(cast.field.data_type()).ok()?;
                value.to_string().parse().ok()
            }
            _ => None,
        },
        _ => None,
    }
}

fn is_decimal_text(cast: &Cast) -> bool {
    cast.field.data_type().is_decimal()
        && matches!(
            cast.expr.as_ref(),
            Expr::Literal(ScalarValue::Utf8(Some(_)), _)
        )
}

/// The value of a literal such as `1.5` or `-1.5`.
fn float_literal(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Literal(ScalarValue::Float64(value), _) => *value,
        Expr::Negative(inner) => float_literal(inner).map(|value| -value),
        _ => None,
    }
}

/// The shortest decimal that reads as this double: what was written, for up to 15 digits.
fn exact_decimal(value: f64) -> Option<ScalarValue> {
    if !value.is_finite() {
        return None;
    }
    let text = format!("{}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits = [whole.trim_start_matches('0'), fraction].concat();
    if digits.len() > DIGITS_MAX {
        return None;
    }
    let unscaled: i128 = format!("0{digits}").parse().ok()?;
    let precision = digits.len().max(1) as u8;
    let signed = if value < 0.0 { -unscaled } else { unscaled };
    Some(ScalarValue::Decimal128(
        Some(signed),
        precision,
        fraction.len() as i8,
    ))
}

fn is_float(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| kind.is_floating())
}

/// Whether what is compared with a zero may be -0.0: a float, or a text that is read as one.
fn has_two_zeros(value: &Expr, zero: &Expr, schema: &DFSchema) -> bool {
    let is_text = || {
        let kind = value.get_type(schema);
        is_float(zero, schema) && kind.is_ok_and(|kind| kind.is_string())
    };
    is_float(value, schema) || is_text()
}

/// Whether the expression is the literal 0, 0.0 or -0.0, or one as a float.
fn is_zero(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Float64(value), _) => *value == Some(0.0),
        Expr::Literal(ScalarValue::Float32(value), _) => *value == Some(0.0),
        Expr::Literal(ScalarValue::Int64(value), _) => *value == Some(0),
        Expr::Negative(inner) => is_zero(inner),
        Expr::Cast(cast) => cast.field.data_type().is_floating() && is_zero(&cast.expr),
        _ => false,
    }
}

/// Makes 0.0 of each literal -0.0 that is compared with a number that is not a float: once the number is cast to a
/// double, its zero is 0.0.
fn unsign_zeros(exprs: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    if !exprs.iter().any(|expr| is_exact(expr, schema)) {
        return false;
    }
    let mut changed = false;
    for expr in exprs {
        changed |= unsign(expr);
    }
    changed
}

/// Makes 0.0 of a literal -0.0.
fn unsign(expr: &mut Expr) -> bool {
    let may_be_negative = match &*expr {
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => value.is_sign_negative(),
        Expr::Literal(ScalarValue::Float32(Some(value)), _) => value.is_sign_negative(),
        Expr::Negative(_) | Expr::Cast(_) => true,
        _ => false,
    };
    let changed = may_be_negative && is_zero(expr);
    if changed {
        *expr = lit(0.0);
    }
    changed
}

/// Whether the expression is a number and not a float.
fn is_exact(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema)
        .is_ok_and(|kind| kind.is_numeric() && !kind.is_floating())
}

/// A comparison of a float with zero as one that treats both zeros alike.
fn compare_with_zero(binary: &BinaryExpr, schema: &DFSchema) -> Option<Expr> {
    let (value, op, zero) = if is_zero(&binary.right) {
        (&binary.left, binary.op, &binary.right)
    } else if is_zero(&binary.left) {
        (&binary.right, binary.op.swap()?, &binary.left)
    } else {
        return None;
    };
    let is_literal = float_literal(value).is_some() || is_zero(value);
    if is_literal || value.is_volatile() || !has_two_zeros(value, zero, schema) {
        return None;
    }
    let value = || value.as_ref().clone();
    Some(match op {
        Operator::Eq => value().between(lit(-0.0), lit(0.0)),
        Operator::NotEq => value().not_between(lit(-0.0), lit(0.0)),
        Operator::Lt => value().lt(lit(-0.0)),
        Operator::LtEq => value().lt_eq(lit(0.0)),
        Operator::Gt => value().gt(lit(0.0)),
        Operator::GtEq => value().gt_eq(lit(-0.0)),
        Operator::IsDistinctFrom => value().between(lit(-0.0), lit(0.0)).is_not_true(),
        Operator::IsNotDistinctFrom => value().between(lit(-0.0), lit(0.0)).is_true(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;
    use super::*;

    #[test]
    fn doubles_become_the_decimals_they_were_written_as() {
        let decimal = |value| exact_decimal(value).map(|value| value.to_string());
        for (value, expected) in [
            (-9128.22, "-9128.22"),
            (0.07, "0.07"),
            (5.0, "5"),
            (1e20, "100000000000000000000"),
            (0.0, "0"),
        ] {
            assert_eq!(decimal(value).as_deref(), Some(expected), "{value}");
        }
        assert_eq!(decimal(f64::INFINITY), None);
        assert_eq!(decimal(1e300), None);
        assert_eq!(decimal(1e-300), None);
    }

    #[test]
    fn a_literal_beside_a_decimal_is_one() {
        let query = "SELECT n FROM t WHERE CAST(n AS DECIMAL(10,2)) < 0.1";
        before_after("exact_literals", &[query]).is(
            "
            Projection: t.n
              Filter: CAST(t.n AS Decimal128(10, 2)) < Float64(0.1)
                TableScan: t
            ",
            "
            Projection: t.n
              Filter: CAST(t.n AS Decimal128(10, 2)) < Decimal128(0.1,1,1)
                TableScan: t
            ",
        );
    }
}
