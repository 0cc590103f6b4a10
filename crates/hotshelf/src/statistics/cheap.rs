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

/// Whether a predicate is short enough to be looked at: made physical, it may be dear all the same.
pub(super) fn is_short(predicate: &Expr) -> bool {
    let mut parts = 0;
    let is_long = predicate.exists(|part| {
        parts += 1;
        let is_short = match part {
            Expr::Literal(value, _) => is_small(value),
            Expr::InList(InList { list, .. }) => list.len() <= LIST_MAX,
            _ => true,
        };
        Ok(!is_short || parts > PARTS_MAX)
    });
    !is_long.unwrap_or(true)
}

/// Whether a predicate is short, and its parts are cheap.
pub(super) fn is_cheap(predicate: &Arc<dyn PhysicalExpr>) -> bool {
    let mut parts = 0;
    let is_dear = predicate.exists(|part| {
        parts += 1;
        let is_cheap = if let Some(literal) = part.downcast_ref::<Literal>() {
            is_small(literal.value())
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

fn is_small(value: &ScalarValue) -> bool {
    value.size() <= LITERAL_BYTES_MAX + size_of::<ScalarValue>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::{col, lit};

    #[test]
    fn what_is_long_is_not_looked_at() {
        assert!(is_short(
            &col("a").like(lit("%X%")).and(col("b").gt(lit(1)))
        ));
        assert!(is_short(
            &col("a").in_list((0..100).map(lit).collect(), false)
        ));
        assert!(!is_short(
            &col("a").in_list((0..101).map(lit).collect(), false)
        ));
        assert!(!is_short(&col("a").eq(lit("x".repeat(2_000)))));
        let chain = (0..300).fold(col("a").gt(lit(0)), |chain, n| {
            chain.or(col("b").eq(lit(n)))
        });
        assert!(!is_short(&chain));
    }
}
