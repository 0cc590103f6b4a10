//! Which column of a table a column of a physical plan is.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::operators::{SpillingAggregateExec, SpillingHashJoinExec};
use crate::scan::TableScan;

/// The engine's join, or the one in whose place Hotshelf's is.
pub(crate) fn hash_join(plan: &Arc<dyn ExecutionPlan>) -> Option<&HashJoinExec> {
    match plan.downcast_ref::<SpillingHashJoinExec>() {
        Some(own) => own.join().ok(),
        None => plan.downcast_ref(),
    }
}

/// The engine's aggregation, or the one in whose place Hotshelf's is.
pub(crate) fn aggregation(plan: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    match plan.downcast_ref::<SpillingAggregateExec>() {
        Some(own) => own.aggregate(),
        None => plan.downcast_ref(),
    }
}

/// The scan that a column's values are from, and the column's number in the table. Outer joins may have added NULL.
pub(crate) fn origin(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<(&TableScan, usize)> {
    if let Some(scan) = TableScan::of(plan) {
        return Some((scan, *scan.columns.get(column)?));
    }
    if let Some(join) = hash_join(plan) {
        let (input, column) = joined_column(join, column)?;
        return origin(input, column);
    }
    if let Some(aggregate) = aggregation(plan) {
        let (key, _) = aggregate.group_expr().expr().get(column)?;
        return origin(aggregate.input(), column_of(key)?);
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let column = column_of(&projection.expr().get(column)?.expr)?;
        return origin(projection.input(), column);
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let column = projected(filter.projection().as_ref(), column)?;
        return origin(filter.input(), column);
    }
    match plan.children()[..] {
        // It hands rows on.
        [input] if input.schema() == plan.schema() => origin(input, column),
        _ => None,
    }
}

/// The column that an expression is.
pub(crate) fn column_of(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}

fn projected(projection: Option<&Arc<[usize]>>, column: usize) -> Option<usize> {
    match projection {
        Some(picked) => picked.get(column).copied(),
        None => Some(column),
    }
}

/// The input of a join that a column of its output is from, and its index there.
pub(crate) fn joined_column(
    join: &HashJoinExec,
    column: usize,
) -> Option<(&Arc<dyn ExecutionPlan>, usize)> {
    let column = projected(join.projection.as_ref(), column)?;
    let (left, right) = (join.left(), join.right());
    let left_columns = left.schema().fields().len();
    match join.join_type() {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
            (column < left_columns).then_some((left, column))
        }
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
            (column < right.schema().fields().len()).then_some((right, column))
        }
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
            match column.checked_sub(left_columns) {
                None => Some((left, column)),
                Some(column) => Some((right, column)),
            }
        }
    }
}
