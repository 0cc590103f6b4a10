//! Which values a column has is read from dictionaries and indexes, not from all rows: for `SELECT DISTINCT c`,
//! `GROUP BY c` and `count(DISTINCT c)`, and for `min` and `max` where the statistics do not have them.
//!
//! That is so for an aggregation that gives the same however often each of its rows comes, over rows that are made of
//! one column alone: filters and expressions of it may be between.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;

use super::decisions::wanted;
use crate::operators::StoredValuesExec;
use crate::scan::{KnownValues, TableScan};
use crate::settings::{Notes, SessionSettings, Use};

/// Functions of a set of values.
const OF_SETS: [&str; 7] = [
    "approx_distinct",
    "bit_and",
    "bit_or",
    "bool_and",
    "bool_or",
    "max",
    "min",
];
/// Functions that DISTINCT makes such.
const OF_DISTINCT: [&str; 3] = ["avg", "count", "sum"];

/// Puts [`StoredValuesExec`] in the place of scans.
#[derive(Debug)]
pub(super) struct StoredValuesRule;

type Plan = Arc<dyn ExecutionPlan>;

impl PhysicalOptimizerRule for StoredValuesRule {
    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> QueryResult<Plan> {
        let settings = config.extensions.get::<SessionSettings>();
        if settings.is_none_or(|settings| settings.operators == Use::Off) {
            return Ok(plan);
        }
        let notes = wanted(config);
        let changed = plan.transform_up(|node| {
            let aggregate = node.downcast_ref::<AggregateExec>();
            let aggregate = aggregate.filter(|aggregate| asks_for_values(aggregate));
            let input = match aggregate {
                Some(aggregate) => with_values(aggregate.input(), notes)?,
                None => None,
            };
            Ok(match input {
                Some(input) => Transformed::yes(over(&node, vec![input])?),
                None => Transformed::no(node),
            })
        });
        changed.data()
    }

    fn name(&self) -> &str {
        "stored_values"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether an aggregation gives the same however often each row comes.
fn asks_for_values(aggregate: &AggregateExec) -> bool {
    let is_of_sets = aggregate.aggr_expr().iter().all(|function| {
        let name = function.fun().name();
        OF_SETS.contains(&name) || (function.is_distinct() && OF_DISTINCT.contains(&name))
    });
    let functions = aggregate.aggr_expr().iter();
    let arguments = functions.flat_map(|function| function.expressions());
    let conditions = aggregate.filter_expr().iter().flatten().cloned();
    let keys = aggregate.group_expr().input_exprs();
    let mut exprs = arguments.chain(conditions).chain(keys);
    let is_raw = aggregate.mode().input_mode() == AggregateInputMode::Raw;
    is_raw && is_of_sets && !exprs.any(|expr| is_volatile(&expr))
}

/// The rows below an aggregation, made of stored values where they are made of one column. `None` without those.
fn with_values(plan: &Plan, notes: Option<&Notes>) -> QueryResult<Option<Plan>> {
    if let Some(scan) = TableScan::of(plan) {
        return values_of(scan, notes);
    }
    if !hands_on(plan) {
        return Ok(None);
    }
    let inputs = plan.children().into_iter();
    let changed = inputs.map(|input| Ok((input, with_values(input, notes)?)));
    let changed = changed.collect::<QueryResult<Vec<_>>>()?;
    if changed.iter().all(|(_, changed)| changed.is_none()) {
        return Ok(None);
    }
    let inputs = changed.into_iter();
    let inputs = inputs.map(|(input, changed)| changed.unwrap_or_else(|| input.clone()));
    over(plan, inputs.collect()).map(Some)
}

/// An operator over other inputs.
fn over(plan: &Plan, inputs: Vec<Plan>) -> QueryResult<Plan> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    plan.clone().replace_children(inputs, options)
}

/// Whether the rows of an operator are made of single rows of its inputs, the same of the same.
fn hands_on(plan: &Plan) -> bool {
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return filter.fetch().is_none() && !is_volatile(filter.predicate());
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let mut exprs = projection.expr().iter();
        return !exprs.any(|projected| is_volatile(&projected.expr));
    }
    plan.is::<UnionExec>()
}

fn values_of(scan: &TableScan, notes: Option<&Notes>) -> QueryResult<Option<Plan>> {
    let (stored, rest) = match scan.stored_values() {
        Some(KnownValues::Stored(stored)) => *stored,
        Some(KnownValues::Unknown(reason)) => {
            if let Some(notes) = notes {
                let (table, column) = (&scan.table.name, scan.schema.field(0).name());
                notes.note(format!(
                    "the values of {table}.{column} are read from all rows: {reason}"
                ));
            }
            return Ok(None);
        }
        None => return Ok(None),
    };
    let values: Plan = Arc::new(StoredValuesExec::new(stored));
    let Some(rest) = rest else {
        return Ok(Some(values));
    };
    UnionExec::try_new(vec![values, DataSourceExec::from_data_source(rest)]).map(Some)
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    const LARGE: &str = "CREATE TABLE l AS SELECT value AS n, ('2020-01-0' || (1 + value % 7))::date AS d, \
        'text ' || (value % 5) AS w FROM generate_series(1, 100000) AS g(value)";

    #[test]
    fn the_values_of_a_text_are_those_of_its_dictionary() {
        let query = "SELECT max(w), min(w) FROM l WHERE w > 'text 1'";
        before_after("stored_values", &[LARGE, query]).is(
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              AggregateExec: mode=Final, gby=[], aggr=[max(l.w), min(l.w)]
                AggregateExec: mode=Partial, gby=[], aggr=[max(l.w), min(l.w)]
                  FilterExec: w@0 > text 1
                    DataSourceExec: HotshelfScan: table=l, columns=[w]
            ",
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              AggregateExec: mode=Final, gby=[], aggr=[max(l.w), min(l.w)]
                AggregateExec: mode=Partial, gby=[], aggr=[max(l.w), min(l.w)]
                  FilterExec: w@0 > text 1
                    StoredValuesExec: table=l, columns=[w], values=[dictionaries]
            ",
        );
    }

    #[test]
    fn a_first_dimension_has_the_values_of_a_date() {
        let index = "CREATE INDEX i ON l USING elf (d)";
        let query = "SELECT DISTINCT d FROM l";
        before_after("stored_values", &[LARGE, query]).is_the_same();
        before_after("stored_values", &[LARGE, index, query]).is(
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              AggregateExec: mode=FinalPartitioned, gby=[d@0 as d], aggr=[]
                AggregateExec: mode=Partial, gby=[d@0 as d], aggr=[]
                  DataSourceExec: HotshelfScan: table=l, columns=[d]
            ",
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              AggregateExec: mode=FinalPartitioned, gby=[d@0 as d], aggr=[]
                AggregateExec: mode=Partial, gby=[d@0 as d], aggr=[]
                  StoredValuesExec: table=l, columns=[d], values=[elf i]
            ",
        );
    }

    #[test]
    fn files_without_a_dictionary_are_read() {
        let more = "INSERT INTO l SELECT value, DATE '2000-01-01', 'text ' || value FROM generate_series(1, 100) AS \
            g(value)";
        let query = "SELECT w FROM l GROUP BY w";
        before_after("stored_values", &[LARGE, more, query]).is(
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              AggregateExec: mode=FinalPartitioned, gby=[w@0 as w], aggr=[]
                AggregateExec: mode=Partial, gby=[w@0 as w], aggr=[]
                  DataSourceExec: HotshelfScan: table=l, columns=[w]
            ",
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              AggregateExec: mode=FinalPartitioned, gby=[w@0 as w], aggr=[]
                AggregateExec: mode=Partial, gby=[w@0 as w], aggr=[]
                  UnionExec
                    StoredValuesExec: table=l, columns=[w], values=[dictionaries]
                    DataSourceExec: HotshelfScan: table=l, columns=[w]
            ",
        );
    }

    #[test]
    fn rows_are_read_where_it_matters_how_many_there_are() {
        for query in [
            "SELECT w, count(*) FROM l GROUP BY w",
            "SELECT count(w), count(DISTINCT w) FROM l",
            "SELECT DISTINCT w, d FROM l",
            "SELECT DISTINCT w FROM l WHERE n = 3",
            "SELECT DISTINCT w || (random() > 0.5) FROM l",
            "SELECT DISTINCT w FROM (SELECT w FROM l LIMIT 3) x",
            "SELECT DISTINCT n FROM l",
            "SELECT DISTINCT w FROM t",
        ] {
            before_after("stored_values", &[LARGE, query]).is_the_same();
        }
    }
}
