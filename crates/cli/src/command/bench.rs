//! `hotshelf bench`: the queries of a benchmark, timed and their bytes counted.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use hotshelf::{Database, Session};
use hotshelf_datagen::Dataset;
use hotshelf_datagen::ssb::SsbGenerator;
use hotshelf_datagen::tpch::TpchGenerator;

use crate::benchmark::{Measurement, Query, choose, median, prepare, run_queries, use_parquet};
use crate::failure::{Failure, Result, note};
use crate::flags::{Bench, Benchmark};
use crate::interrupt;
use crate::output::{Output, Target};
use crate::progress::bytes;

pub fn run(bench: &Bench) -> Result<()> {
    match bench.benchmark {
        Benchmark::Ssb => time(bench, &SsbGenerator::new(bench.scale, 0)?),
        Benchmark::Tpch => time(bench, &TpchGenerator::new(bench.scale)?),
    }
}

fn time<D>(bench: &Bench, dataset: &D) -> Result<()>
where
    D: Dataset + Clone + Send + 'static,
{
    let queries = choose(dataset.queries(), &bench.queries)?;
    let database = bench.engine.open()?;
    let session = database.session();
    match &bench.parquet {
        Some(folder) => use_files(&database, &session, dataset, folder)?,
        None => prepare(&database, dataset, bench.engine.options.threads)?,
    }
    note(&settings(bench, dataset.benchmark(), &session));
    let work = async {
        let done = |query: &str, run: Measurement| {
            tracing::info!(
                query,
                seconds = run.seconds,
                bytes_storage = run.bytes_storage,
                "run"
            );
        };
        run_queries(&session, &queries, bench.run_count, done).await
    };
    let runs = interrupt::run(&database, work)?;
    let medians: Vec<Measurement> = runs.iter().map(|runs| median(runs)).collect();
    let mut output = Output::open(Target::Stdout, bench.format)?;
    output.print(&rows(&queries, &medians)?)?;
    output.close()?;
    let seconds: f64 = medians.iter().map(|run| run.seconds).sum();
    note(&format!("sum of the medians: {seconds:.3} s"));
    Ok(())
}

fn use_files<D: Dataset>(
    database: &Database,
    session: &Session,
    dataset: &D,
    folder: &Path,
) -> Result<()> {
    if !folder.is_dir() {
        return Err(Failure::usage(
            format!("{} is not a folder", folder.display()),
            "`hotshelf generate ssb --out DIR` makes one",
        ));
    }
    interrupt::run(database, use_parquet(session, dataset, folder))
}

fn settings(bench: &Bench, benchmark: &str, session: &Session) -> String {
    let options = &bench.engine.options;
    let place = match &bench.parquet {
        Some(folder) => folder.display().to_string(),
        None => session.database().folder().display().to_string(),
    };
    let cap = match options.storage_bandwidth_max {
        Some(rate) => format!("{}/s", bytes(rate)),
        None => "not capped".to_owned(),
    };
    format!(
        "{benchmark} at scale {} in {place}: budget {}, policy {}, storage {cap}, {} threads, {} runs",
        bench.scale,
        bytes(options.budget_bytes),
        options.policy,
        options.threads,
        bench.run_count
    )
}

fn rows(queries: &[Query], medians: &[Measurement]) -> Result<RecordBatch> {
    let number = |value: fn(&Measurement) -> u64| {
        Arc::new(UInt64Array::from_iter_values(medians.iter().map(value))) as ArrayRef
    };
    let names = queries.iter().map(|(name, _)| *name);
    let seconds = medians.iter().map(|run| (run.seconds * 1e6).round() / 1e6);
    RecordBatch::try_from_iter([
        (
            "query",
            Arc::new(StringArray::from_iter_values(names)) as ArrayRef,
        ),
        (
            "seconds",
            Arc::new(Float64Array::from_iter_values(seconds)) as ArrayRef,
        ),
        ("bytes_cache", number(|run| run.bytes_cache)),
        ("bytes_storage", number(|run| run.bytes_storage)),
        ("rows", number(|run| run.row_count)),
    ])
    .map_err(|error| Failure::Format {
        format: "table",
        what: error.to_string(),
    })
}
