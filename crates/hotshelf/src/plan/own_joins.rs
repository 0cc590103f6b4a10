//! Hash joins that are expected not to fit become Hotshelf's, which spill.
//!
//! DataFusion's hash join has to hold one side. It stays where that side fits. Where an estimate was wrong and memory
//! runs out before the first row of an answer, the query begins again with all joins replaced (`session/answer.rs`).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::operators::SpillingHashJoinExec;
use crate::settings::{SessionSettings, Use};

/// A build side should come to no more than one part in this many of what operators may hold.
const FITTING_PARTS: u64 = 2;
/// Bytes of a hash table per row, and of a column whose width is not known.
const TABLE_ROW_BYTES: usize = 24;
const VALUE_BYTES: usize = 24;

/// Replaces joins.
#[derive(Debug)]
pub(super) struct OwnJoins;

impl PhysicalOptimizerRule for OwnJoins {
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
        "own_joins"
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
        let is_large = match node.downcast_ref::<HashJoinExec>() {
            Some(join) => bytes_max == 0 || table_bytes(join.left())? > bytes_max,
            None => false,
        };
        if !is_large {
            return Ok(Transformed::no(node));
        }
        Ok(match SpillingHashJoinExec::replacing(&node)? {
            Some(own) => Transformed::yes(Arc::new(own)),
            None => Transformed::no(node),
        })
    })
    .data()
}

/// What a hash table of the rows of a plan would take, as far as the statistics tell; nothing if they are silent.
pub(super) fn table_bytes(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<u64> {
    let statistics =
        StatisticsContext::default().compute(plan.as_ref(), &StatisticsArgs::default())?;
    let Some(&rows) = statistics.num_rows.get_value() else {
        return Ok(0);
    };
    let schema = plan.schema();
    let widths = schema.fields().iter().map(|field| {
        let width = field.data_type().primitive_width();
        width.unwrap_or(VALUE_BYTES)
    });
    let row_bytes = widths.sum::<usize>() + TABLE_ROW_BYTES;
    Ok((rows as u64).saturating_mul(row_bytes as u64))
}
