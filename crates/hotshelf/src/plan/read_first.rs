//! Scans below a sort with a limit read first what the sort wants first, so that its threshold excludes most row groups
//! before they are read.
//!
//! That is for scans whose rows come to the sort while they read: through filters, projections and exchanges, and as
//! the probe side of hash joins. Nothing above relies on the order, and the sort stays.

use std::ops::Range;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result as QueryResult;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;

use crate::scan::{TableScan, TopRows};

/// The plan with scans that know what the sorts above them want first.
pub(super) fn read_first(plan: Arc<dyn ExecutionPlan>) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let changed = plan.transform_up(|node| {
        let input = match node.downcast_ref::<SortExec>() {
            Some(sort) => input_of(sort)?,
            None => None,
        };
        Ok(match input {
            Some(input) => Transformed::yes(replace_children_if_necessary(node, vec![input])?),
            None => Transformed::no(node),
        })
    });
    changed.data()
}

/// The input of a sort with scans that know what it wants first, if it has a limit and there are some.
fn input_of(sort: &SortExec) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
    let thresholds = sort.dynamic_expressions_produced();
    let threshold = thresholds.first();
    let Some(filter_id) = threshold.and_then(|filter| filter.expression_id()) else {
        return Ok(None);
    };
    let top = TopRows {
        filter_id,
        options: sort.expr().first().options,
    };
    below(sort.input(), &top)
}

/// A node with scans that know what a sort above it wants first; `None` if there are none.
fn below(
    node: &Arc<dyn ExecutionPlan>,
    top: &TopRows,
) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = TableScan::of(node) {
        let scan = scan.reading_first(top);
        return Ok(scan.map(|scan| DataSourceExec::from_data_source(scan) as _));
    }
    let mut children: Vec<_> = node.children().into_iter().cloned().collect();
    let mut is_changed = false;
    for idx in children_passed_on(node) {
        if let Some(child) = below(&children[idx], top)? {
            children[idx] = child;
            is_changed = true;
        }
    }
    Ok(match is_changed {
        true => Some(replace_children_if_necessary(node.clone(), children)?),
        false => None,
    })
}

/// The children whose rows an operator hands on as they come.
fn children_passed_on(node: &Arc<dyn ExecutionPlan>) -> Range<usize> {
    // The right side of a hash join is its probe side.
    if node.is::<HashJoinExec>() {
        return 1..2;
    }
    let passes_on = node.is::<FilterExec>()
        || node.is::<ProjectionExec>()
        || node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<BufferExec>()
        || node.is::<UnionExec>();
    match passes_on {
        true => 0..node.children().len(),
        false => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn what_the_sort_wants_first_is_read_first() {
        let query = "SELECT n, v FROM t ORDER BY n DESC LIMIT 3";
        before_after("choose_access", &[query]).is(
            "
            SortExec: TopK(fetch=3), expr=[n@0 DESC], preserve_partitioning=[false]
              CooperativeExec
                DataSourceExec: HotshelfScan: table=t, columns=[n, v], prune=DynamicFilter [ empty ]
            ",
            "
            SortExec: TopK(fetch=3), expr=[n@0 DESC], preserve_partitioning=[false]
              CooperativeExec
                DataSourceExec: HotshelfScan: table=t, columns=[n, v], prune=DynamicFilter [ empty ], first=greatest n
            ",
        );
    }
}
