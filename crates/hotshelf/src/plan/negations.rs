//! Integers that a condition negates are taken from zero instead: `-t > 5` is tested as `0 - t > 5`.
//!
//! The engine finds out between which bounds a negated column is, and fails where the column's least value has no
//! negative, as `-128` of one byte, whatever its rows are (`docs/upstream/bounds-of-negated-columns.md`). Of a
//! difference it says that the bounds are not known. The values are the same: integers begin anew beyond the greatest.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, Join, LogicalPlan, Operator,
};
use datafusion::optimizer::ApplyOrder;

use super::node_rule::NodeRule;
use crate::settings::SessionSettings;

/// Subtracts in conditions what they negate.
pub(super) const NEGATIONS: NodeRule = NodeRule {
    name: "negations",
    says: Some("what a condition negates is taken from zero"),
    order: ApplyOrder::BottomUp,
    rewrite,
};

fn rewrite(plan: &LogicalPlan, _: &SessionSettings) -> QueryResult<Option<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Filter(filter) if negates(&filter.predicate) => {
            let predicate = subtracted(&filter.predicate, filter.input.schema())?;
            let filter =
                predicate.map(|predicate| Filter::try_new(predicate, filter.input.clone()));
            filter.transpose()?.map(LogicalPlan::Filter)
        }
        LogicalPlan::Join(join) => {
            let Some(filter) = join.filter.as_ref().filter(|filter| negates(filter)) else {
                return Ok(None);
            };
            let schema = join.left.schema().join(join.right.schema())?;
            subtracted(filter, &schema)?.map(|filter| {
                LogicalPlan::Join(Join {
                    filter: Some(filter),
                    ..join.clone()
                })
            })
        }
        _ => None,
    })
}

/// Whether a condition negates something: most do not.
fn negates(condition: &Expr) -> bool {
    let found = condition.exists(|part| Ok(matches!(part, Expr::Negative(_))));
    found.unwrap_or(true)
}

/// The condition with differences; `None` if it negates no integers.
fn subtracted(condition: &Expr, schema: &DFSchema) -> QueryResult<Option<Expr>> {
    let subtracted = condition.clone().transform_up(|expr| {
        let Expr::Negative(negated) = &expr else {
            return Ok(Transformed::no(expr));
        };
        let data_type = negated.get_type(schema)?;
        if !data_type.is_integer() {
            return Ok(Transformed::no(expr));
        }
        let zero = ScalarValue::new_zero(&data_type)?;
        Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(
            Box::new(Expr::Literal(zero, None)),
            Operator::Minus,
            negated.clone(),
        ))))
    })?;
    Ok(subtracted.transformed.then_some(subtracted.data))
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_condition_subtracts_from_zero() {
        let query = "SELECT n FROM t WHERE -v > n";
        before_after("negations", &[query]).is(
            "
            Projection: t.n
              Filter: (- t.v) > t.n
                TableScan: t
            ",
            "
            Projection: t.n
              Filter: Int64(0) - t.v > t.n
                TableScan: t
            ",
        );
    }
}
