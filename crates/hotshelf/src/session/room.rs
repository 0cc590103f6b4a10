//! What a statement would have needed that found no room for what it spills.

use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::physical_plan::ExecutionPlan;

use crate::error::Error;
use crate::error::room::is_lack_of_room;
use crate::operators::{
    SharedSortExec, SpillingAggregateExec, SpillingHashJoinExec, SpillingSortExec,
};
use crate::shared::shared_part;
use crate::statistics::sizes::stored_bytes;
use crate::stored_table::StoredTable;

/// The error of a plan. One for lack of room says how much the plan's operators may have to spill.
pub(super) fn with_need(error: DataFusionError, plan: &Arc<dyn ExecutionPlan>) -> DataFusionError {
    let DataFusionError::External(root) = error.find_root() else {
        return error;
    };
    match root.downcast_ref::<Error>() {
        Some(Error::Operator(short)) if is_lack_of_room(short) => {
            let short = Error::Operator(short.clone());
            short.with_rows_to_spill(|| spilled_bytes_max(plan)).into()
        }
        _ => error,
    }
}

/// The error of a plan whose rows are sorted as well.
pub(super) fn with_need_to_sort(error: Error, plan: &Arc<dyn ExecutionPlan>) -> Error {
    match error {
        Error::NoRoomToSpill { error, .. } => Error::Operator(error),
        other => other,
    }
    .with_rows_to_spill(|| spilled_bytes_max(plan).saturating_add(bytes_of(plan)))
}

fn bytes_of(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    stored_bytes(plan).ok().flatten().unwrap_or(0)
}

/// Bytes of all rows that the operators of a plan keep, as far as statistics tell: those of both sides of joins, those
/// to be sorted, also on their way into a table, and the groups of aggregations.
fn spilled_bytes_max(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let children = plan.children();
    let is_sort = plan.is::<SpillingSortExec>()
        || plan.is::<SharedSortExec>()
        || StoredTable::sorts_what_it_takes(plan);
    let own = if is_sort || plan.is::<SpillingHashJoinExec>() {
        children
            .iter()
            .copied()
            .map(bytes_of)
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
