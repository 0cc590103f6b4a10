//! The side of a hash join that is kept in memory is the one that `join_order` expects to be smaller.
//!
//! The engine compares both sides by estimates of its own, which do not know how many values a filter names or how many
//! rows earlier joins drop: TPC-H Q9 kept 15 million orders for 3 million rows of lineitem.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};

use crate::operators::join_name;
use crate::past_runs::ExpectedJoin;
use crate::settings::{JoinSides, SessionSettings};
use crate::shared::shared_part;
use crate::star::fallback;

/// A build side of more rows is divided among the workers.
const COLLECTED_ROWS_MAX: f64 = 1e6;

/// The engine's choice of sides, corrected where `join_order` made another one.
#[derive(Debug)]
pub(super) struct ChosenSides {
    pub select: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
}

impl PhysicalOptimizerRule for ChosenSides {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let plan = self.select.optimize(plan, config)?;
        let Some(settings) = config.extensions.get::<SessionSettings>() else {
            return Ok(plan);
        };
        let chosen = settings.join_sides.lock().clone();
        if chosen.is_empty() {
            return Ok(plan);
        }
        plan.transform_up(|node| {
            let join = node.downcast_ref::<HashJoinExec>();
            let rows = join.and_then(|join| rows_of_other_side(join, &chosen));
            let (Some(join), Some(rows)) = (join, rows) else {
                return Ok(Transformed::no(node));
            };
            if settings.decisions.are_wanted() {
                settings.decisions.note(why_other_side(join, rows));
            }
            let mode = match rows <= COLLECTED_ROWS_MAX {
                true => PartitionMode::CollectLeft,
                false => PartitionMode::Partitioned,
            };
            join.swap_inputs(mode).map(Transformed::yes)
        })
        .data()
    }

    fn name(&self) -> &str {
        self.select.name()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Rows of the right side of a join, if that is the one to be kept in memory.
fn rows_of_other_side(join: &HashJoinExec, chosen: &[JoinSides]) -> Option<f64> {
    let keys = key_names(join)?;
    let as_it_is = chosen
        .iter()
        .any(|sides| sides.keeps(&keys, |(left, _)| left));
    // Names may mean columns of several tables; where both ways are among the choices, none is sure.
    let mut turned = chosen
        .iter()
        .filter(|sides| sides.keeps(&keys, |(_, right)| right));
    turned.next().filter(|_| !as_it_is).map(|sides| sides.rows)
}

/// Why the right side of a join is kept, for EXPLAIN VERBOSE.
fn why_other_side(join: &HashJoinExec, rows: f64) -> String {
    let keys = join.on().iter().map(|(_, right)| right.to_string());
    let keys: Vec<String> = keys.collect();
    format!(
        "{}: the side of {} is kept in memory, as the order of joins expects about {rows:.0} rows of it; the engine's \
         own estimates chose the other side",
        join_name(join),
        keys.join(" and ")
    )
}

/// Rows that the order was chosen for, if one choice alone can be meant. Not where a star has moved the join onto one
/// of its build sides: it has the same keys there, and joins fewer parts.
pub(super) fn expected_join(join: &HashJoinExec, chosen: &[JoinSides]) -> Option<ExpectedJoin> {
    let keys = key_names(join)?;
    let mut meant = chosen.iter().filter(|sides| {
        sides.keeps(&keys, |(left, _)| left) || sides.keeps(&keys, |(_, right)| right)
    });
    let first = meant.next()?;
    let leaves = leaf_count(join.left()) + leaf_count(join.right());
    let is_one = meant.next().is_none() && leaves >= first.expected.joined.len();
    is_one.then(|| first.expected.clone())
}

/// How many leaves a plan has: the scan of a star is one, and those of a part that is used more than once count.
pub(crate) fn leaf_count(plan: &Arc<dyn ExecutionPlan>) -> usize {
    if let Some((_, part)) = shared_part(plan) {
        return leaf_count(part);
    }
    let below: usize = plan.children().into_iter().map(leaf_count).sum();
    match fallback(plan) {
        Some(_) => below + 1,
        None => below.max(1),
    }
}

/// The names of an inner join's columns, of its left and its right side.
type KeyNames = Vec<(String, String)>;

fn key_names(join: &HashJoinExec) -> Option<KeyNames> {
    if *join.join_type() != JoinType::Inner || join.null_aware {
        return None;
    }
    let name = |key: &Arc<dyn PhysicalExpr>| {
        let column = key.downcast_ref::<Column>();
        column.map(|column| column.name().to_owned())
    };
    let keys = join.on().iter();
    keys.map(|(left, right)| Some((name(left)?, name(right)?)))
        .collect()
}

impl JoinSides {
    /// Whether the keys can be those of this join, where `kept` gives the one of a pair that is kept in memory.
    fn keeps(&self, keys: &KeyNames, kept: fn(&(String, String)) -> &String) -> bool {
        keys.iter().all(|pair| {
            let kept = kept(pair);
            let streamed = if kept == &pair.0 { &pair.1 } else { &pair.0 };
            self.kept.contains(kept) && self.streamed.contains(streamed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn the_smaller_side_is_kept() {
        let query = "SELECT t.n FROM t JOIN s ON t.n = s.k";
        before_after("join_selection", &[query]).is(
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              ProjectionExec: expr=[n@1 as n]
                HashJoinExec: mode=Auto, join_type=Inner, on=[(k@0, n@0)]
                  DataSourceExec: HotshelfScan: table=s, columns=[k]
                  DataSourceExec: HotshelfScan: table=t, columns=[n]
            ",
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              ProjectionExec: expr=[n@1 as n]
                HashJoinExec: mode=CollectLeft, join_type=Inner, on=[(k@0, n@0)]
                  DataSourceExec: HotshelfScan: table=s, columns=[k]
                  DataSourceExec: HotshelfScan: table=t, columns=[n]
            ",
        );
    }
}
