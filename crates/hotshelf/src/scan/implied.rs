//! What a predicate over several columns says about each of them alone: zone maps are of single columns.
//!
//! A sort by `a DESC, b` with a limit looks for rows with `a > 5 OR a = 5 AND b < 3`. No zone map decides that, but one
//! of `a` decides `a > 5 OR a = 5`, which all these rows meet.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::utils::collect_columns;

/// Predicates over one column each that every row meets which meets this one, if it reads several columns.
pub(super) fn implied(predicate: &Arc<dyn PhysicalExpr>) -> Vec<Arc<dyn PhysicalExpr>> {
    let mut columns: Vec<Column> = collect_columns(predicate).into_iter().collect();
    if columns.len() < 2 {
        return Vec::new();
    }
    columns.sort_unstable_by_key(Column::index);
    let found = columns.iter().filter_map(|column| about(predicate, column));
    found.collect()
}

/// What follows for a column.
fn about(predicate: &Arc<dyn PhysicalExpr>, column: &Column) -> Option<Arc<dyn PhysicalExpr>> {
    let binary = predicate.downcast_ref::<BinaryExpr>();
    let Some(binary) = binary.filter(|binary| matches!(binary.op(), Operator::And | Operator::Or))
    else {
        let read = collect_columns(predicate);
        let is_about = read.iter().all(|other| other == column);
        return is_about.then(|| predicate.clone());
    };
    let (left, right) = (binary.left(), binary.right());
    let is_or = *binary.op() == Operator::Or;
    if is_or && is_never_met(left) {
        return about(right, column);
    }
    if is_or && is_never_met(right) {
        return about(left, column);
    }
    match (about(left, column), about(right, column)) {
        (Some(left), Some(right)) => Some(Arc::new(BinaryExpr::new(left, *binary.op(), right))),
        _ if is_or => None,
        (left, right) => left.or(right),
    }
}

/// Whether no row meets the predicate, by its form: it is false or NULL, or compares with NULL.
fn is_never_met(predicate: &Arc<dyn PhysicalExpr>) -> bool {
    let literal = |expr: &Arc<dyn PhysicalExpr>| {
        let literal = expr.downcast_ref::<Literal>();
        literal.map(|literal| literal.value().clone())
    };
    if let Some(value) = literal(predicate) {
        return value != ScalarValue::Boolean(Some(true));
    }
    let Some(binary) = predicate.downcast_ref::<BinaryExpr>() else {
        return false;
    };
    let compares = matches!(
        binary.op(),
        Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
    );
    let mut sides = [binary.left(), binary.right()].into_iter();
    compares && sides.any(|side| literal(side).is_some_and(|value| value.is_null()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::expressions::{binary, col, is_null, lit};

    type Expr = Arc<dyn PhysicalExpr>;

    fn schema() -> Schema {
        let field = |name| Field::new(name, DataType::Int32, true);
        Schema::new(vec![field("a"), field("b")])
    }

    fn expr(left: Expr, op: Operator, right: Expr) -> Expr {
        binary(left, op, right, &schema()).unwrap()
    }

    fn column(name: &str) -> Expr {
        col(name, &schema()).unwrap()
    }

    fn implied_texts(predicate: &Expr) -> Vec<String> {
        let implied = implied(predicate);
        implied.iter().map(|expr| expr.to_string()).collect()
    }

    #[test]
    fn the_threshold_of_two_keys_says_something_about_the_first() {
        let greater = expr(column("a"), Operator::Gt, lit(5i32));
        let equal = expr(column("a"), Operator::Eq, lit(5i32));
        let less = expr(column("b"), Operator::Lt, lit(3i32));
        let tie = expr(equal, Operator::And, less);
        let threshold = expr(greater.clone(), Operator::Or, tie.clone());
        assert_eq!(implied_texts(&threshold), ["a@0 > 5 OR a@0 = 5"]);
        assert_eq!(implied_texts(&tie), ["a@0 = 5", "b@1 < 3"]);
        assert!(implied(&greater).is_empty(), "it is of one column itself");
    }

    #[test]
    fn what_no_row_meets_is_not_an_alternative() {
        let null = lit(ScalarValue::Int32(None));
        let equal = expr(column("a"), Operator::Eq, null);
        let equal = expr(is_null(column("a")).unwrap(), Operator::Or, equal);
        let less = expr(column("b"), Operator::Lt, lit(3i32));
        let tie = expr(equal, Operator::And, less);
        let threshold = expr(lit(false), Operator::Or, tie);
        assert_eq!(implied_texts(&threshold), ["a@0 IS NULL", "b@1 < 3"]);
    }

    #[test]
    fn a_comparison_of_columns_says_nothing_about_one() {
        let compared = expr(column("a"), Operator::Lt, column("b"));
        assert!(implied(&compared).is_empty());
    }
}
