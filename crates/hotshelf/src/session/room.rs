//! What a statement would have needed that found no room for what it spills.

use std::sync::Arc;

use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::physical_plan::ExecutionPlan;
use hotshelf_operators::OperatorError;

use crate::error::Error;
use crate::operators::{
    SharedSortExec, SpillingAggregateExec, SpillingHashJoinExec, SpillingSortExec,
};
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
            rows_bytes: spilled_bytes_max(plan).unwrap_or(0),
        }
        .into(),
        _ => error,
    }
}

/// Bytes of all rows that the operators of a plan keep, as far as statistics tell: those of both sides of joins, those
/// to be sorted, and the groups of aggregations.
fn spilled_bytes_max(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<u64> {
    let children = plan.children();
    let mut bytes = 0_u64;
    for child in &children {
        bytes = bytes.saturating_add(spilled_bytes_max(child)?);
    }
    let is_sort = plan.is::<SpillingSortExec>() || plan.is::<SharedSortExec>();
    if is_sort || plan.is::<SpillingHashJoinExec>() {
        for child in children {
            bytes = bytes.saturating_add(stored_bytes(child)?.unwrap_or(0));
        }
    } else if plan.is::<SpillingAggregateExec>() {
        bytes = bytes.saturating_add(stored_bytes(plan)?.unwrap_or(0));
    }
    Ok(bytes)
}
