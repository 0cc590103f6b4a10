//! What EXPLAIN calls DataFusion's operators in a sentence.

use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;

/// A join as EXPLAIN names it.
pub fn join_name(join: &HashJoinExec) -> String {
    let keys = join.on().iter();
    let keys: Vec<String> = keys
        .map(|(left, right)| format!("{left} = {right}"))
        .collect();
    format!("{} join on {}", join.join_type(), keys.join(" and "))
}

/// An aggregation as EXPLAIN names it.
pub fn aggregate_name(aggregate: &AggregateExec) -> String {
    let functions = aggregate.aggr_expr().iter();
    let names: Vec<&str> = functions.map(|function| function.name()).collect();
    format!("aggregation [{}]", names.join(", "))
}
