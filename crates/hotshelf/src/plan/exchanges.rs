//! Repartitionings become Hotshelf's exchanges, which spill as all its operators do.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use super::replace_operators;
use crate::operators::ExchangeExec;

/// Replaces repartitionings that keep no order, whatever the settings: the engine's may wait forever. Rules that look
/// for the engine's come before.
#[derive(Debug)]
pub(super) struct Exchanges;

impl PhysicalOptimizerRule for Exchanges {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
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

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_repartitioning_is_an_exchange() {
        let query = "SELECT w, v, count(*) FROM t GROUP BY w, v";
        before_after("exchanges", &[query]).is(
            "
            ProjectionExec: expr=[w@0 as w, v@1 as v, count(Int64(1))@2 as count(*)]
              AggregateExec: mode=FinalPartitioned, gby=[w@0 as w, v@1 as v], aggr=[count(Int64(1))]
                RepartitionExec: partitioning=Hash([w@0, v@1], 2), input_partitions=2
                  StarPipelineExec: scan=[table=t, columns=[v, w]], aggregates=[count(Int64(1))] (partial), groups \
                      hashed
            ",
            "
            ProjectionExec: expr=[w@0 as w, v@1 as v, count(Int64(1))@2 as count(*)]
              AggregateExec: mode=FinalPartitioned, gby=[w@0 as w, v@1 as v], aggr=[count(Int64(1))]
                ExchangeExec: partitioning=Hash([w@0, v@1], 2), input_partitions=2
                  StarPipelineExec: scan=[table=t, columns=[v, w]], aggregates=[count(Int64(1))] (partial), groups \
                      hashed
            ",
        );
    }
}
