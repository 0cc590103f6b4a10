//! Keeps the LIMIT of a sort whose rows are found to be in order already.
//!
//! The engine drops such a sort, and with several partitions its limit with it (`docs/upstream/lost-limit.md`). The
//! limit is put above the sort, too; the engine's own rule takes it away again where the sort stays.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::decisions::{all_shown, wanted};

/// Puts a limit above every sort that has one.
#[derive(Debug)]
pub(super) struct KeepLimits;

impl PhysicalOptimizerRule for KeepLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let notes = wanted(config);
        plan.transform_up(|node| {
            let sort = node.downcast_ref::<SortExec>();
            let sort = sort.filter(|sort| !sort.preserve_partitioning());
            let Some((sort, fetch)) = sort.and_then(|sort| Some((sort, sort.fetch()?))) else {
                return Ok(Transformed::no(node));
            };
            if let Some(notes) = notes
                && may_be_sorted(sort)?
            {
                notes.note(format!(
                    "the limit of {fetch} rows is also kept above the sort by [{}]: where rows come in this order \
                     already, the engine drops the sort with its limit",
                    all_shown(sort.expr())
                ));
            }
            let limited = GlobalLimitExec::new(node, 0, Some(fetch));
            Ok(Transformed::yes(Arc::new(limited) as _))
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

/// Whether the rows that come in may be in order already: they are, or window functions below have them sorted later.
fn may_be_sorted(sort: &SortExec) -> QueryResult<bool> {
    let input = sort.input();
    let is_window = |node: &Arc<dyn ExecutionPlan>| {
        Ok(node.is::<WindowAggExec>() || node.is::<BoundedWindowAggExec>())
    };
    let is_sorted = input
        .equivalence_properties()
        .ordering_satisfy(sort.expr().clone())?;
    Ok(is_sorted || input.exists(is_window)?)
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
