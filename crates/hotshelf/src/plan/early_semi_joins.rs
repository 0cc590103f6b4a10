//! Semi joins with few keys come before other joins: `… WHERE k IN (SELECT k … GROUP BY k HAVING …)`.
//!
//! The engine joins everything first and drops what the subquery does not name at the end (TPC-H Q18: 60 million joined
//! rows for 624 keys). Groups that had to pass a test are expected to be few, so that the side of the join that has the
//! key is reduced first; what is joined with it then learns of its keys while the query runs.

use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Filter, LogicalPlan};
use datafusion::optimizer::ApplyOrder;

use super::decisions::{shown, wanted_of};
use super::join_order::estimate;
use super::node_rule::NodeRule;
use super::semi_join::SemiJoin;
use crate::settings::SessionSettings;

/// Moves semi joins with filtered groups below other joins.
pub(super) const EARLY_SEMI_JOINS: NodeRule = NodeRule {
    name: "early_semi_joins",
    says: None,
    order: ApplyOrder::TopDown,
    rewrite,
};

fn rewrite(plan: &LogicalPlan, settings: &SessionSettings) -> QueryResult<Option<LogicalPlan>> {
    let LogicalPlan::Join(join) = plan else {
        return Ok(None);
    };
    let Some(semi) = SemiJoin::of(join) else {
        return Ok(None);
    };
    let Some(test) = test_of_groups(&semi.keys) else {
        return Ok(None);
    };
    let early = semi.below(&join.left)?;
    if let (Some(notes), true) = (wanted_of(settings), early.is_some()) {
        notes.note(why_few(test));
    }
    Ok(early)
}

/// The test that groups had to pass, if rows are such groups.
fn test_of_groups(plan: &LogicalPlan) -> Option<&Filter> {
    match plan {
        LogicalPlan::Projection(projection) => test_of_groups(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => test_of_groups(&alias.input),
        LogicalPlan::Filter(filter) => is_aggregation(&filter.input).then_some(filter),
        _ => None,
    }
}

/// Why the keys are taken for few, for EXPLAIN VERBOSE.
fn why_few(test: &Filter) -> String {
    let groups = match estimate(&test.input) {
        Some(groups) => format!("of about {:.0} groups those", groups.rows),
        None => "groups".to_owned(),
    };
    let test = shown(&test.predicate);
    format!("the keys of a semi-join are taken for few, as they are {groups} that pass {test}")
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
