//! Sorts of all rows, or of many first ones, and window functions over whole partitions become Hotshelf's, which need
//! no more memory than there is.
//!
//! DataFusion's sort has to hold what it merges, so that sorts that run side by side starve each other, and its heap of
//! first rows is slow when it is large. A sort of few first rows stays DataFusion's. Where the sorted rows of all
//! partitions are merged by one worker, all workers put them in order instead. Its window functions over whole
//! partitions keep all rows of all partitions, and count none of them. `row_number()` over all rows is numbering them.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::decisions::{all_shown, wanted};
use super::replace_operators;
use crate::operators::{NumberingExec, SharedSortExec, SpillingSortExec, SpillingWindowExec};
use crate::settings::{SessionSettings, Use};
use crate::statistics::rows::expected;

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
        let plan = replace_operators(plan, &in_place_of)?;
        if let Some(notes) = wanted(config) {
            // Not those of plans that stars only fall back to.
            plan.apply(|node| {
                why_own(node)?.into_iter().for_each(|why| notes.note(why));
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(plan)
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

/// Why an operator is Hotshelf's, for EXPLAIN VERBOSE. `None`: it is another one.
fn why_own(node: &Arc<dyn ExecutionPlan>) -> QueryResult<Option<String>> {
    let rows = |node: &Arc<dyn ExecutionPlan>| -> QueryResult<String> {
        let input = node.children().first().copied().cloned();
        let rows = input.map(|input| expected(&input)).transpose()?;
        let rows = rows.and_then(|rows| rows.num_rows.get_value().copied());
        Ok(rows.map_or("rows of an unknown number".into(), |rows| {
            format!("about {rows} rows")
        }))
    };
    let keys = || {
        let order = node.output_ordering();
        all_shown(order.into_iter().flat_map(|order| order.iter()))
    };
    let named = || match node.fetch() {
        Some(fetch) => format!("the first {fetch} rows by [{}]", keys()),
        None => format!("sort by [{}]", keys()),
    };
    if node.is::<SharedSortExec>() {
        let workers = node
            .children()
            .first()
            .map(|input| input.output_partitioning());
        let workers = workers.map_or(1, |input| input.partition_count());
        let (named, rows) = (named(), rows(node)?);
        return Ok(Some(format!(
            "{named}: {workers} workers put {rows} in order together, instead of one that merges their parts"
        )));
    }
    if node.is::<SpillingSortExec>() {
        let (named, rows) = (named(), rows(node)?);
        return Ok(Some(format!(
            "{named}: Hotshelf's, which spills what does not fit of {rows}; the engine's has to hold what it merges"
        )));
    }
    if node.is::<SpillingWindowExec>() {
        let rows = rows(node)?;
        return Ok(Some(format!(
            "window functions over whole partitions: Hotshelf's, which spills {rows} as far as they do not fit"
        )));
    }
    Ok(node.is::<NumberingExec>().then(|| {
        "row_number() over all rows: they are numbered as they come, without a window".to_owned()
    }))
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
