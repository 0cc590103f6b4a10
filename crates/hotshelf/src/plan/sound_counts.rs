//! Distinct values of rows that a filter may have dropped are counted.
//!
//! A filter that leaves one value to a column tells the engine that it has one, also where no row passes, and
//! `count(DISTINCT …)` is taken from that (`docs/upstream/distinct-values-of-no-rows.md`).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

/// The engine's rule that takes aggregates from statistics, for plans that count no distinct values without groups.
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
        let mut counts = false;
        plan.apply(|node| {
            counts = node
                .downcast_ref::<AggregateExec>()
                .is_some_and(counts_values);
            Ok(match counts {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })?;
        match counts {
            true => Ok(plan),
            false => self.rule.optimize(plan, config),
        }
    }

    fn name(&self) -> &str {
        "sound_counts"
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

fn counts_values(aggregate: &AggregateExec) -> bool {
    let mut functions = aggregate.aggr_expr().iter();
    aggregate.group_expr().is_empty() && functions.any(|function| function.is_distinct())
}
