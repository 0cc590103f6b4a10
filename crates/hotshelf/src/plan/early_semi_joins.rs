//! Semi joins with few keys come before other joins: `… WHERE k IN (SELECT k … GROUP BY k HAVING …)`.
//!
//! The engine joins everything first and drops what the subquery does not name at the end (TPC-H Q18: 60 million joined
//! rows for 624 keys). Groups that had to pass a test are expected to be few, so that the side of the join that has the
//! key is reduced first; what is joined with it then learns of its keys while the query runs.

use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::ApplyOrder;

use super::node_rule::NodeRule;
use super::semi_join::SemiJoin;
use crate::settings::SessionSettings;

/// Moves semi joins with filtered groups below other joins.
pub(super) const EARLY_SEMI_JOINS: NodeRule = NodeRule {
    name: "early_semi_joins",
    says: "a semi-join with few keys comes before other joins",
    order: ApplyOrder::TopDown,
    rewrite,
};

fn rewrite(plan: &LogicalPlan, _: &SessionSettings) -> QueryResult<Option<LogicalPlan>> {
    let LogicalPlan::Join(join) = plan else {
        return Ok(None);
    };
    let semi = SemiJoin::of(join).filter(|semi| has_few_groups(&semi.keys));
    semi.map_or(Ok(None), |semi| semi.below(&join.left))
}

/// Whether rows are groups that had to pass a test.
fn has_few_groups(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_few_groups(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_few_groups(&alias.input),
        LogicalPlan::Filter(filter) => is_aggregation(&filter.input),
        _ => false,
    }
}

fn is_aggregation(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_aggregation(&projection.input),
        LogicalPlan::Aggregate(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_semi_join_with_few_keys_comes_first() {
        let query = "SELECT t.n, s.name FROM t JOIN s ON t.k = s.k WHERE t.n IN (SELECT n FROM t GROUP BY n \
            HAVING sum(v) > 5)";
        before_after("early_semi_joins", &[query]).is(
            "
            Projection: t.n, s.name
              LeftSemi Join: t.n = __correlated_sq_1.n
                Inner Join: t.k = s.k
                  TableScan: t
                  TableScan: s
                SubqueryAlias: __correlated_sq_1
                  Projection: t.n
                    Filter: sum(t.v) > Int64(5)
                      Aggregate: groupBy=[[t.n]], aggr=[[sum(t.v)]]
                        TableScan: t
            ",
            "
            Projection: t.n, s.name
              Inner Join: t.k = s.k
                LeftSemi Join: t.n = __correlated_sq_1.n
                  TableScan: t
                  SubqueryAlias: __correlated_sq_1
                    Projection: t.n
                      Filter: sum(t.v) > Int64(5)
                        Aggregate: groupBy=[[t.n]], aggr=[[sum(t.v)]]
                          TableScan: t
                TableScan: s
            ",
        );
    }
}
