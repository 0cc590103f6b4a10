//! Workers share the build side of a join, so that no row of the other side has to change its thread.
//!
//! The engine divides both sides of a large join among its workers. Hotshelf's join is divided by itself, in memory and
//! on disk, and all workers build it together.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::operators::{SpillingHashJoinExec, join_name};
use crate::settings::{SessionSettings, Use};

/// Runs when the sides are chosen and before rows are distributed.
#[derive(Debug)]
pub(super) struct SharedBuilds;

impl PhysicalOptimizerRule for SharedBuilds {
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
            let join = node.downcast_ref::<HashJoinExec>();
            let shared = join.map(with_shared_build).transpose()?.flatten();
            let (Some(join), Some(shared)) = (join, shared) else {
                return Ok(Transformed::no(node));
            };
            if settings.decisions.are_wanted() {
                settings.decisions.note(why_shared(join));
            }
            Ok(Transformed::yes(shared))
        })
        .data()
    }

    fn name(&self) -> &str {
        "shared_builds"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `None`: it is shared already, or the join stays the engine's.
fn with_shared_build(join: &HashJoinExec) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
    let is_shared = *join.partition_mode() == PartitionMode::CollectLeft;
    let is_ordered = join.right().output_ordering().is_some();
    let stays = is_shared || is_ordered || !SpillingHashJoinExec::is_quick(join)?;
    if stays || !SpillingHashJoinExec::can_replace(join)? {
        return Ok(None);
    }
    let builder = join
        .builder()
        .with_partition_mode(PartitionMode::CollectLeft);
    builder.recompute_properties().build_exec().map(Some)
}

/// Why a build side is shared, for EXPLAIN VERBOSE.
fn why_shared(join: &HashJoinExec) -> String {
    format!(
        "{}: all workers build its left side together, so that no row of the right side changes its worker; the \
         engine would divide both sides among them",
        join_name(join)
    )
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn workers_share_a_build_side() {
        let statements = [
            "SET datafusion.optimizer.hash_join_single_partition_threshold = 0",
            "SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 0",
            "SELECT a.n, b.v FROM t a JOIN t b ON a.n = b.n",
        ];
        before_after("shared_builds", &statements).is(
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              ProjectionExec: expr=[n@0 as n, v@2 as v]
                HashJoinExec: mode=Partitioned, join_type=Inner, on=[(n@0, n@0)]
                  DataSourceExec: HotshelfScan: table=t, columns=[n]
                  DataSourceExec: HotshelfScan: table=t, columns=[n, v]
            ",
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              ProjectionExec: expr=[n@0 as n, v@2 as v]
                HashJoinExec: mode=CollectLeft, join_type=Inner, on=[(n@0, n@0)]
                  DataSourceExec: HotshelfScan: table=t, columns=[n]
                  DataSourceExec: HotshelfScan: table=t, columns=[n, v]
            ",
        );
    }
}
