//! Sorts of all rows, or of many first ones, and window functions over whole partitions become Hotshelf's, which need
//! no more memory than there is.
//!
//! DataFusion's sort has to hold what it merges, so that sorts that run side by side starve each other, and its heap of
//! first rows is slow when it is large. A sort of few first rows stays DataFusion's. Where the sorted rows of all
//! partitions are merged by one worker, all workers put them in order instead. Its window functions over whole
//! partitions keep all rows of all partitions, and count none of them. `row_number()` over all rows is numbering them.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;

use super::replace_operators;
use crate::operators::{NumberingExec, SharedSortExec, SpillingSortExec, SpillingWindowExec};
use crate::settings::{SessionSettings, Use};

/// Replaces sorts and window functions.
#[derive(Debug)]
pub(super) struct OwnSorts;

impl PhysicalOptimizerRule for OwnSorts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let settings = config.extensions.get::<SessionSettings>();
        if settings.is_none_or(|settings| settings.operators == Use::Off) {
            return Ok(plan);
        }
        replace_operators(plan, &in_place_of)
    }

    fn name(&self) -> &str {
        "own_sorts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Hotshelf's operator, if it is one of these.
fn in_place_of(node: &Arc<dyn ExecutionPlan>) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(own) = SpillingWindowExec::replacing(node)? {
        return Ok(Some(Arc::new(own)));
    }
    if let Some(own) = NumberingExec::replacing(node)? {
        return Ok(Some(Arc::new(own)));
    }
    if let Some(own) = SharedSortExec::replacing(node) {
        return Ok(Some(Arc::new(own)));
    }
    let Some(sort) = node.downcast_ref::<SortExec>() else {
        return Ok(None);
    };
    let own = SpillingSortExec::replacing(sort)?;
    Ok(own.map(|own| Arc::new(own) as _))
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_sort_of_all_rows_spills() {
        let query = "SELECT n, w FROM t ORDER BY w";
        before_after("own_sorts", &[query]).is(
            "
            SortExec: expr=[w@1 ASC NULLS LAST], preserve_partitioning=[false]
              CooperativeExec
                DataSourceExec: HotshelfScan: table=t, columns=[n, w]
            ",
            "
            SpillingSortExec: expr=[w@1 ASC NULLS LAST], preserve_partitioning=[false]
              CooperativeExec
                DataSourceExec: HotshelfScan: table=t, columns=[n, w]
            ",
        );
    }
}
