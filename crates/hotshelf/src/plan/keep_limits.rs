//! Keeps the LIMIT of a sort whose rows are found to be in order already.
//!
//! The engine drops such a sort, and with several partitions its limit with it (`docs/upstream/lost-limit.md`). The
//! limit is put above the sort, too; the engine's own rule takes it away again where the sort stays.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;

/// Puts a limit above every sort that has one.
#[derive(Debug)]
pub(super) struct KeepLimits;

impl PhysicalOptimizerRule for KeepLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let sort = node.downcast_ref::<SortExec>();
            let fetch = sort.filter(|sort| !sort.preserve_partitioning());
            Ok(match fetch.and_then(ExecutionPlan::fetch) {
                Some(fetch) => {
                    Transformed::yes(Arc::new(GlobalLimitExec::new(node, 0, Some(fetch))) as _)
                }
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "keep_limits"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_sort_with_a_limit_has_it_above_too() {
        let query = "SELECT n FROM t ORDER BY n LIMIT 3";
        before_after("keep_limits", &[query]).is(
            "
            SortExec: TopK(fetch=3), expr=[n@0 ASC NULLS LAST], preserve_partitioning=[false]
              DataSourceExec: HotshelfScan: table=t, columns=[n]
            ",
            "
            GlobalLimitExec: skip=0, fetch=3
              SortExec: TopK(fetch=3), expr=[n@0 ASC NULLS LAST], preserve_partitioning=[false]
                DataSourceExec: HotshelfScan: table=t, columns=[n]
            ",
        );
    }
}
