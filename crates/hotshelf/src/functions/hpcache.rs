//! What HPCache knows, did and advises.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use arrow::array::{BooleanArray, Float64Array, StringArray};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{exec_datafusion_err, plan_err};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::Expr;
use datafusion::scalar::ScalarValue;
use hotshelf_cache::ColumnId;
use hotshelf_cache::tuner::{AdviceRow, Tuner};

use super::{Columns, count, open, real, table, text};
use crate::database::Inner;

/// Points of the advice curve.
const ADVICE_ROWS: u32 = 20;

/// One row per column of the tuner's last placement.
pub(super) fn columns(inner: &Inner) -> Columns {
    let rows = inner
        .tuner
        .as_ref()
        .map(|tuner| tuner.inspect(Tuner::targets))
        .unwrap_or_default();
    let kept: BTreeMap<ColumnId, f64> = inner
        .cache
        .columns()
        .into_iter()
        .map(|row| {
            (
                row.column,
                row.cached_bytes as f64 / (row.total_bytes as f64).max(1.0),
            )
        })
        .collect();
    vec![
        (
            "table_name",
            text(rows.iter().map(|row| inner.column_name(row.column).0)),
        ),
        (
            "column_name",
            text(rows.iter().map(|row| inner.column_name(row.column).1)),
        ),
        ("bytes", count(rows.iter().map(|row| row.bytes))),
        ("target", real(rows.iter().map(|row| row.proportion))),
        (
            "actual",
            real(
                rows.iter()
                    .map(|row| kept.get(&row.column).copied().unwrap_or(0.0)),
            ),
        ),
        (
            "seconds_saved_per_gb",
            real(rows.iter().map(|row| row.saved_s_per_byte * 1e9)),
        ),
    ]
}

/// One row per pipeline of the look-back window.
pub(super) fn pipelines(inner: &Inner) -> Columns {
    let rows = inner
        .tuner
        .as_ref()
        .map(|tuner| tuner.inspect(Tuner::pipelines))
        .unwrap_or_default();
    let actual: Float64Array = rows.iter().map(|row| row.actual_s).collect();
    vec![
        (
            "template",
            text(rows.iter().map(|row| format!("{:016x}", row.template))),
        ),
        (
            "table_name",
            text(rows.iter().map(|row| {
                let name = row.column.map(|column| inner.column_name(column).0);
                name.unwrap_or_default()
            })),
        ),
        (
            "pipeline",
            count(rows.iter().map(|row| u64::from(row.pipeline))),
        ),
        ("weight", real(rows.iter().map(|row| row.weight))),
        ("bytes", real(rows.iter().map(|row| row.bytes))),
        (
            "processing_bandwidth",
            real(rows.iter().map(|row| row.processing_bandwidth)),
        ),
        ("predicted_s", real(rows.iter().map(|row| row.predicted_s))),
        ("actual_s", Arc::new(actual)),
        ("in_memory_s", real(rows.iter().map(|row| row.in_memory_s))),
        (
            "bound",
            text(
                rows.iter()
                    .map(|row| format!("{:?}", row.bound).to_lowercase()),
            ),
        ),
    ]
}

/// One row: what the tuner did.
pub(super) fn tuner(inner: &Inner) -> Columns {
    let stats = inner
        .tuner
        .as_ref()
        .map(|tuner| tuner.inspect(Tuner::stats))
        .unwrap_or_default();
    let one = |value: u64| count(std::iter::once(value));
    let one_real = |value: f64| real(std::iter::once(value));
    vec![
        (
            "working",
            Arc::new(BooleanArray::from(vec![
                inner.tuner.as_ref().is_some_and(|tuner| !tuner.is_paused()),
            ])),
        ),
        ("steps", one(stats.step_count)),
        ("step_ns", one(stats.step_ns_total)),
        ("skipped", one(stats.skip_count)),
        ("solves", one(stats.solve_count)),
        (
            "decisions",
            one(stats.solve_count.saturating_sub(stats.failure_count)),
        ),
        ("failures", one(stats.failure_count)),
        (
            "last_error",
            Arc::new(StringArray::from(vec![stats.last_error])),
        ),
        ("columns", one(stats.column_count as u64)),
        ("pipelines", one(stats.term_count as u64)),
        ("budget_bytes", one(stats.budget_bytes)),
        ("kept_bytes", one(stats.kept_bytes)),
        ("gap", one_real(stats.gap)),
        ("saved_s", one_real(stats.saved_s)),
        (
            "seconds_saved_per_gb",
            one_real(stats.saved_s_per_byte * 1e9),
        ),
        ("solve_ns", one(stats.solve_ns)),
        ("solve_ns_max", one(stats.solve_ns_max)),
        ("storage_bandwidth", one_real(stats.storage_bandwidth)),
        ("memory_bandwidth", one_real(stats.memory_bandwidth)),
        ("overlap_loss", one_real(stats.overlap_loss)),
        ("window", text(std::iter::once(stats.smoothing.to_string()))),
    ]
}

/// Without an argument the curve of time against memory: what each further part of memory would buy. With a slowdown such
/// as 1.1 one row: the least memory with which no query takes longer than so many times its time in memory.
pub(super) struct Advice(pub Weak<Inner>);

impl std::fmt::Debug for Advice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hpcache_advice")
    }
}

impl TableFunctionImpl for Advice {
    fn call_with_args(&self, args: TableFunctionArgs) -> QueryResult<Arc<dyn TableProvider>> {
        let inner = open(&self.0)?;
        let slowdown = match args.exprs() {
            [] => None,
            [slowdown] => Some(number(slowdown)?),
            _ => return plan_err!("hpcache_advice() takes a slowdown or nothing"),
        };
        let tuner = inner.tuner.as_ref();
        let rows = match slowdown {
            None => tuner.map(|tuner| tuner.inspect(|tuner| tuner.advice(ADVICE_ROWS))),
            Some(slowdown) => tuner
                .map(|tuner| tuner.inspect(|tuner| tuner.least_memory(slowdown)))
                .transpose()
                .map_err(|error| exec_datafusion_err!("hpcache_advice({slowdown}): {error}"))?
                .map(|row| row.into_iter().collect()),
        };
        table(advice_rows(&rows.unwrap_or_default()))
    }
}

/// A number that was written as such.
fn number(expression: &Expr) -> QueryResult<f64> {
    let value = match expression {
        Expr::Literal(value, _) => value.cast_to(&arrow::datatypes::DataType::Float64).ok(),
        _ => None,
    };
    match value {
        Some(ScalarValue::Float64(Some(value))) => Ok(value),
        _ => plan_err!("hpcache_advice() takes a number such as 1.1, not {expression}"),
    }
}

fn advice_rows(rows: &[AdviceRow]) -> Columns {
    vec![
        (
            "budget_bytes",
            count(rows.iter().map(|row| row.budget_bytes)),
        ),
        ("total_s", real(rows.iter().map(|row| row.total_s))),
        ("slowdown", real(rows.iter().map(|row| row.slowdown))),
        (
            "seconds_saved_per_gb",
            real(rows.iter().map(|row| row.saved_s_per_byte * 1e9)),
        ),
    ]
}
