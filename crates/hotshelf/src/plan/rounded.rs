//! The places that a decimal is rounded to, settled before types are (`docs/upstream/places-of-round.md`).

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, ExprSchemable, lit};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::scalar::ScalarValue;

use crate::functions::with_settled_type;

/// `round(d, n)`: constant places become a literal of the type that the engine wants. It would cast the literal, and
/// the type of the result changed when the cast was computed. Other places keep all digits.
pub(super) fn with_settled_places(
    mut call: ScalarFunction,
    schema: &DFSchema,
) -> Transformed<Expr> {
    let [value, places, ..] = call.args.as_slice() else {
        return Transformed::no(Expr::ScalarFunction(call));
    };
    // The type of other rounded numbers does not depend on the places.
    let kind = value.get_type(schema);
    if kind.is_ok_and(|kind| !kind.is_decimal()) {
        return Transformed::no(Expr::ScalarFunction(call));
    }
    let mut changed = false;
    match constant(places) {
        Some(value) => {
            if let Some(places) = whole(&value) {
                let literal = lit(places);
                changed = call.args[1] != literal;
                call.args[1] = literal;
            }
        }
        None => {
            if let Some(settled) = with_settled_type(&call.func) {
                changed = true;
                call.func = Arc::new(settled);
            }
        }
    }
    Transformed::new_transformed(Expr::ScalarFunction(call), changed)
}

/// The value of an expression that names nothing, if it has one.
fn constant(expr: &Expr) -> Option<ScalarValue> {
    if let Expr::Literal(value, _) = expr {
        return Some(value.clone());
    }
    if expr.any_column_refs() || expr.is_volatile() {
        return None;
    }
    let schema = Arc::new(DFSchema::empty());
    let context = SimplifyContext::builder().with_schema(schema.clone());
    let simplifier = ExprSimplifier::new(context.build());
    let coerced = simplifier.coerce(expr.clone(), &schema).ok()?;
    match simplifier.simplify(coerced).ok()? {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// Places as the engine wants them. `None`: it refuses them.
fn whole(places: &ScalarValue) -> Option<ScalarValue> {
    let whole = places.cast_to(&DataType::Int32).ok()?;
    (whole.is_null() == places.is_null()).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;
    use super::*;

    #[test]
    fn places_have_32_bits_or_are_null() {
        let eight = ScalarValue::Int32(Some(8));
        assert_eq!(whole(&ScalarValue::UInt8(Some(8))).unwrap(), eight);
        assert_eq!(whole(&ScalarValue::Int64(Some(8))).unwrap(), eight);
        let none = ScalarValue::Int32(None);
        assert_eq!(whole(&ScalarValue::Null).unwrap(), none);
        assert_eq!(whole(&ScalarValue::Utf8(None)).unwrap(), none);
        for wrong in [ScalarValue::from(i64::MAX), ScalarValue::from(1i64 << 31)] {
            assert_eq!(whole(&wrong), None);
        }
    }

    #[test]
    fn constant_places_become_literals() {
        let query = "SELECT round(CAST(n AS DECIMAL(10, 2)), 3 - 2) AS r FROM t";
        before_after("exact_literals", &[query]).is(
            "
            Projection: round(CAST(t.n AS Decimal128(10, 2)), Int64(3) - Int64(2)) AS r
              TableScan: t
            ",
            "
            Projection: round(CAST(t.n AS Decimal128(10, 2)), Int32(1)) AS r
              TableScan: t
            ",
        );
    }
}
