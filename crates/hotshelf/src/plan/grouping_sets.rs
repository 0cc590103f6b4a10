//! `GROUP BY ROLLUP (a, b)`: rows are grouped by all keys once, and those groups into the sets.
//!
//! The engine puts every row into a group of every set. Where one of the sets has all keys, the states of its groups
//! are enough for the others (Gray et al., ICDE 1996), and a star pipeline can make them. Which of those groups the
//! others are made of is for `operators/aggregate/roll_up`.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::Aggregate;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, lit};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::projection::ProjectionExec;

use crate::operators::SpillingAggregateExec;
use crate::settings::{SessionSettings, Use};

/// Splits partial aggregations by grouping sets in two, where the second is to be Hotshelf's: of such states the engine
/// spills one column less than it reads again.
#[derive(Debug)]
pub(super) struct GroupBeforeSets;

impl PhysicalOptimizerRule for GroupBeforeSets {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let settings = config.extensions.get::<SessionSettings>();
        let Some(settings) = settings.filter(|settings| settings.operators != Use::Off) else {
            return Ok(plan);
        };
        plan.transform_up(|node| {
            let aggregate = node.downcast_ref::<AggregateExec>();
            let Some(aggregate) = aggregate.filter(|aggregate| is_split(aggregate)) else {
                return Ok(Transformed::no(node));
            };
            let sets = sets_of_groups(aggregate)?;
            if SpillingAggregateExec::replacing(&sets)?.is_none() {
                return Ok(Transformed::no(node));
            }
            if settings.decisions.are_wanted() {
                settings.decisions.note(why_split(aggregate));
            }
            Ok(Transformed::yes(sets))
        })
        .data()
    }

    fn name(&self) -> &str {
        "group_before_sets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether the groups of one set are enough for all, and there are several.
fn is_split(aggregate: &AggregateExec) -> bool {
    let keys = aggregate.group_expr();
    let has_all = |set: &Vec<bool>| set.iter().all(|is_null| !is_null);
    *aggregate.mode() == AggregateMode::Partial
        && keys.has_grouping_set()
        && keys.groups().len() > 1
        && keys.groups().iter().any(has_all)
        && aggregate.limit_options().is_none()
        && aggregate
            .aggr_expr()
            .iter()
            .all(|function| !function.is_distinct() && function.order_bys().is_empty())
}

/// Why groups are made before the sets, for EXPLAIN VERBOSE.
fn why_split(aggregate: &AggregateExec) -> String {
    let sets = aggregate.group_expr();
    let keys = sets.expr().iter().map(|(_, name)| name.as_str());
    let keys: Vec<&str> = keys.collect();
    format!(
        "rows are grouped by all keys ({}) once, and those groups into the {} sets: each row is in one group instead \
         of one for each set",
        keys.join(", "),
        sets.groups().len()
    )
}

/// The states of the groups of several sets, made of those of groups by all keys.
fn sets_of_groups(aggregate: &AggregateExec) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let sets = aggregate.group_expr();
    let functions = aggregate.aggr_expr().to_vec();
    let groups = AggregateExec::try_new(
        AggregateMode::Partial,
        PhysicalGroupBy::new_single(sets.expr().to_vec()),
        functions.clone(),
        aggregate.filter_expr().to_vec(),
        Arc::clone(aggregate.input()),
        aggregate.input_schema(),
    )?;
    let key_count = sets.expr().len();
    let states = groups.schema();
    let column = |at: usize| {
        let name = states.field(at).name().clone();
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&name, at));
        (column, name)
    };
    // States are looked for behind the keys and the number of the set.
    let mut outputs: Vec<_> = (0..key_count).map(column).collect();
    outputs.push((lit(0_u8), Aggregate::INTERNAL_GROUPING_ID.to_owned()));
    outputs.extend((key_count..states.fields().len()).map(column));
    let numbered = ProjectionExec::try_new(outputs, Arc::new(groups))?;
    let sets = PhysicalGroupBy::new(
        (0..key_count).map(column).collect(),
        sets.null_expr().to_vec(),
        sets.groups().to_vec(),
        true,
    );
    let none = vec![None; functions.len()];
    let sets = AggregateExec::try_new(
        AggregateMode::PartialReduce,
        sets,
        functions,
        none,
        Arc::new(numbered),
        aggregate.input_schema(),
    )?;
    Ok(Arc::new(sets))
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn rows_are_grouped_by_all_keys_before_the_sets() {
        let query = "SELECT k, v, sum(n) FROM t GROUP BY ROLLUP (k, v)";
        before_after("group_before_sets", &[query]).is(
            "
            ProjectionExec: expr=[k@0 as k, v@1 as v, sum(t.n)@3 as sum(t.n)]
              AggregateExec: mode=FinalPartitioned, gby=[k@0 as k, v@1 as v, __grouping_id@2 as __grouping_id], \
                  aggr=[sum(t.n)]
                RepartitionExec: partitioning=Hash([k@0, v@1, __grouping_id@2], 2), input_partitions=2
                  ForgetExec
                    AggregateExec: mode=Partial, gby=[(NULL as k, NULL as v), (k@0 as k, NULL as v), (k@0 as k, v@2 \
                        as v)], aggr=[sum(t.n)]
                      RepartitionExec: partitioning=RoundRobinBatch(2), input_partitions=1
                        DataSourceExec: HotshelfScan: table=t, columns=[k, n, v]
            ",
            "
            ProjectionExec: expr=[k@0 as k, v@1 as v, sum(t.n)@3 as sum(t.n)]
              AggregateExec: mode=FinalPartitioned, gby=[k@0 as k, v@1 as v, __grouping_id@2 as __grouping_id], \
                  aggr=[sum(t.n)]
                RepartitionExec: partitioning=Hash([k@0, v@1, __grouping_id@2], 2), input_partitions=2
                  ForgetExec
                    AggregateExec: mode=PartialReduce, gby=[(NULL as k, NULL as v), (k@0 as k, NULL as v), (k@0 as \
                        k, v@1 as v)], aggr=[sum(t.n)]
                      ProjectionExec: expr=[k@0 as k, v@1 as v, 0 as __grouping_id, sum(t.n)[sum]@2 as sum(t.n)[sum]]
                        AggregateExec: mode=Partial, gby=[k@0 as k, v@2 as v], aggr=[sum(t.n)]
                          RepartitionExec: partitioning=RoundRobinBatch(2), input_partitions=1
                            DataSourceExec: HotshelfScan: table=t, columns=[k, n, v]
            ",
        );
    }
}
