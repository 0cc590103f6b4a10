//! Hash joins and aggregations become Hotshelf's; joins by texts, aggregations by several columns with texts, and joins
//! without keys only if they are expected not to fit. All spill by partition.
//!
//! DataFusion's joins have to hold one side, and its aggregation writes all groups at once when memory is short. They
//! stay where such keys or none are and what they hold fits. Partial aggregations hand on what they hold; DataFusion's
//! decides by the first 100 000 rows whether it looks for groups at all. Where an estimate was wrong and memory runs
//! out before the first row of an answer, the query begins again with all of them replaced (`session/answer.rs`).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::UnKnownColumn;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};

use super::chosen_sides::expected_join;
use super::keyless_joins::by_a_constant;
use super::replace_operators;
use crate::operators::{SpillingAggregateExec, SpillingHashJoinExec};
use crate::past_runs::ExpectedJoin;
use crate::settings::{JoinSides, SessionSettings, Use};
use crate::statistics::sizes::{is_sure_to_be_built, may_be_built, may_be_kept};

/// Replaces joins and aggregations.
#[derive(Debug)]
pub(super) struct OwnHashOperators;

impl PhysicalOptimizerRule for OwnHashOperators {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let Some(settings) = config.extensions.get::<SessionSettings>() else {
            return Ok(plan);
        };
        match settings.operators {
            Use::Off => Ok(plan),
            Use::Always => replace(plan, 0, &settings.join_sides.lock()),
            Use::On => {
                let bytes = settings.operator_bytes_max();
                replace(plan, bytes, &settings.join_sides.lock())
            }
        }
    }

    fn name(&self) -> &str {
        "own_hash_operators"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Replaces joins and aggregations that are quick, and what does not fit in this many bytes; all if there are none.
fn replace(
    plan: Arc<dyn ExecutionPlan>,
    bytes: u64,
    chosen: &[JoinSides],
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    replace_operators(plan, &|node| in_place_of(node, bytes, chosen))
}

/// Hotshelf's operator, where it is quick or if what this one holds is not expected to fit.
fn in_place_of(
    node: &Arc<dyn ExecutionPlan>,
    bytes: u64,
    chosen: &[JoinSides],
) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
    let keyless = by_a_constant(node)?;
    let joining = keyless.as_ref().unwrap_or(node);
    if let Some(join) = joining.downcast_ref::<HashJoinExec>() {
        let stays = match keyless {
            Some(_) => is_sure_to_be_built(join.left(), bytes)?,
            None => !SpillingHashJoinExec::is_quick(join)? && may_be_built(join.left(), bytes)?,
        };
        return match stays {
            true => Ok(None),
            false => own_join(joining, join, expected_join(join, chosen)),
        };
    }
    let Some(own) = SpillingAggregateExec::replacing(node)? else {
        return Ok(None);
    };
    let replaces = own.is_quick() || !may_be_kept(node, bytes)?;
    Ok(replaces.then(|| Arc::new(own) as _))
}

/// Hotshelf's join, and above it what the plan relies on and this one does not keep: rows that were spilled come in any
/// order, and not in the partition of their right side.
fn own_join(
    node: &Arc<dyn ExecutionPlan>,
    join: &HashJoinExec,
    expected: Option<ExpectedJoin>,
) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
    if let (Some(sort), Some(order)) = (
        join.right().downcast_ref::<SortExec>(),
        node.output_ordering(),
    ) && sort.fetch().is_none()
    {
        // The engine sorts the smaller input where that sorts the output, too.
        let unsorted = vec![join.left().clone(), sort.input().clone()];
        let unsorted = replace_children_if_necessary(node.clone(), unsorted)?;
        let Some(own) = SpillingHashJoinExec::replacing(&unsorted)? else {
            return Ok(None);
        };
        let sorted = SortExec::new(order.clone(), Arc::new(own.expecting(expected)));
        return Ok(Some(Arc::new(
            sorted.with_preserve_partitioning(sort.preserve_partitioning()),
        )));
    }
    let Some(own) = SpillingHashJoinExec::replacing(node)? else {
        return Ok(None);
    };
    let own = own.expecting(expected);
    let is_shared = *join.partition_mode() == PartitionMode::CollectLeft;
    // Nothing can rely on a column that is not there any more.
    let is_gone = |key: &Arc<dyn PhysicalExpr>| key.exists(|part| Ok(part.is::<UnKnownColumn>()));
    Ok(Some(match node.output_partitioning() {
        Partitioning::Hash(keys, parts)
            if is_shared && *parts > 1 && !keys.iter().any(|key| is_gone(key).unwrap_or(true)) =>
        {
            let partitioning = Partitioning::Hash(keys.clone(), *parts);
            Arc::new(RepartitionExec::try_new(Arc::new(own), partitioning)?)
        }
        _ => Arc::new(own),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_join_spills() {
        let statements = [
            "SET hotshelf.star_pipelines = off",
            "SELECT t.n FROM t JOIN s ON t.n = s.k",
        ];
        before_after("own_hash_operators", &statements).is(
            "
            HashJoinExec: mode=CollectLeft, join_type=Inner, on=[(k@0, n@0)], projection=[n@1]
              CooperativeExec
                DataSourceExec: HotshelfScan: table=s, columns=[k]
              RepartitionExec: partitioning=RoundRobinBatch(2), input_partitions=1
                DataSourceExec: HotshelfScan: table=t, columns=[n], prune=DynamicFilter [ empty ]
            ",
            "
            SpillingHashJoinExec: mode=CollectLeft, join_type=Inner, on=[(k@0, n@0)], projection=[n@1]
              CooperativeExec
                DataSourceExec: HotshelfScan: table=s, columns=[k]
              RepartitionExec: partitioning=RoundRobinBatch(2), input_partitions=1
                DataSourceExec: HotshelfScan: table=t, columns=[n], prune=DynamicFilter [ empty ]
            ",
        );
    }
}
