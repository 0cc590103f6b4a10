//! Keeps an order of joins that was chosen: the engine's rule for cross joins runs only where there are some.
//!
//! That rule takes every tree of inner joins apart and puts it together again, each table after the other as the tree
//! names them, whether there is a cross join or not. The optimizer repeats its rules until nothing changes, so that it
//! would undo what `join_order` has found.

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{JoinType, LogicalPlan};
use datafusion::optimizer::OptimizerConfig;

use super::node_rule::EngineRule;
use super::null_keys::apart;
use crate::settings::{SessionSettings, Use};

/// The engine's rule for cross joins, for plans that have one.
pub(super) fn keep_join_order(
    eliminate: &EngineRule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> QueryResult<Transformed<LogicalPlan>> {
    let options = config.options();
    let settings = options.extensions.get::<SessionSettings>();
    let is_ordered = settings.is_some_and(|settings| settings.join_order != Use::Off);
    match is_ordered && !has_cross_join(&plan)? {
        true => Ok(Transformed::no(plan)),
        false => apart(plan)?.transform_data(|plan| eliminate.rewrite(plan, config)),
    }
}

fn has_cross_join(plan: &LogicalPlan) -> QueryResult<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = matches!(node, LogicalPlan::Join(join)
            if join.join_type == JoinType::Inner && join.on.is_empty());
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_cross_join_with_keys_is_an_inner_join() {
        let query = "SELECT t.n FROM t, s WHERE t.k = s.k";
        before_after("eliminate_cross_join", &[query]).is(
            "
            Projection: t.n
              Filter: t.k = s.k
                Cross Join:
                  TableScan: t
                  TableScan: s
            ",
            "
            Projection: t.n
              Inner Join: t.k = s.k
                TableScan: t
                TableScan: s
            ",
        );
    }

    #[test]
    fn inner_joins_stay_in_their_order() {
        let query = "SELECT t.n FROM t JOIN s ON t.k = s.k WHERE t.v = 3";
        before_after("eliminate_cross_join", &[query]).is_the_same();
    }
}
