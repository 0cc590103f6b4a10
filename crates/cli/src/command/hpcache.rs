//! `hotshelf bench hpcache`: sequences of queries under each cache policy, and the figures of the HPCache paper.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Float64Builder, ListBuilder, RecordBatch, StringArray, StringBuilder,
    UInt32Array, UInt64Array,
};
use arrow::error::ArrowError;
use hotshelf::{BUDGET_BYTES_MIN, Database, PolicyKind, Session};
use hotshelf_bench::experiment::hpcache::{
    Contender, RunOptions, Sequence, SequenceRun, ample_budget_bytes, begin_cold, measured, query,
    run_sequence, simulated, solver_panels,
};
use hotshelf_bench::experiment::plot::Figure;
use hotshelf_bench::experiment::{Measurement, Query, measure, median};
use hotshelf_datagen::ssb::{SsbGenerator, SsbTable};

use super::bench::prepare;
use crate::failure::{Failure, Result, note};
use crate::flags::{Hpcache, HpcacheWhat};
use crate::interrupt;
use crate::opened::Opened;
use crate::output::{Format, Output, Target};
use crate::progress::{Progress, bytes};

/// The paper's budget as a part of a query's working set (§7.2, Figure 11).
const BUDGET_SHARE: f64 = 80.0 / 96.0;
/// The paper's storage bandwidth (28 GB/s) as a part of what its Q2.2 processes (80 GB/s), roughly.
const BANDWIDTH_SHARE: f64 = 1.0 / 3.0;
/// Queries before the first policy's turn.
const WARM_UP_QUERIES: usize = 4;
/// The first queries of a sequence meet a cold cache and a tuner that knows nothing.
const COLD_QUERIES: usize = 6;

pub fn run(hpcache: &Hpcache) -> Result<()> {
    match &hpcache.what {
        HpcacheWhat::Sequence {
            sequence,
            seed,
            list: true,
            ..
        } => print(hpcache.format, &query_rows(&sequence.queries(*seed))),
        HpcacheWhat::Sequence {
            sequence,
            seed,
            contenders,
            ..
        } => run_policies(hpcache, *sequence, *seed, contenders),
        HpcacheWhat::Figures {
            numbers,
            measured,
            folder,
        } => figures(hpcache, numbers, *measured, folder),
    }
}

fn print(format: Format, rows: &std::result::Result<RecordBatch, ArrowError>) -> Result<()> {
    let rows = rows.as_ref().map_err(|error| Failure::Format {
        format: "table",
        what: error.to_string(),
    })?;
    let mut output = Output::open(Target::Stdout, format)?;
    output.print(rows)?;
    output.close()
}

/// The database with the benchmark's tables: as it is if it has them, else generated.
fn open(hpcache: &Hpcache) -> Result<Opened> {
    let dataset = SsbGenerator::new(hpcache.scale, 0)?;
    let database = hpcache.engine.open()?;
    let names = database.table_names();
    let complete = SsbTable::ALL
        .iter()
        .all(|table| names.iter().any(|name| name == table.name()));
    if !complete {
        prepare(&database, &dataset, hpcache.engine.options.threads)?;
    }
    Ok(database)
}

/// What sequences and figures run with.
struct Bed {
    budget_bytes: u64,
    bandwidth: Option<u64>,
}

/// Finds out what the paper's proportions mean here, as far as the flags leave that open.
fn lay_out(hpcache: &Hpcache, database: &Database, session: &Session) -> Result<Bed> {
    let bandwidth = match hpcache.storage_bandwidth {
        Some(bandwidth) => bandwidth,
        None => Some((processing_bandwidth(database, session)? * BANDWIDTH_SHARE) as u64),
    };
    let budget_bytes = match hpcache.budget_bytes {
        Some(budget_bytes) => budget_bytes,
        None => {
            let bed = measured_bed(database, session, 0, 1, &|_| ());
            let working_set =
                interrupt::run(database, async { Ok(bed.working_set_bytes().await?) })?;
            (working_set as f64 * BUDGET_SHARE) as u64
        }
    };
    Ok(Bed {
        budget_bytes: budget_bytes.max(BUDGET_BYTES_MIN),
        bandwidth,
    })
}

fn measured_bed<'a>(
    database: &'a Database,
    session: &'a Session,
    bandwidth: u64,
    run_count: usize,
    progress: &'a dyn Fn(&str),
) -> measured::Bed<'a> {
    measured::Bed {
        database,
        session,
        bandwidth,
        run_count,
        progress,
    }
}

/// Bytes per second that Q2.1's pipeline processes in memory.
fn processing_bandwidth(database: &Database, session: &Session) -> Result<f64> {
    let work = async {
        let ample = ample_budget_bytes(database);
        begin_cold(database, session, PolicyKind::All, ample).await?;
        let mut runs: Vec<Measurement> = Vec::new();
        for round in 0..4 {
            if let Some(query) = query("Q2.1") {
                let run = measure(session, query).await?;
                if round > 0 {
                    runs.push(run);
                }
            }
        }
        let run = median(&runs);
        Ok(run.bytes_cache as f64 / run.pipeline_s.unwrap_or(run.seconds).max(1e-9))
    };
    interrupt::run(database, work)
}

fn cap(database: &Database, session: &Session, bandwidth: Option<u64>) -> Result<()> {
    let rate = bandwidth.map_or_else(|| "none".to_owned(), |rate| rate.max(1).to_string());
    let sql = format!("SET hotshelf.storage_bandwidth = '{rate}'");
    interrupt::run(database, async { Ok(session.sql(&sql).await.map(drop)?) })
}

fn run_policies(
    hpcache: &Hpcache,
    sequence: Sequence,
    seed: u64,
    contenders: &[Contender],
) -> Result<()> {
    let database = open(hpcache)?;
    let session = database.session();
    let bed = lay_out(hpcache, &database, &session)?;
    let queries = sequence.queries(seed);
    note(&format!(
        "{sequence}: {} queries, budget {}, storage {}, {} threads",
        queries.len(),
        bytes(bed.budget_bytes),
        bed.bandwidth
            .map_or("not capped".to_owned(), |rate| format!("{}/s", bytes(rate))),
        hpcache.engine.options.threads,
    ));
    let options = RunOptions {
        budget_bytes: bed.budget_bytes,
        settings: Vec::new(),
    };
    // As in the paper, queries warm up what is no cache: code, files, freshly mapped memory.
    let warm_up = async {
        begin_cold(&database, &session, PolicyKind::All, bed.budget_bytes).await?;
        for query in queries.iter().take(WARM_UP_QUERIES) {
            measure(&session, *query).await?;
        }
        Ok(())
    };
    interrupt::run(&database, warm_up)?;
    cap(&database, &session, bed.bandwidth)?;
    let mut runs: Vec<Vec<SequenceRun>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..hpcache.run_count {
        for turn in 0..contenders.len() {
            let idx = (turn + round) % contenders.len();
            let mut progress = Progress::start(contenders[idx].name(), "queries");
            let done = |done: usize| progress.show(done as u64 + 1, queries.len() as u64);
            let work = async {
                Ok(run_sequence(
                    &database,
                    &session,
                    contenders[idx],
                    &queries,
                    &options,
                    done,
                )
                .await?)
            };
            let run = interrupt::run(&database, work)?;
            progress.clear();
            note(&format!(
                "{}: {:.3} s",
                contenders[idx].name(),
                run.total_s()
            ));
            runs[idx].push(run);
        }
    }
    let shown: Vec<SequenceRun> = runs.into_iter().filter_map(middle).collect();
    print(hpcache.format, &policy_rows(&shown, hpcache.format))
}

/// The run with the median time.
fn middle(mut runs: Vec<SequenceRun>) -> Option<SequenceRun> {
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

fn query_rows(queries: &[Query]) -> std::result::Result<RecordBatch, ArrowError> {
    RecordBatch::try_from_iter([
        ("query", texts(queries.iter().map(|query| query.0))),
        ("sql", texts(queries.iter().map(|query| query.1))),
    ])
}

/// A row per policy. Formats without lists get them as words.
fn policy_rows(
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

fn figures(hpcache: &Hpcache, numbers: &[u32], is_measured: bool, folder: &Path) -> Result<()> {
    let how = if is_measured { "measured" } else { "simulated" };
    fs::create_dir_all(folder).map_err(Failure::io("create", folder))?;
    let mut done: Vec<(u32, Figure)> = Vec::new();
    let of_solver = |number: u32| number == 9;
    if is_measured && !numbers.iter().all(|number| of_solver(*number)) {
        let database = open(hpcache)?;
        let session = database.session();
        let bandwidth = lay_out(hpcache, &database, &session)?
            .bandwidth
            .unwrap_or(u64::MAX >> 1);
        let progress = |what: &str| note(&format!("  {what}"));
        for number in numbers.iter().filter(|number| !of_solver(**number)) {
            note(&format!("figure {number}, storage {}/s", bytes(bandwidth)));
            let bed = measured_bed(
                &database,
                &session,
                bandwidth,
                hpcache.run_count.max(3),
                &progress,
            );
            let figure = interrupt::run(&database, async { Ok(bed.figure(*number).await?) })?;
            done.push((*number, figure));
        }
    } else {
        for number in numbers.iter().filter(|number| !of_solver(**number)) {
            done.push((*number, simulated::figure(*number)?));
        }
    }
    if numbers.iter().any(|number| of_solver(*number)) {
        let figure = Figure {
            title: "Figure 9: time of one solution".to_owned(),
            subtitle: "measured here, one core; queries over four random columns".to_owned(),
            panels: solver_panels(),
        };
        done.push((9, figure));
    }
    for (number, figure) in &done {
        let how = if of_solver(*number) { "measured" } else { how };
        let path = folder.join(format!("hpcache-{number:02}-{how}.svg"));
        figure.draw(&path)?;
        note(&format!("wrote {}", path.display()));
    }
    print(hpcache.format, &figure_rows(&done, how))
}

/// A row per point.
fn figure_rows(
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

    fn run(total_s: f64) -> SequenceRun {
        SequenceRun {
            contender: Contender::Policy(PolicyKind::Lru),
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
