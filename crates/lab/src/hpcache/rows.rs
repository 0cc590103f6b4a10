//! Runs and figures as rows.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Float64Builder, ListBuilder, RecordBatch, StringArray, StringBuilder,
    UInt32Array, UInt64Array,
};
use arrow::error::ArrowError;
use hotshelf_cli::benchmark::{Measurement, Query};
use hotshelf_cli::output::Format;
use hotshelf_cli::picture::Figure;

use super::SequenceRun;

/// The first queries of a sequence meet a cold cache and a tuner that knows nothing.
const COLD_QUERIES: usize = 6;

/// The run with the median time.
pub fn middle(mut runs: Vec<SequenceRun>) -> Option<SequenceRun> {
    runs.sort_by(|a, b| a.total_s().total_cmp(&b.total_s()));
    let middle = (runs.len().max(1) - 1) / 2;
    runs.into_iter().nth(middle)
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

fn texts<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

pub fn query_rows(queries: &[Query]) -> std::result::Result<RecordBatch, ArrowError> {
    RecordBatch::try_from_iter([
        ("query", texts(queries.iter().map(|query| query.0))),
        ("sql", texts(queries.iter().map(|query| query.1))),
    ])
}

/// A row per policy. Formats without lists get them as words.
pub fn policy_rows(
    runs: &[SequenceRun],
    format: Format,
) -> std::result::Result<RecordBatch, ArrowError> {
    let counts = |of: fn(&SequenceRun) -> u64| {
        Arc::new(UInt64Array::from_iter_values(runs.iter().map(of))) as ArrayRef
    };
    let reals = |of: &dyn Fn(&SequenceRun) -> Option<f64>| {
        Arc::new(
            runs.iter()
                .map(|run| of(run).map(rounded))
                .collect::<Float64Array>(),
        ) as ArrayRef
    };
    let error = |run: &SequenceRun, part: f64| quantile(run.prediction_errors(COLD_QUERIES), part);
    let as_words = matches!(format, Format::Csv | Format::Markdown);
    let lists = |of: fn(&Measurement) -> Option<f64>| lists_of(runs, of, as_words);
    RecordBatch::try_from_iter_with_nullable([
        (
            "policy",
            texts(runs.iter().map(|run| run.contender.name())),
            false,
        ),
        ("budget_bytes", counts(|run| run.budget_bytes), false),
        ("total_s", reals(&|run| Some(run.total_s())), false),
        ("queries", names_of(runs, as_words), true),
        ("seconds", lists(|query| Some(query.seconds)), true),
        ("pipeline_seconds", lists(|query| query.pipeline_s), true),
        ("predicted_seconds", lists(|query| query.predicted_s), true),
        ("bytes_cache", counts(SequenceRun::bytes_cache), false),
        ("bytes_storage", counts(SequenceRun::bytes_storage), false),
        (
            "prediction_error_median",
            reals(&|run| error(run, 0.5)),
            true,
        ),
        ("prediction_error_p95", reals(&|run| error(run, 0.95)), true),
        (
            "tuner_s",
            reals(&|run| Some(run.tuner.step_ns_total as f64 * 1e-9)),
            false,
        ),
        (
            "solve_s_max",
            reals(&|run| Some(run.tuner.solve_ns_max as f64 * 1e-9)),
            false,
        ),
        (
            "storage_bandwidth",
            reals(&|run| Some(run.tuner.storage_bandwidth).filter(|known| *known > 0.0)),
            true,
        ),
    ])
}

fn quantile(mut values: Vec<f64>, part: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * part).round() as usize).copied()
}

fn names_of(runs: &[SequenceRun], as_words: bool) -> ArrayRef {
    if as_words {
        let words = runs.iter().map(|run| run.names.join(" "));
        return Arc::new(StringArray::from_iter_values(words));
    }
    let mut names = ListBuilder::new(StringBuilder::new());
    for run in runs {
        names.append_value(run.names.iter().map(Some));
    }
    Arc::new(names.finish())
}

/// A number of each query, where it has one.
fn lists_of(runs: &[SequenceRun], of: fn(&Measurement) -> Option<f64>, as_words: bool) -> ArrayRef {
    if as_words {
        let word = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.4}"));
        let words = |run: &SequenceRun| {
            let words = run.queries.iter().map(|query| word(of(query)));
            words.collect::<Vec<_>>().join(" ")
        };
        return Arc::new(StringArray::from_iter_values(runs.iter().map(words)));
    }
    let mut lists = ListBuilder::new(Float64Builder::new());
    for run in runs {
        lists.append_value(run.queries.iter().map(|query| of(query).map(rounded)));
    }
    Arc::new(lists.finish())
}

/// A row per point.
pub fn figure_rows(
    figures: &[(u32, Figure)],
    how: &str,
) -> std::result::Result<RecordBatch, ArrowError> {
    let (mut numbers, mut panels, mut series) = (Vec::new(), Vec::new(), Vec::new());
    let (mut xs, mut ys) = (Vec::new(), Vec::new());
    for (number, figure) in figures {
        for panel in &figure.panels {
            for line in &panel.series {
                for (x, y) in &line.points {
                    numbers.push(*number);
                    panels.push(panel.title.as_str());
                    series.push(line.label.as_str());
                    xs.push(rounded(*x));
                    ys.push(rounded(*y));
                }
            }
        }
    }
    let count = numbers.len();
    RecordBatch::try_from_iter([
        ("figure", Arc::new(UInt32Array::from(numbers)) as ArrayRef),
        ("how", texts(std::iter::repeat_n(how, count))),
        ("panel", texts(panels.into_iter())),
        ("series", texts(series.into_iter())),
        ("x", Arc::new(Float64Array::from(xs)) as ArrayRef),
        ("y", Arc::new(Float64Array::from(ys)) as ArrayRef),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpcache::Contender;
    use crate::policy::CachePolicy;

    fn run(total_s: f64) -> SequenceRun {
        SequenceRun {
            contender: Contender::Policy(CachePolicy::Lru),
            budget_bytes: 5,
            names: vec!["Q2.1"; 2],
            queries: vec![
                Measurement {
                    seconds: total_s / 2.0,
                    bytes_cache: 10,
                    bytes_storage: 20,
                    ..Measurement::default()
                };
                2
            ],
            tuner: Default::default(),
        }
    }

    #[test]
    fn the_run_with_the_median_time_is_shown() {
        let shown = middle(vec![run(3.0), run(1.0), run(2.0)]).unwrap();
        assert_eq!(shown.total_s(), 2.0);
        assert!(middle(Vec::new()).is_none());
    }

    #[test]
    fn rows_hold_lists_or_words() {
        for (format, kind) in [(Format::Json, "List"), (Format::Csv, "Utf8")] {
            let rows = policy_rows(&[run(1.0)], format).unwrap();
            let schema = rows.schema();
            for name in ["queries", "seconds", "predicted_seconds"] {
                let kind_of = schema.field_with_name(name).unwrap().data_type();
                assert!(kind_of.to_string().starts_with(kind), "{name}: {kind_of}");
            }
            assert_eq!(rows.num_rows(), 1);
        }
    }

    #[test]
    fn quantiles_of_nothing_are_nothing() {
        assert_eq!(quantile(Vec::new(), 0.5), None);
        assert_eq!(quantile(vec![3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(vec![3.0, 1.0, 2.0], 0.95), Some(3.0));
    }
}
