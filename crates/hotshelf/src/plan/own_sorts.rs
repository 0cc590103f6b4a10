//! Sorts of all rows, or of many first ones, and window functions over whole partitions become Hotshelf's, which need
//! no more memory than there is.
//!
//! DataFusion's sort has to hold what it merges, so that sorts that run side by side starve each other, and its heap of
//! first rows is slow when it is large. A sort of few first rows stays DataFusion's. Its window functions over whole
//! partitions keep all rows of all partitions, and count none of them.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;

use crate::operators::{SpillingSortExec, SpillingWindowExec};
use crate::settings::{SessionSettings, Use};

/// Replaces sorts and window functions.
#[derive(Debug)]
pub(super) struct OwnSorts;

impl PhysicalOptimizerRule for OwnSorts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let settings = config.extensions.get::<SessionSettings>();
        if settings.is_none_or(|settings| settings.operators == Use::Off) {
            return Ok(plan);
        }
        plan.transform_up(|node| {
            if let Some(own) = SpillingWindowExec::replacing(&node) {
                return Ok(Transformed::yes(Arc::new(own)));
            }
            let Some(sort) = node.downcast_ref::<SortExec>() else {
                return Ok(Transformed::no(node));
            };
            Ok(match SpillingSortExec::replacing(sort)? {
                Some(own) => Transformed::yes(Arc::new(own)),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "own_sorts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
