//! What HPCache knows, did and advises.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{exec_datafusion_err, plan_err};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::Expr;
use datafusion::scalar::ScalarValue;
use hotshelf_cache::tuner::{AdviceRow, Tuner};

use super::listing::{Columns, Listing, table};
use super::open;
use crate::database::Parts;
use crate::engine::Engine;

/// Points of the advice curve.
const ADVICE_ROWS: u32 = 20;

/// A value from inside the tuner; the default without a tuner.
fn inspect<T: Default>(engine: &Engine, what: impl FnOnce(&Tuner) -> T) -> T {
    let tuner = engine.tuner.as_ref();
    tuner.map(|tuner| tuner.inspect(what)).unwrap_or_default()
}

/// One row per column of the tuner's last placement.
pub(super) fn columns(parts: &Parts) -> Columns {
    let (engine, names) = (&parts.engine, &parts.storage.cache_names);
    let columns = engine.cache.columns().into_iter();
    let kept = columns.map(|row| {
        let share = row.cached_bytes as f64 / (row.total_bytes as f64).max(1.0);
        (row.column, share)
    });
    let kept: BTreeMap<_, _> = kept.collect();
    Listing::of(inspect(engine, Tuner::targets))
        .text("table_name", |row| names.column(row.column).table)
        .text("column_name", |row| names.column(row.column).column)
        .count("bytes", |row| row.bytes)
        .real("target", |row| row.proportion)
        .real("actual", |row| {
            kept.get(&row.column).copied().unwrap_or(0.0)
        })
        .real("seconds_saved_per_gb", |row| row.saved_s_per_byte * 1e9)
        .columns()
}

/// One row per pipeline of the look-back window.
pub(super) fn pipelines(parts: &Parts) -> Columns {
    let names = &parts.storage.cache_names;
    Listing::of(inspect(&parts.engine, Tuner::pipelines))
        .text("template", |row| format!("{:016x}", row.template))
        .text("table_name", |row| {
            let name = row.column.map(|column| names.column(column).table);
            name.unwrap_or_default()
        })
        .count("pipeline", |row| u64::from(row.pipeline))
        .real("weight", |row| row.weight)
        .real("bytes", |row| row.bytes)
        .real("processing_bandwidth", |row| row.processing_bandwidth)
        .real("predicted_s", |row| row.predicted_s)
        .real("actual_s", |row| row.actual_s)
        .real("in_memory_s", |row| row.in_memory_s)
        .text("bound", |row| format!("{:?}", row.bound).to_lowercase())
        .columns()
}

/// One row: what the tuner did.
pub(super) fn tuner(engine: &Engine) -> Columns {
    let tuner = engine.tuner.as_ref();
    let is_working = tuner.is_some_and(|tuner| !tuner.is_paused());
    Listing::of(vec![inspect(engine, Tuner::stats)])
        .flag("working", |_| is_working)
        .count("steps", |row| row.step_count)
        .count("step_ns", |row| row.step_ns_total)
        .count("skipped", |row| row.skip_count)
        .count("solves", |row| row.solve_count)
        .count("decisions", |row| {
            row.solve_count.saturating_sub(row.failure_count)
        })
        .count("failures", |row| row.failure_count)
        .text("last_error", |row| row.last_error.clone())
        .count("columns", |row| row.column_count as u64)
        .count("pipelines", |row| row.term_count as u64)
        .count("budget_bytes", |row| row.budget_bytes)
        .count("kept_bytes", |row| row.kept_bytes)
        .real("gap", |row| row.gap)
        .real("saved_s", |row| row.saved_s)
        .real("seconds_saved_per_gb", |row| row.saved_s_per_byte * 1e9)
        .count("solve_ns", |row| row.solve_ns)
        .count("solve_ns_max", |row| row.solve_ns_max)
        .real("storage_bandwidth", |row| row.storage_bandwidth)
        .real("memory_bandwidth", |row| row.memory_bandwidth)
        .real("overlap_loss", |row| row.overlap_loss)
        .text("window", |row| row.smoothing.to_string())
        .columns()
}

/// Without an argument the curve of time against memory: what each further part of memory would buy. With a slowdown
/// such as 1.1 one row: the least memory with which no query takes longer than this many times its time in memory.
pub(super) struct Advice(pub Weak<Engine>);

impl std::fmt::Debug for Advice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hpcache_advice")
    }
}

impl TableFunctionImpl for Advice {
    fn call_with_args(&self, args: TableFunctionArgs) -> QueryResult<Arc<dyn TableProvider>> {
        let engine = open(&self.0)?;
        let slowdown = match args.exprs() {
            [] => None,
            [slowdown] => Some(number(slowdown)?),
            _ => return plan_err!("hpcache_advice() takes a slowdown or nothing"),
        };
        let tuner = engine.tuner.as_ref();
        let rows = match slowdown {
            None => tuner.map(|tuner| tuner.inspect(|tuner| tuner.advice(ADVICE_ROWS))),
            Some(slowdown) => tuner
                .map(|tuner| tuner.inspect(|tuner| tuner.least_memory(slowdown)))
                .transpose()
                .map_err(|error| exec_datafusion_err!("hpcache_advice({slowdown}): {error}"))?
                .map(|row| row.into_iter().collect()),
        };
        table(advice_rows(rows.unwrap_or_default()))
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

fn advice_rows(rows: Vec<AdviceRow>) -> Columns {
    Listing::of(rows)
        .count("budget_bytes", |row| row.budget_bytes)
        .real("total_s", |row| row.total_s)
        .real("slowdown", |row| row.slowdown)
        .real("seconds_saved_per_gb", |row| row.saved_s_per_byte * 1e9)
        .columns()
}
