//! Hash joins and aggregations become Hotshelf's; joins by texts, aggregations by several columns of texts, and joins
//! without keys only if they are expected not to fit. All spill by partition.
//!
//! DataFusion's joins have to hold one side, and its aggregation writes all groups at once when memory is short. They
//! stay where such keys or none are and what they hold fits. Partial aggregations hand on what they hold; DataFusion's
//! decides by the first 100 000 rows whether it looks for groups at all. Where an estimate was wrong and memory runs
//! out before the first row of an answer, the query begins again with all of them replaced (`session/answer.rs`).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::UnKnownColumn;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};

use super::carried_keys::carried_keys;
use super::chosen_sides::expected_join;
use super::decisions::{all_shown, megabytes, wanted_of};
use super::keyless_joins::by_a_constant;
use super::padded_rows::ForgetExec;
use super::replace_operators;
use crate::operators::{SpillingAggregateExec, SpillingHashJoinExec, aggregate_name, join_name};
use crate::past_runs::ExpectedJoin;
use crate::settings::{JoinSides, Notes, SessionSettings, Use};
use crate::statistics::sizes::{
    BUILD_PARTS, GROUP_PARTS, is_sure_to_be_built, may_be_built, may_be_kept, stored_bytes,
};

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
        let bytes = match settings.operators {
            Use::Off => return Ok(plan),
            Use::Always => 0,
            Use::On => settings.operator_bytes_max(),
        };
        if let Some(notes) = wanted_of(settings) {
            note_own(&plan, bytes, notes)?;
        }
        replace(plan, bytes, &settings.join_sides.lock())
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

/// Why Hotshelf's operator takes the place of another.
#[derive(Debug, Clone, Copy)]
enum Why {
    Quick,
    /// What it holds is not expected to fit.
    Large,
    /// What it holds is not sure to fit, and the engine's has to hold it.
    NotSure,
}

/// `None`: the join stays.
fn why_joined(join: &HashJoinExec, is_keyless: bool, bytes: u64) -> QueryResult<Option<Why>> {
    if is_keyless {
        return Ok((!is_sure_to_be_built(join.left(), bytes)?).then_some(Why::NotSure));
    }
    // What Hotshelf's joins come to has to be sorted where an order was kept.
    let keeps_order =
        join.properties().output_ordering().is_some() && whole_sort(join.right()).is_none();
    if !keeps_order && SpillingHashJoinExec::is_quick(join)? {
        return Ok(Some(Why::Quick));
    }
    Ok((!may_be_built(join.left(), bytes)?).then_some(Why::Large))
}

/// `None`: the aggregation stays.
fn why_grouped(
    node: &Arc<dyn ExecutionPlan>,
    own: &SpillingAggregateExec,
    bytes: u64,
) -> QueryResult<Option<Why>> {
    if own.is_quick() {
        return Ok(Some(Why::Quick));
    }
    Ok((!may_be_kept(node, bytes)?).then_some(Why::Large))
}

/// Notes why operators become Hotshelf's, without those of plans that stars only fall back to.
fn note_own(plan: &Arc<dyn ExecutionPlan>, bytes: u64, notes: &Notes) -> QueryResult<()> {
    plan.apply(|node| {
        let lines = [
            join_note(node, bytes)?,
            aggregation_note(node, bytes)?,
            compared_note(node, bytes)?,
        ];
        lines
            .into_iter()
            .flatten()
            .for_each(|line| notes.note(line));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn join_note(node: &Arc<dyn ExecutionPlan>, bytes: u64) -> QueryResult<Option<String>> {
    let keyless = by_a_constant(node)?;
    let joining = keyless.as_ref().unwrap_or(node);
    let Some(join) = joining.downcast_ref::<HashJoinExec>() else {
        return Ok(None);
    };
    let why = why_joined(join, keyless.is_some(), bytes)?;
    let (Some(why), Some(_)) = (why, own_join(joining, join, None)?) else {
        return Ok(None);
    };
    let name = match keyless {
        Some(_) => format!("{} join of all pairs of rows", join.join_type()),
        None => join_name(join),
    };
    let held = Held {
        what: "its left side",
        bytes: stored_bytes(join.left())?,
        parts: BUILD_PARTS,
    };
    Ok(Some(format!("{name}: {}", held.why_own(why, bytes))))
}

fn aggregation_note(node: &Arc<dyn ExecutionPlan>, bytes: u64) -> QueryResult<Option<String>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
        return Ok(None);
    };
    let Some(own) = own_aggregation(node)? else {
        return Ok(None);
    };
    let Some(why) = why_grouped(node, &own, bytes)? else {
        return Ok(None);
    };
    let held = Held {
        what: "its groups",
        bytes: stored_bytes(node)?,
        parts: GROUP_PARTS,
    };
    let name = aggregate_name(aggregate);
    Ok(Some(format!("{name}: {}", held.why_own(why, bytes))))
}

/// What an operator keeps in memory, as far as it is known.
struct Held {
    what: &'static str,
    bytes: Option<u64>,
    /// It should come to no more than one part in this many.
    parts: u64,
}

impl Held {
    /// Where operators may hold this many bytes.
    fn why_own(&self, why: Why, most: u64) -> String {
        let Self { what, parts, .. } = self;
        let size = match self.bytes {
            Some(bytes) => format!("of about {}", megabytes(bytes as f64)),
            None => "of an unknown size".to_owned(),
        };
        if most == 0 {
            return "Hotshelf's, as hotshelf.operators is always".to_owned();
        }
        let most = megabytes(most as f64);
        match why {
            Why::Quick => {
                format!("Hotshelf's, as it is as quick with such keys and can spill {what}, {size}")
            }
            Why::Large => format!(
                "Hotshelf's, as {what}, {size}, may take more than one part in {parts} of the {most} for operators"
            ),
            Why::NotSure => format!(
                "Hotshelf's, as {what}, {size}, may take more than one part in {parts} of the {most} for operators, \
                 and the engine's has to hold it"
            ),
        }
    }
}

/// Hotshelf's aggregation, whose groups carry the keys that depend on others.
fn own_aggregation(node: &Arc<dyn ExecutionPlan>) -> QueryResult<Option<SpillingAggregateExec>> {
    let own = SpillingAggregateExec::replacing(node)?;
    Ok(match node.downcast_ref::<AggregateExec>() {
        Some(aggregate) => own.map(|own| own.carrying(&carried_keys(aggregate))),
        None => own,
    })
}

/// Why all keys of an aggregation are compared, some of which depend on others.
fn compared_note(node: &Arc<dyn ExecutionPlan>, bytes: u64) -> QueryResult<Option<String>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
        return Ok(None);
    };
    let carried = carried_keys(aggregate);
    let own = own_aggregation(node)?;
    let why = own.map(|own| why_grouped(node, &own, bytes)).transpose()?;
    if carried.is_empty() || why.flatten().is_some() {
        return Ok(None);
    }
    let schema = aggregate.schema();
    let names = carried.iter().map(|key| schema.field(*key).name());
    Ok(Some(format!(
        "{}: compares {}, which other keys determine, as it is DataFusion's: {}",
        aggregate_name(aggregate),
        all_shown(names),
        SpillingAggregateExec::why_left(aggregate)?
    )))
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
        return match why_joined(join, keyless.is_some(), bytes)? {
            None => Ok(None),
            Some(_) => own_join(joining, join, expected_join(join, chosen)),
        };
    }
    let Some(own) = own_aggregation(node)? else {
        return Ok(None);
    };
    let why = why_grouped(node, &own, bytes)?;
    Ok(why.map(|_| Arc::new(own) as _))
}

/// Hotshelf's join, and above it what the plan relies on and this one does not keep: rows that were spilled come in any
/// order, and not in the partition of their right side.
fn own_join(
    node: &Arc<dyn ExecutionPlan>,
    join: &HashJoinExec,
    expected: Option<ExpectedJoin>,
) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
    let Some(order) = node.output_ordering() else {
        return in_its_partition(node, join, expected);
    };
    let right = match whole_sort(join.right()) {
        // The engine sorts the smaller input where that sorts the output, too.
        Some(sort) => sort.input(),
        None => join.right(),
    };
    let right = match right.output_ordering() {
        Some(_) => Arc::new(ForgetExec::new(right.clone())),
        None => right.clone(),
    };
    let unordered = vec![join.left().clone(), right];
    let unordered = replace_children_if_necessary(node.clone(), unordered)?;
    let own = in_its_partition(&unordered, join, expected)?;
    Ok(own.map(|own| {
        let partitions = own.output_partitioning().partition_count();
        let sorted = SortExec::new(order.clone(), own);
        Arc::new(sorted.with_preserve_partitioning(partitions > 1)) as _
    }))
}

/// A sort of all rows.
fn whole_sort(plan: &Arc<dyn ExecutionPlan>) -> Option<&SortExec> {
    let sort = plan.downcast_ref::<SortExec>();
    sort.filter(|sort| sort.fetch().is_none())
}

/// Hotshelf's join in place of one that keeps no order, with the rows in the partitions that were promised.
fn in_its_partition(
    node: &Arc<dyn ExecutionPlan>,
    join: &HashJoinExec,
    expected: Option<ExpectedJoin>,
) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
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
