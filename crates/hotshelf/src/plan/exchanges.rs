//! Repartitionings become Hotshelf's exchanges, which spill as all its operators do.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};

use super::decisions::{all_shown, wanted};
use super::replace_operators;
use crate::operators::ExchangeExec;
use crate::statistics::rows::expected;

/// Replaces repartitionings that keep no order, whatever the settings: the engine's may wait forever. Rules that look
/// for the engine's come before.
#[derive(Debug)]
pub(super) struct Exchanges;

impl PhysicalOptimizerRule for Exchanges {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        if let Some(notes) = wanted(config) {
            let workers = config.execution.target_partitions;
            // Not those of plans that stars only fall back to.
            plan.apply(|node| {
                let why = why_exchanged(node, workers)?;
                why.into_iter().for_each(|why| notes.note(why));
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        replace_operators(plan, &|node| {
            let own = ExchangeExec::replacing(node)?;
            Ok(own.map(|own| Arc::new(own) as _))
        })
    }

    fn name(&self) -> &str {
        "exchanges"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Why rows change their partitions, for EXPLAIN VERBOSE. `None`: it is another operator, or stays the engine's.
fn why_exchanged(node: &Arc<dyn ExecutionPlan>, workers: usize) -> QueryResult<Option<String>> {
    let Some(exchange) = node.downcast_ref::<RepartitionExec>() else {
        return Ok(None);
    };
    if ExchangeExec::replacing(node)?.is_none() {
        return Ok(None);
    }
    let input = exchange.input();
    let rows = match expected(input)?.num_rows.get_value() {
        Some(rows) => format!("about {rows} rows"),
        None => "rows".to_owned(),
    };
    let from = input.output_partitioning().partition_count();
    let to = exchange.partitioning().partition_count();
    let to = match to == workers {
        true => format!("{to}, one for each worker"),
        false => to.to_string(),
    };
    Ok(Some(match exchange.partitioning() {
        Partitioning::Hash(keys, _) => {
            let keys = all_shown(keys);
            format!(
                "exchange by [{keys}]: {rows} go from {from} partitions to {to}, so that equal keys meet"
            )
        }
        _ => format!(
            "exchange in turn: {rows} go from {from} partitions to {to}, so that all have work"
        ),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_repartitioning_is_an_exchange() {
        let query = "SELECT w, v, count(*) FROM t GROUP BY w, v";
        before_after("exchanges", &[query]).is(
            "
            ProjectionExec: expr=[w@0 as w, v@1 as v, count(Int64(1))@2 as count(*)]
              SpillingAggregateExec: mode=FinalPartitioned, gby=[w@0 as w, v@1 as v], aggr=[count(Int64(1))]
                RepartitionExec: partitioning=Hash([w@0, v@1], 2), input_partitions=2
                  StarPipelineExec: scan=[table=t, columns=[v, w]], aggregates=[count(Int64(1))] (partial), groups \
                      hashed
            ",
            "
            ProjectionExec: expr=[w@0 as w, v@1 as v, count(Int64(1))@2 as count(*)]
              SpillingAggregateExec: mode=FinalPartitioned, gby=[w@0 as w, v@1 as v], aggr=[count(Int64(1))]
                ExchangeExec: partitioning=Hash([w@0, v@1], 2), input_partitions=2
                  StarPipelineExec: scan=[table=t, columns=[v, w]], aggregates=[count(Int64(1))] (partial), groups \
                      hashed
            ",
        );
    }
}
