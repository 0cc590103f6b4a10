//! For EXPLAIN: which joins, aggregations, sorts and window functions of the plan are DataFusion's, and why; and why
//! scans that no star pipeline has taken find their rows as they do. A star pipeline shows its own choice.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};

use super::choose_access::why_so;
use super::decisions::wanted_of;
use crate::operators::{
    Reason, SpillingAggregateExec, SpillingHashJoinExec, aggregate_name, join_name,
};
use crate::scan::TableScan;
use crate::settings::{SessionSettings, Use};

/// Notes them, and leaves the plan as it is.
#[derive(Debug)]
pub(super) struct NoteLeft;

impl PhysicalOptimizerRule for NoteLeft {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let Some(settings) = config.extensions.get::<SessionSettings>() else {
            return Ok(plan);
        };
        let (left_of, decisions) = (&settings.left, wanted_of(settings));
        if left_of.are_wanted() || decisions.is_some() {
            plan.apply(|node| {
                if let Some((name, left)) = left(node)? {
                    let reason = match settings.operators {
                        Use::Off => "hotshelf.operators is off",
                        Use::On | Use::Always => left,
                    };
                    left_of.note(format!("{name}: {reason}"));
                }
                let access = TableScan::of(node).and_then(|scan| why_so(scan, settings.elf));
                if let (Some(decisions), Some(access)) = (decisions, access) {
                    decisions.note(access);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(plan)
    }

    fn name(&self) -> &str {
        "note_left"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// An operator of DataFusion's that Hotshelf has one for, and why it is left. `None`: another one.
fn left(node: &Arc<dyn ExecutionPlan>) -> QueryResult<Option<(String, Reason)>> {
    let name = || node.name().trim_end_matches("Exec").to_owned();
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return Ok(Some((
            join_name(join),
            SpillingHashJoinExec::why_left(node, join)?,
        )));
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        // One group takes no memory.
        let has_keys = !aggregate.group_expr().is_empty();
        let named = || -> QueryResult<_> {
            let left = SpillingAggregateExec::why_left(aggregate)?;
            Ok((aggregate_name(aggregate), left))
        };
        return has_keys.then(named).transpose();
    }
    if let Some(sort) = node.downcast_ref::<SortExec>() {
        let keys = sort.expr();
        return Ok(Some(match sort.fetch() {
            Some(fetch) => (
                format!("the first {fetch} rows by [{keys}]"),
                "a few rows are kept in a heap",
            ),
            None => (
                format!("sort by [{keys}]"),
                "a type that cannot be compared as bytes",
            ),
        }));
    }
    let is_without_keys = node.is::<CrossJoinExec>() || node.is::<NestedLoopJoinExec>();
    if is_without_keys {
        return Ok(Some((name(), "it compares all pairs of rows")));
    }
    if node.is::<SortMergeJoinExec>() {
        return Ok(Some((name(), "both sides are sorted")));
    }
    if node.is::<RepartitionExec>() {
        return Ok(Some((name(), "it keeps an order")));
    }
    if node.is::<BoundedWindowAggExec>() {
        return Ok(Some((
            name(),
            "its frames are expected to need few rows at a time",
        )));
    }
    let is_window = node.is::<WindowAggExec>();
    Ok(is_window.then(|| (name(), "it is not one that can spill")))
}
