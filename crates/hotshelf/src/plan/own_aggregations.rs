//! Aggregations whose groups are expected not to fit become Hotshelf's, which spill by partition.
//!
//! DataFusion's sorts and writes all groups at once when memory is short, and merges them in one pass. It stays where
//! the groups fit. Partial aggregations stay, too: they hand on what they hold.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use super::own_joins::table_bytes;
use crate::operators::SpillingAggregateExec;
use crate::settings::{SessionSettings, Use};

/// Groups should come to no more than one part in this many of what operators may hold.
const FITTING_PARTS: u64 = 4;

/// Replaces aggregations.
#[derive(Debug)]
pub(super) struct OwnAggregations;

impl PhysicalOptimizerRule for OwnAggregations {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let Some(settings) = config.extensions.get::<SessionSettings>() else {
            return Ok(plan);
        };
        let bytes_max = match settings.operators {
            Use::Off => return Ok(plan),
            Use::Always => 0,
            Use::On => settings.operator_bytes_max() / FITTING_PARTS,
        };
        replace(plan, bytes_max)
    }

    fn name(&self) -> &str {
        "own_aggregations"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn replace(plan: Arc<dyn ExecutionPlan>, bytes_max: u64) -> QueryResult<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let before = node.clone();
        let node = crate::star::with_fallback(node, |original| replace(original, bytes_max))?;
        if !Arc::ptr_eq(&before, &node) {
            return Ok(Transformed::yes(node));
        }
        let is_large = node.downcast_ref::<AggregateExec>().is_some()
            && (bytes_max == 0 || table_bytes(&node)? > bytes_max);
        if !is_large {
            return Ok(Transformed::no(node));
        }
        Ok(match SpillingAggregateExec::replacing(&node)? {
            Some(own) => Transformed::yes(Arc::new(own)),
            None => Transformed::no(node),
        })
    })
    .data()
}
