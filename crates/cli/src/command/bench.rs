//! `hotshelf bench`: the queries of a benchmark, timed and their bytes counted.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use hotshelf::{Database, ExistingTable, Session};
use hotshelf_bench::experiment::{Measurement, Query, median, ssb};
use hotshelf_datagen::ssb::SsbGenerator;

use super::generate::fill;
use crate::failure::{Failure, Result, note};
use crate::flags::Bench;
use crate::interrupt;
use crate::output::{Output, Target};
use crate::progress::bytes;

pub fn run(bench: Bench) -> Result<()> {
    let queries = ssb::choose(&bench.queries)?;
    let dataset = SsbGenerator::new(bench.scale, 0)?;
    let database = bench.engine.open()?;
    let session = database.session();
    match &bench.parquet {
        Some(folder) => use_parquet(&database, &session, folder)?,
        None => prepare(&database, &dataset, bench.engine.options.threads)?,
    }
    note(&settings(&bench, &session));
    let work = async {
        let done = |query: &str, run: Measurement| {
            tracing::info!(
                query,
                seconds = run.seconds,
                bytes_storage = run.bytes_storage,
                "run"
            );
        };
        Ok(ssb::run_queries(&session, &queries, bench.run_count, done).await?)
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

/// Generates the tables that are not there yet.
pub(super) fn prepare(database: &Database, dataset: &SsbGenerator, threads: usize) -> Result<()> {
    let missing = ssb::missing_tables(database, dataset)?;
    fill(database, dataset, &missing, ExistingTable::Fail, threads)
}

fn use_parquet(database: &Database, session: &Session, folder: &Path) -> Result<()> {
    if !folder.is_dir() {
        return Err(Failure::usage(
            format!("{} is no folder", folder.display()),
            "`hotshelf generate ssb --out DIR` makes one",
        ));
    }
    interrupt::run(database, async {
        Ok(ssb::use_parquet(session, folder).await?)
    })
}

fn settings(bench: &Bench, session: &Session) -> String {
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
        "SSB at scale {} in {place}: budget {}, policy {}, storage {cap}, {} threads, {} runs",
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
