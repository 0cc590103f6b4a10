//! What operators hold, as far as plans can tell, and how much of the memory that should be.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result as QueryResult;
use datafusion::physical_plan::ExecutionPlan;

use super::rows::expected;

/// A build side that has to stay in memory should come to no more than one part in this many of what operators may
/// hold, groups to one in this many.
pub(crate) const BUILD_PARTS: u64 = 2;
pub(crate) const GROUP_PARTS: u64 = 4;
/// Bytes of a hash table per row, and of a column whose width is not known.
pub(crate) const TABLE_ROW_BYTES: usize = 24;
pub(crate) const VALUE_BYTES: usize = 24;

/// Bytes of a row of these columns in a hash table.
pub(crate) fn row_bytes<'a>(types: impl Iterator<Item = &'a DataType>) -> usize {
    value_bytes(types) + TABLE_ROW_BYTES
}

/// Bytes of a row of these columns, by their widths or by guess.
pub(crate) fn value_bytes<'a>(types: impl Iterator<Item = &'a DataType>) -> usize {
    let widths = types.map(|data_type| data_type.primitive_width().unwrap_or(VALUE_BYTES));
    widths.sum::<usize>()
}

/// What a hash table of the rows of a plan would take, as far as the statistics tell; `None` if they are silent.
fn table_bytes(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<Option<u64>> {
    bytes_with(plan, TABLE_ROW_BYTES)
}

/// What the rows of a plan take without a table, as far as the statistics tell; `None` if they are silent.
pub(crate) fn stored_bytes(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<Option<u64>> {
    bytes_with(plan, 0)
}

fn bytes_with(plan: &Arc<dyn ExecutionPlan>, row_bytes: usize) -> QueryResult<Option<u64>> {
    let statistics = expected(plan)?;
    let Some(&rows) = statistics.num_rows.get_value() else {
        return Ok(None);
    };
    let schema = plan.schema();
    let values = value_bytes(schema.fields().iter().map(|field| field.data_type()));
    Ok(Some(
        (rows as u64).saturating_mul((values + row_bytes) as u64),
    ))
}

/// Whether a table of a plan's rows is expected to take no more than one part in `parts` of these bytes, or the
/// statistics are silent.
fn fits(plan: &Arc<dyn ExecutionPlan>, bytes: u64, parts: u64) -> QueryResult<bool> {
    Ok(bytes > 0 && table_bytes(plan)?.unwrap_or(0) <= bytes / parts)
}

/// Whether the rows of a plan may be kept as groups may, where operators may hold this many bytes.
pub(crate) fn may_be_kept(plan: &Arc<dyn ExecutionPlan>, bytes: u64) -> QueryResult<bool> {
    fits(plan, bytes, GROUP_PARTS)
}

/// Whether the rows of a plan may be a build side that stays in memory, where operators may hold this many bytes.
/// They may if the statistics are silent.
pub(crate) fn may_be_built(plan: &Arc<dyn ExecutionPlan>, bytes: u64) -> QueryResult<bool> {
    fits(plan, bytes, BUILD_PARTS)
}

/// The same, unless the statistics are silent.
pub(crate) fn is_sure_to_be_built(plan: &Arc<dyn ExecutionPlan>, bytes: u64) -> QueryResult<bool> {
    Ok(table_bytes(plan)?.is_some() && may_be_built(plan, bytes)?)
}
