//! Which predicates are tried on a sample while a statement is planned: those whose parts cost little for each row.
//!
//! At execution a cheap condition goes before a dear one, and batches are on the budget; here every condition sees all
//! rows of the sample.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::InList;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NegativeExpr, NotExpr, TryCastExpr,
};

/// Parts of a predicate, values of a list and bytes of a literal, at most.
const PARTS_MAX: usize = 200;
const LIST_MAX: usize = 100;
const LITERAL_BYTES_MAX: usize = 1 << 10;

/// Functions that make little of little.
const FUNCTIONS: [&str; 22] = [
    "abs",
    "btrim",
    "ceil",
    "character_length",
    "coalesce",
    "date_part",
    "date_trunc",
    "ends_with",
    "floor",
    "length",
    "lower",
    "ltrim",
    "nullif",
    "octet_length",
    "round",
    "rtrim",
    "starts_with",
    "strpos",
    "substr",
    "substring",
    "trim",
    "upper",
];

/// Whether a logical predicate is cheap.
pub(super) fn is_cheap(predicate: &Expr) -> bool {
    let mut parts = 0;
    let is_dear = predicate.exists(|part| {
        parts += 1;
        let is_cheap = match part {
            Expr::Literal(value, _) => is_short(value),
            Expr::InList(InList { list, .. }) => list.len() <= LIST_MAX,
            Expr::ScalarFunction(function) => FUNCTIONS.contains(&function.name()),
            Expr::Column(_)
            | Expr::Alias(_)
            | Expr::BinaryExpr(_)
            | Expr::Like(_)
            | Expr::Not(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNotFalse(_)
            | Expr::IsNotUnknown(_)
            | Expr::Negative(_)
            | Expr::Between(_)
            | Expr::Case(_)
            | Expr::Cast(_)
            | Expr::TryCast(_) => true,
            _ => false,
        };
        Ok(!is_cheap || parts > PARTS_MAX)
    });
    !is_dear.unwrap_or(true)
}

/// The same for a physical one.
pub(super) fn is_cheap_physically(predicate: &Arc<dyn PhysicalExpr>) -> bool {
    let mut parts = 0;
    let is_dear = predicate.exists(|part| {
        parts += 1;
        let is_cheap = if let Some(literal) = part.downcast_ref::<Literal>() {
            is_short(literal.value())
        } else if let Some(list) = part.downcast_ref::<InListExpr>() {
            list.list().len() <= LIST_MAX
        } else if let Some(function) = part.downcast_ref::<ScalarFunctionExpr>() {
            FUNCTIONS.contains(&function.name())
        } else {
            is_plain(part)
        };
        Ok(!is_cheap || parts > PARTS_MAX)
    });
    !is_dear.unwrap_or(true)
}

fn is_plain(part: &Arc<dyn PhysicalExpr>) -> bool {
    part.downcast_ref::<Column>().is_some()
        || part.downcast_ref::<BinaryExpr>().is_some()
        || part.downcast_ref::<LikeExpr>().is_some()
        || part.downcast_ref::<NotExpr>().is_some()
        || part.downcast_ref::<IsNullExpr>().is_some()
        || part.downcast_ref::<IsNotNullExpr>().is_some()
        || part.downcast_ref::<NegativeExpr>().is_some()
        || part.downcast_ref::<CaseExpr>().is_some()
        || part.downcast_ref::<CastExpr>().is_some()
        || part.downcast_ref::<TryCastExpr>().is_some()
}

fn is_short(value: &ScalarValue) -> bool {
    value.size() <= LITERAL_BYTES_MAX + size_of::<ScalarValue>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::functions::expr_fn::{repeat, upper};
    use datafusion::prelude::{col, lit};

    #[test]
    fn what_is_long_or_makes_much_of_little_is_dear() {
        assert!(is_cheap(
            &upper(col("a")).like(lit("%X%")).and(col("b").gt(lit(1)))
        ));
        assert!(is_cheap(
            &col("a").in_list((0..100).map(lit).collect(), false)
        ));
        assert!(!is_cheap(
            &col("a").in_list((0..101).map(lit).collect(), false)
        ));
        assert!(!is_cheap(&repeat(col("a"), lit(1_000)).eq(lit("x"))));
        assert!(!is_cheap(&col("a").eq(lit("x".repeat(2_000)))));
        let chain = (0..300).fold(col("a").gt(lit(0)), |chain, n| {
            chain.or(col("b").eq(lit(n)))
        });
        assert!(!is_cheap(&chain));
    }
}
