//! What the statistics say about a build side before it runs, and which build sides they rule out.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::common::stats::Precision;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;

use super::again::may_run_twice;
use super::declined::Declined;
use super::keys::KeyColumn;
use crate::scan::TableScan;
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

/// Refuses build sides of more rows than `rows_max`, and those whose key is known to repeat.
pub(super) fn check_build(
    build: &Arc<dyn ExecutionPlan>,
    key: &Arc<dyn PhysicalExpr>,
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
    let share = column.and_then(|column| distinct_share(build, column));
    if share.is_some_and(|share| share < DISTINCT_SHARE_MIN) {
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

/// Rows of the largest table below a plan.
pub(super) fn largest_table(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = table_scan(plan)
        .and_then(|scan| scan.table.statistics.num_rows.get_value().copied())
        .unwrap_or(0);
    let below = plan.children().into_iter().map(largest_table).max();
    own.max(below.unwrap_or(0))
}

fn table_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<&TableScan> {
    plan.downcast_ref::<DataSourceExec>()?
        .data_source()
        .downcast_ref::<TableScan>()
}

/// Distinct values of a table's column by its rows, where the plan passes the column through.
fn distinct_share(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<f64> {
    if let Some(scan) = table_scan(plan) {
        let statistics = &scan.table.statistics;
        let rows = *statistics.num_rows.get_value()?;
        let column = scan.columns.get(column)?;
        let distinct = *statistics
            .column_statistics
            .get(*column)?
            .distinct_count
            .get_value()?;
        return Some(distinct as f64 / rows.max(1) as f64);
    }
    if let Some(input) = pass_through(plan) {
        return distinct_share(input, column);
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let column = match filter.projection() {
            Some(projection) => *projection.get(column)?,
            None => column,
        };
        return distinct_share(filter.input(), column);
    }
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    let column = projection
        .expr()
        .get(column)?
        .expr
        .downcast_ref::<Column>()?;
    distinct_share(projection.input(), column.index())
}
