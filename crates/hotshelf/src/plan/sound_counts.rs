//! Distinct values of rows that a filter may have dropped are counted.
//!
//! A filter that leaves one value to a column tells the engine that it has one, also where no row passes, and
//! `count(DISTINCT …)` is taken from that (`docs/upstream/distinct-values-of-no-rows.md`).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use super::decisions::wanted;
use crate::operators::aggregate_name;

/// The engine's rule that takes aggregates from statistics, for parts of plans that count no distinct values without
/// groups.
#[derive(Debug)]
pub(super) struct SoundCounts {
    pub rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
}

impl PhysicalOptimizerRule for SoundCounts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        if !plan.exists(|node| Ok(counts_values(node)))? {
            return self.rule.optimize(plan, config);
        }
        if let Some(notes) = wanted(config)
            && let Some(aggregate) = counting(&plan)
            && self.would_replace(&plan, config)
        {
            notes.note(format!(
                "{}: distinct values are counted and not taken from the statistics, which do not say whether a filter \
                 leaves any row",
                aggregate_name(aggregate)
            ));
        }
        let below = plan.map_children(|child| self.optimize(child, config).map(Transformed::yes));
        below.data()
    }

    fn name(&self) -> &str {
        "sound_counts"
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

impl SoundCounts {
    /// Whether the engine would take the aggregates from the statistics.
    fn would_replace(&self, plan: &Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> bool {
        let replaced = self.rule.optimize(plan.clone(), config);
        replaced.is_ok_and(|replaced| !replaced.is::<AggregateExec>())
    }
}

fn counts_values(node: &Arc<dyn ExecutionPlan>) -> bool {
    counting(node).is_some()
}

/// An aggregation without groups that counts distinct values.
fn counting(node: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    let aggregate = node.downcast_ref::<AggregateExec>()?;
    let mut functions = aggregate.aggr_expr().iter();
    let counts =
        aggregate.group_expr().is_empty() && functions.any(|function| function.is_distinct());
    counts.then_some(aggregate)
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn other_counts_are_taken_from_statistics() {
        let query = "SELECT count(*) FROM t";
        before_after("sound_counts", &[query]).is(
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              ProjectionExec: expr=[count(Int64(1))@0 as count(*)]
                AggregateExec: mode=Final, gby=[], aggr=[count(Int64(1))]
                  AggregateExec: mode=Partial, gby=[], aggr=[count(Int64(1))]
                    DataSourceExec: HotshelfScan: table=t, columns=[]
            ",
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              ProjectionExec: expr=[count(Int64(1))@0 as count(*)]
                ProjectionExec: expr=[20000 as count(Int64(1))]
                  PlaceholderRowExec
            ",
        );
    }

    #[test]
    fn distinct_values_are_counted() {
        let query = "SELECT count(DISTINCT v) FROM t WHERE v = 3";
        before_after("sound_counts", &[query]).is_the_same();
    }
}
