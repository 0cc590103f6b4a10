//! Hash joins become Hotshelf's, and so do aggregations that are expected not to fit: both spill by partition.
//!
//! DataFusion's hash join has to hold one side, and its aggregation writes all groups at once when memory is short. The
//! latter stays where what it holds fits; partial aggregations stay, too: they hand on what they hold. Where an
//! estimate was wrong and memory runs out before the first row of an answer, the query begins again with all of them
//! replaced (`session/answer.rs`).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::replace_operators;
use super::sizes::{GROUP_PARTS, TABLE_ROW_BYTES, VALUE_BYTES};
use crate::operators::{SpillingAggregateExec, SpillingHashJoinExec};
use crate::settings::{SessionSettings, Use};

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
        match settings.operators {
            Use::Off => Ok(plan),
            Use::Always => replace(plan, 0),
            Use::On => replace(plan, settings.operator_bytes_max()),
        }
    }

    fn name(&self) -> &str {
        "own_hash_operators"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Replaces joins, and what does not fit in this many bytes; all if there are none.
fn replace(plan: Arc<dyn ExecutionPlan>, bytes: u64) -> QueryResult<Arc<dyn ExecutionPlan>> {
    replace_operators(plan, &|node| in_place_of(node, bytes))
}

/// Hotshelf's operator, for a join or if what this one holds is not expected to fit.
fn in_place_of(
    node: &Arc<dyn ExecutionPlan>,
    bytes: u64,
) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
    if node.is::<HashJoinExec>() {
        let own = SpillingHashJoinExec::replacing(node)?;
        return Ok(own.map(|own| Arc::new(own) as _));
    }
    if node.downcast_ref::<AggregateExec>().is_some() && !fits(node, bytes, GROUP_PARTS)? {
        let own = SpillingAggregateExec::replacing(node)?;
        return Ok(own.map(|own| Arc::new(own) as _));
    }
    Ok(None)
}

/// Whether the rows of a plan may be kept as groups may, where operators may hold this many bytes.
pub(crate) fn may_be_kept(plan: &Arc<dyn ExecutionPlan>, bytes: u64) -> QueryResult<bool> {
    fits(plan, bytes, GROUP_PARTS)
}

/// Whether a table of a plan's rows is expected to take no more than one part in `parts` of these bytes.
fn fits(plan: &Arc<dyn ExecutionPlan>, bytes: u64, parts: u64) -> QueryResult<bool> {
    Ok(bytes > 0 && table_bytes(plan)? <= bytes / parts)
}

/// What a hash table of the rows of a plan would take, as far as the statistics tell; nothing if they are silent.
fn table_bytes(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<u64> {
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
