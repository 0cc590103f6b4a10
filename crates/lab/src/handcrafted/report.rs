//! Results as rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow::error::ArrowError;

use super::price::Comparison;
use super::rates::Rate;

/// A query as one contender ran it.
#[derive(Debug, Clone)]
pub struct QueryRow {
    pub query: &'static str,
    pub contender: &'static str,
    pub look_ups: &'static str,
    pub tier: String,
    pub emulated: bool,
    pub step: &'static str,
    pub threads: usize,
    pub median_s: f64,
    pub build_s: Option<f64>,
    pub bytes: u64,
    /// Bytes per second that all threads read consecutively; unknown for the product's own files.
    pub bandwidth: Option<f64>,
    pub not_shown: Option<&'static str>,
}

fn texts<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn counts(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

fn reals(values: impl Iterator<Item = Option<f64>>) -> ArrayRef {
    let rounded = |value: f64| (value * 1e6).round() / 1e6;
    Arc::new(
        values
            .map(|value| value.map(rounded))
            .collect::<Float64Array>(),
    )
}

fn flags(values: impl Iterator<Item = bool>) -> ArrayRef {
    Arc::new(values.map(Some).collect::<BooleanArray>())
}

pub fn query_rows(rows: &[QueryRow]) -> Result<RecordBatch, ArrowError> {
    let share = |row: &QueryRow| Some(row.bytes as f64 / row.median_s / row.bandwidth?);
    let rate = |row: &QueryRow| Some(row.bytes as f64 / row.median_s / 1e9);
    let not_shown: StringArray = rows.iter().map(|row| row.not_shown).collect();
    RecordBatch::try_from_iter_with_nullable([
        ("query", texts(rows.iter().map(|row| row.query)), false),
        (
            "contender",
            texts(rows.iter().map(|row| row.contender)),
            false,
        ),
        (
            "look_ups",
            texts(rows.iter().map(|row| row.look_ups)),
            false,
        ),
        (
            "tier",
            texts(rows.iter().map(|row| row.tier.as_str())),
            false,
        ),
        (
            "emulated",
            flags(rows.iter().map(|row| row.emulated)),
            false,
        ),
        ("step", texts(rows.iter().map(|row| row.step)), false),
        (
            "threads",
            counts(rows.iter().map(|row| row.threads as u64)),
            false,
        ),
        (
            "median_s",
            reals(rows.iter().map(|row| Some(row.median_s))),
            false,
        ),
        ("build_s", reals(rows.iter().map(|row| row.build_s)), true),
        ("bytes", counts(rows.iter().map(|row| row.bytes)), false),
        ("gigabytes_per_s", reals(rows.iter().map(rate)), true),
        ("bandwidth_share", reals(rows.iter().map(share)), true),
        ("not_shown", Arc::new(not_shown), true),
    ])
}

pub fn rate_rows(rates: &[Rate]) -> Result<RecordBatch, ArrowError> {
    RecordBatch::try_from_iter_with_nullable([
        (
            "structure",
            texts(rates.iter().map(|rate| rate.structure)),
            false,
        ),
        (
            "operation",
            texts(rates.iter().map(|rate| rate.operation)),
            false,
        ),
        (
            "records",
            counts(rates.iter().map(|rate| rate.records as u64)),
            false,
        ),
        (
            "tier",
            texts(rates.iter().map(|rate| rate.tier.as_str())),
            false,
        ),
        (
            "emulated",
            flags(rates.iter().map(|rate| rate.emulated)),
            false,
        ),
        (
            "threads",
            counts(rates.iter().map(|rate| rate.threads as u64)),
            false,
        ),
        (
            "million_per_s",
            reals(rates.iter().map(|rate| Some(rate.per_s / 1e6))),
            false,
        ),
        (
            "bytes",
            counts(rates.iter().map(|rate| rate.bytes as u64)),
            false,
        ),
        (
            "load_factor",
            reals(rates.iter().map(|rate| rate.load_factor)),
            true,
        ),
    ])
}

pub fn price_rows(comparison: &Comparison) -> Result<RecordBatch, ArrowError> {
    let one = |value: f64| reals(std::iter::once(Some(value)));
    RecordBatch::try_from_iter([
        ("slow_dollars", one(comparison.slow_dollars)),
        ("fast_dollars", one(comparison.fast_dollars)),
        ("price_ratio", one(comparison.price_ratio)),
        ("time_ratio", one(comparison.time_ratio)),
        ("advantage_of_slow", one(comparison.advantage)),
    ])
}
