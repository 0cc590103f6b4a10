//! What a statement would have needed that found no room for what it spills.

use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::physical_plan::ExecutionPlan;
use hotshelf_operators::OperatorError;

use crate::error::Error;
use crate::operators::{
    SharedSortExec, SpillingAggregateExec, SpillingHashJoinExec, SpillingSortExec,
};
use crate::shared::shared_part;
use crate::statistics::sizes::stored_bytes;

/// The error of a plan. One for lack of room says how much the plan's operators may have to spill.
pub(super) fn with_need(error: DataFusionError, plan: &Arc<dyn ExecutionPlan>) -> DataFusionError {
    let DataFusionError::External(root) = error.find_root() else {
        return error;
    };
    let Some(Error::Operator(short)) = root.downcast_ref::<Error>() else {
        return error;
    };
    match short {
        OperatorError::DiskFull { .. } | OperatorError::SpillLimit { .. } => Error::NoRoomToSpill {
            error: short.clone(),
            rows_bytes: spilled_bytes_max(plan),
        }
        .into(),
        _ => error,
    }
}

/// Bytes of all rows that the operators of a plan keep, as far as statistics tell: those of both sides of joins, those
/// to be sorted, and the groups of aggregations.
fn spilled_bytes_max(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let bytes_of = |plan: &Arc<dyn ExecutionPlan>| stored_bytes(plan).ok().flatten().unwrap_or(0);
    let children = plan.children();
    let is_sort = plan.is::<SpillingSortExec>() || plan.is::<SharedSortExec>();
    let own = if is_sort || plan.is::<SpillingHashJoinExec>() {
        children
            .iter()
            .map(|child| bytes_of(child))
            .fold(0, u64::saturating_add)
    } else if plan.is::<SpillingAggregateExec>() {
        bytes_of(plan)
    } else {
        0
    };
    let below = children
        .into_iter()
        .chain(shared_part(plan).map(|(_, part)| part));
    below.map(spilled_bytes_max).fold(own, u64::saturating_add)
}
