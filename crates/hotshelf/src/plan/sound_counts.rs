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

fn counts_values(node: &Arc<dyn ExecutionPlan>) -> bool {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
        return false;
    };
    let mut functions = aggregate.aggr_expr().iter();
    aggregate.group_expr().is_empty() && functions.any(|function| function.is_distinct())
}
