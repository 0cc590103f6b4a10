//! Repartitionings become Hotshelf's exchanges, which spill as all its operators do.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use crate::operators::ExchangeExec;

/// Replaces repartitionings, whatever the settings: the engine's may wait forever. The last rule, since others look
/// for the engine's.
#[derive(Debug)]
pub(super) struct Exchanges;

impl PhysicalOptimizerRule for Exchanges {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        replace(plan)
    }

    fn name(&self) -> &str {
        "exchanges"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn replace(plan: Arc<dyn ExecutionPlan>) -> QueryResult<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let before = node.clone();
        let node = crate::star::with_fallback(node, replace)?;
        if let Some(own) = ExchangeExec::replacing(&node) {
            return Ok(Transformed::yes(Arc::new(own)));
        }
        Ok(match Arc::ptr_eq(&before, &node) {
            true => Transformed::no(node),
            false => Transformed::yes(node),
        })
    })
    .data()
}
