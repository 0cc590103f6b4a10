//! Group keys that are literals make no groups: `GROUP BY k, true` is computed by `k` alone.
//!
//! The engine adds such a key to every correlated subquery that aggregates. Its own rule drops more than literals, and
//! with them what keeps an aggregation over no rows empty (`docs/upstream/constant-group-keys.md`).

use std::sync::Arc;

use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::ApplyOrder;

use super::node_rule::NodeRule;
use crate::settings::SessionSettings;

/// Takes literals out of group keys that have a column, too.
pub(super) const DROP_LITERAL_KEYS: NodeRule = NodeRule {
    name: "drop_literal_keys",
    says: Some("keys that are literals make no groups"),
    order: ApplyOrder::BottomUp,
    rewrite,
};

fn rewrite(plan: &LogicalPlan, _: &SessionSettings) -> QueryResult<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) if is_reducible(aggregate) => {
            without_literals(aggregate.clone()).map(Some)
        }
        _ => Ok(None),
    }
}

/// Whether a key is a literal and another one a column, so that no rows still make no groups.
fn is_reducible(aggregate: &Aggregate) -> bool {
    let keys = &aggregate.group_expr;
    keys.iter().any(is_literal) && keys.iter().any(|key| matches!(key, Expr::Column(_)))
}

fn is_literal(key: &Expr) -> bool {
    matches!(key.clone().unalias(), Expr::Literal(..))
}

/// The aggregation by the other keys, under a projection that puts the literals back where they were.
fn without_literals(aggregate: Aggregate) -> QueryResult<LogicalPlan> {
    let Aggregate {
        input,
        group_expr,
        aggr_expr,
        ..
    } = aggregate;
    let keys = group_expr.iter().filter(|key| !is_literal(key)).cloned();
    let reduced = Aggregate::try_new(Arc::clone(&input), keys.collect(), aggr_expr)?;
    let columns = reduced.schema.columns();
    let mut computed = columns.into_iter().map(Expr::Column);
    let mut outputs = Vec::new();
    for key in group_expr {
        outputs.extend(match is_literal(&key) {
            true => Some(key),
            false => computed.next(),
        });
    }
    outputs.extend(computed);
    LogicalPlanBuilder::from(LogicalPlan::Aggregate(reduced))
        .project(outputs)?
        .build()
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_literal_makes_no_groups() {
        let query = "SELECT k, count(*) FROM t GROUP BY k, true";
        before_after("drop_literal_keys", &[query]).is(
            "
            Projection: t.k, count(Int64(1)) AS count(*)
              Aggregate: groupBy=[[t.k, Boolean(true)]], aggr=[[count(Int64(1))]]
                TableScan: t
            ",
            "
            Projection: t.k, count(Int64(1)) AS count(*)
              Projection: t.k, Boolean(true), count(Int64(1))
                Aggregate: groupBy=[[t.k]], aggr=[[count(Int64(1))]]
                  TableScan: t
            ",
        );
    }
}
