//! `hotshelf-lab hpcache`: sequences of queries under each cache policy, and the figures of the HPCache paper.

use std::fs;
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use hotshelf::{BUDGET_BYTES_MIN, Database, Session};
use hotshelf_cli::Opened;
use hotshelf_cli::benchmark::{Measurement, measure, median, prepare};
use hotshelf_cli::failure::{Failure, note};
use hotshelf_cli::output::{Format, Output, Target};
use hotshelf_cli::picture::Figure;
use hotshelf_cli::progress::{Progress, bytes};
use hotshelf_datagen::ssb::{SsbGenerator, SsbTable};

use super::flags::{Hpcache, What};
use super::rows::{figure_rows, middle, policy_rows, query_rows};
use super::{
    Contender, RunOptions, Sequence, SequenceRun, ample_budget_bytes, begin_cold, measured, query,
    run_sequence, simulated, solver_panels,
};
use crate::failure::Result;
use crate::policy::CachePolicy;
use crate::work;

/// The paper's budget as a part of a query's working set (§7.2, Figure 11).
const BUDGET_SHARE: f64 = 80.0 / 96.0;
/// The paper's storage bandwidth (28 GB/s) as a part of what its Q2.2 processes (80 GB/s), roughly.
const BANDWIDTH_SHARE: f64 = 1.0 / 3.0;
/// Queries before the first policy's turn.
const WARM_UP_QUERIES: usize = 4;

pub fn run(hpcache: &Hpcache) -> Result<()> {
    match &hpcache.what {
        What::Sequence {
            sequence,
            seed,
            list: true,
            ..
        } => print(hpcache.format, &query_rows(&sequence.queries(*seed))),
        What::Sequence {
            sequence,
            seed,
            contenders,
            ..
        } => run_policies(hpcache, *sequence, *seed, contenders),
        What::Figures {
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
    Ok(output.close()?)
}

/// The database with the benchmark's tables: as it is if it has them, else generated.
fn open(hpcache: &Hpcache) -> Result<Opened> {
    let dataset = SsbGenerator::new(hpcache.scale, 0).map_err(Failure::from)?;
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

/// What memory and storage give to sequences and figures.
struct Limits {
    budget_bytes: u64,
    bandwidth: Option<u64>,
}

/// Finds out what the paper's proportions mean here, as far as the flags leave that open.
fn limits(hpcache: &Hpcache, database: &Database, session: &Session) -> Result<Limits> {
    let bandwidth = match hpcache.storage_bandwidth {
        Some(bandwidth) => bandwidth,
        None => Some((processing_bandwidth(database, session)? * BANDWIDTH_SHARE) as u64),
    };
    let budget_bytes = match hpcache.budget_bytes {
        Some(budget_bytes) => budget_bytes,
        None => {
            let workbench = workbench(database, session, 0, 1, &|_| ());
            let working_set = work(database, workbench.working_set_bytes())?;
            (working_set as f64 * BUDGET_SHARE) as u64
        }
    };
    Ok(Limits {
        budget_bytes: budget_bytes.max(BUDGET_BYTES_MIN),
        bandwidth,
    })
}

fn workbench<'a>(
    database: &'a Database,
    session: &'a Session,
    bandwidth: u64,
    run_count: usize,
    progress: &'a dyn Fn(&str),
) -> measured::Workbench<'a> {
    measured::Workbench {
        database,
        session,
        bandwidth,
        run_count,
        progress,
    }
}

/// Bytes per second that Q2.1's pipeline processes in memory.
fn processing_bandwidth(database: &Database, session: &Session) -> Result<f64> {
    let runs = async {
        let ample = ample_budget_bytes(database);
        begin_cold(database, session, CachePolicy::All, ample).await?;
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
    work(database, runs)
}

fn cap(database: &Database, session: &Session, bandwidth: Option<u64>) -> Result<()> {
    let rate = bandwidth.map_or_else(|| "none".to_owned(), |rate| rate.max(1).to_string());
    let sql = format!("SET hotshelf.storage_bandwidth = '{rate}'");
    work(database, async { Ok(session.sql(&sql).await.map(drop)?) })
}

fn run_policies(
    hpcache: &Hpcache,
    sequence: Sequence,
    seed: u64,
    contenders: &[Contender],
) -> Result<()> {
    let database = open(hpcache)?;
    let session = database.session();
    let limits = limits(hpcache, &database, &session)?;
    let queries = sequence.queries(seed);
    note(&format!(
        "{sequence}: {} queries, budget {}, storage {}, {} threads",
        queries.len(),
        bytes(limits.budget_bytes),
        limits
            .bandwidth
            .map_or("not capped".to_owned(), |rate| format!("{}/s", bytes(rate))),
        hpcache.engine.options.threads,
    ));
    let options = RunOptions {
        budget_bytes: limits.budget_bytes,
        settings: Vec::new(),
    };
    // As in the paper, queries warm up what is not the cache: code, files, freshly mapped memory.
    let warm_up = async {
        begin_cold(&database, &session, CachePolicy::All, limits.budget_bytes).await?;
        for query in queries.iter().take(WARM_UP_QUERIES) {
            measure(&session, *query).await?;
        }
        Ok(())
    };
    work(&database, warm_up)?;
    cap(&database, &session, limits.bandwidth)?;
    let mut runs: Vec<Vec<SequenceRun>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..hpcache.run_count {
        for turn in 0..contenders.len() {
            let idx = (turn + round) % contenders.len();
            let mut progress = Progress::start(contenders[idx].name(), "queries");
            let done = |done: usize| progress.show(done as u64 + 1, queries.len() as u64);
            let sequence = run_sequence(
                &database,
                &session,
                contenders[idx],
                &queries,
                &options,
                done,
            );
            let run = work(&database, sequence)?;
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

fn figures(hpcache: &Hpcache, numbers: &[u32], is_measured: bool, folder: &Path) -> Result<()> {
    let how = if is_measured { "measured" } else { "simulated" };
    fs::create_dir_all(folder).map_err(Failure::io("create", folder))?;
    let mut done: Vec<(u32, Figure)> = Vec::new();
    let of_solver = |number: u32| number == 9;
    if is_measured && !numbers.iter().all(|number| of_solver(*number)) {
        let database = open(hpcache)?;
        let session = database.session();
        let bandwidth = limits(hpcache, &database, &session)?
            .bandwidth
            .unwrap_or(u64::MAX >> 1);
        let progress = |what: &str| note(&format!("  {what}"));
        for number in numbers.iter().filter(|number| !of_solver(**number)) {
            note(&format!("figure {number}, storage {}/s", bytes(bandwidth)));
            let workbench = workbench(
                &database,
                &session,
                bandwidth,
                hpcache.run_count.max(3),
                &progress,
            );
            let figure = work(&database, workbench.figure(*number))?;
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
