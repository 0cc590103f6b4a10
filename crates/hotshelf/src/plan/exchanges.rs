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
