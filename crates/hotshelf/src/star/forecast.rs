//! What the statistics say about a build side before it runs, and which build sides they rule out.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::common::stats::Precision;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;

use super::again::may_run_twice;
use super::declined::Declined;
use super::keys::KeyColumn;
use super::matching::Matching;
use crate::scan::TableScan;
use crate::statistics::origin::joined_column;
use crate::statistics::rows::expected;

/// A build key with fewer distinct values than this share of its table's rows is not worth trying.
const DISTINCT_SHARE_MIN: f64 = 0.7;

/// What the statistics say about a look-up before it is built.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forecast {
    /// Build rows after filters.
    pub rows: Option<usize>,
    /// Greatest key less least key.
    pub range: Option<u64>,
    /// Rows of the build side's largest table.
    pub table_rows: usize,
}

impl Forecast {
    /// The share of scanned rows that find a key, if keys are spread evenly over the table's rows.
    pub fn kept(&self) -> Option<f64> {
        let rows = self.rows? as f64;
        (self.table_rows > 0).then(|| (rows / self.table_rows as f64).min(1.0))
    }
}

/// Refuses build sides of more rows than `rows_max`, and those whose key is known to repeat: that of a join only where
/// rows are attached.
pub(super) fn check_build(
    build: &Arc<dyn ExecutionPlan>,
    key: &Arc<dyn PhysicalExpr>,
    matching: Matching,
    rows_max: usize,
) -> Result<Forecast, Declined> {
    if !may_run_twice(build)? {
        return Err(Declined(format!(
            "the build side of {key} narrows its scan while it runs, and may have to run again"
        )));
    }
    let statistics = expected(build)?;
    let rows = statistics.num_rows.get_value().copied();
    if rows.unwrap_or(0) > rows_max {
        return Err(Declined(format!(
            "the build side of {key} has about {} rows, more than {rows_max}",
            rows.unwrap_or(0),
        )));
    }
    let column = key.downcast_ref::<Column>().map(Column::index);
    let repeats = |column| match matching.attaches() {
        true => repeats(build, column),
        false => has_repeats(build, column),
    };
    if column.is_some_and(repeats) {
        return Err(Declined(format!("the build key {key} repeats")));
    }
    let range = column.and_then(|column| {
        let statistics = statistics.column_statistics.get(column)?;
        let word = |value: &Precision<ScalarValue>| {
            let array = value.get_value()?.to_array().ok()?;
            KeyColumn::new(&array).ok()?.word(0)
        };
        let (min, max) = (word(&statistics.min_value)?, word(&statistics.max_value)?);
        Some(max.wrapping_sub(min))
    });
    Ok(Forecast {
        rows,
        range,
        table_rows: largest_table(build),
    })
}

/// Whether the statistics say that a key does not repeat in a build side.
pub(super) fn is_known_key(build: &Arc<dyn ExecutionPlan>, key: &Arc<dyn PhysicalExpr>) -> bool {
    let column = key.downcast_ref::<Column>().map(Column::index);
    let share = column.and_then(|column| distinct_share(build, column));
    share.is_some_and(|share| share >= DISTINCT_SHARE_MIN)
}

/// The input of operators that only move batches between tasks.
pub(super) fn pass_through(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
        return (!repartition.preserve_order()).then(|| repartition.input());
    }
    if let Some(coalesce) = plan.downcast_ref::<CoalescePartitionsExec>() {
        return coalesce.fetch().is_none().then(|| coalesce.input());
    }
    plan.downcast_ref::<CooperativeExec>()
        .map(CooperativeExec::input)
}

/// Whether a plan is expected to give no more rows than another.
pub(super) fn has_fewer_rows(
    plan: &Arc<dyn ExecutionPlan>,
    other: &Arc<dyn ExecutionPlan>,
) -> bool {
    let rows = |plan| expected(plan).ok()?.num_rows.get_value().copied();
    rows(plan)
        .zip(rows(other))
        .is_some_and(|(rows, others)| rows <= others)
}

/// Rows of the largest table below a plan.
pub(super) fn largest_table(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = TableScan::of(plan)
        .and_then(|scan| scan.table.statistics.num_rows.get_value().copied())
        .unwrap_or(0);
    let below = plan.children().into_iter().map(largest_table).max();
    own.max(below.unwrap_or(0))
}

/// Whether a key is known to repeat in a build side.
pub(super) fn is_repeated(build: &Arc<dyn ExecutionPlan>, key: &Arc<dyn PhysicalExpr>) -> bool {
    let column = key.downcast_ref::<Column>();
    column.is_some_and(|column| repeats(build, column.index()))
}

/// Whether a column of a build side is known to repeat. What a join gives of a table's column repeats where that does,
/// unless few rows remain, which are quickly joined in any way.
fn repeats(plan: &Arc<dyn ExecutionPlan>, column: usize) -> bool {
    if let Some(input) = pass_through(plan) {
        return repeats(input, column);
    }
    let join = plan.downcast_ref::<HashJoinExec>();
    match join.and_then(|join| joined_column(join, column)) {
        Some((input, column)) => repeats(input, column),
        None => has_repeats(plan, column),
    }
}

/// The same of a table's column.
fn has_repeats(plan: &Arc<dyn ExecutionPlan>, column: usize) -> bool {
    distinct_share(plan, column).is_some_and(|share| share < DISTINCT_SHARE_MIN)
}

/// Notes that a table's column repeats, where a build side passes its values through.
pub(super) fn learn_repeats(build: &Arc<dyn ExecutionPlan>, key: &Arc<dyn PhysicalExpr>) {
    let column = key.downcast_ref::<Column>();
    let origin = column.and_then(|column| origin(build, column.index()));
    if let Some((scan, column)) = origin {
        scan.table.repeating.learn(column);
    }
}

/// Distinct values of a table's column by its rows, where the plan passes the column through; none if it is known that
/// a value occurs twice.
fn distinct_share(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<f64> {
    let (scan, column) = origin(plan, column)?;
    if scan.table.repeats(column) {
        return Some(0.0);
    }
    let statistics = &scan.table.statistics;
    let rows = *statistics.num_rows.get_value()?;
    let of_column = statistics.column_statistics.get(column)?;
    let distinct = *of_column.distinct_count.get_value()?;
    Some(distinct as f64 / rows.max(1) as f64)
}

/// The scan that a column comes from, and its index in the table, where the plan passes the column through.
fn origin(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<(&TableScan, usize)> {
    if let Some(scan) = TableScan::of(plan) {
        return Some((scan, *scan.columns.get(column)?));
    }
    if let Some(input) = pass_through(plan) {
        return origin(input, column);
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let column = match filter.projection() {
            Some(projection) => *projection.get(column)?,
            None => column,
        };
        return origin(filter.input(), column);
    }
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    let column = projection
        .expr()
        .get(column)?
        .expr
        .downcast_ref::<Column>()?;
    origin(projection.input(), column.index())
}
