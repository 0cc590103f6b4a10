//! `hotshelf-lab pipeline-bandwidth`: the throughput of pipelines as estimated while their input comes slowly from
//! storage, beside what they do when everything is in memory.
//!
//! The pipeline of a query is the one that reads most bytes. True: encoded bytes by elapsed time of runs in memory.
//! Estimated: `P_bw` of slow runs without a cache.

use std::path::PathBuf;

use arrow::array::AsArray;
use arrow::datatypes::{Float64Type, UInt64Type};
use hotshelf::{Database, Options, PolicyKind, Session};

use super::{Result, files, median};

/// One run of the pipeline that read most bytes.
struct Run {
    bytes: u64,
    estimated: f64,
    elapsed_s: f64,
    wait_s: f64,
}

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab pipeline-bandwidth mydb crates/datagen/queries/ssb
  hotshelf-lab pipeline-bandwidth mydb queries 600MB/s 3 off";

#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Folder of the database
    #[arg(value_name = "DB")]
    database: PathBuf,
    /// Folder of .sql files
    queries: PathBuf,
    /// Bandwidth of the storage in the slow runs
    #[arg(default_value = "300MB/s")]
    storage: String,
    /// Runs of each query; medians are shown
    #[arg(default_value_t = 5)]
    runs: usize,
    /// Star pipelines: on or off
    #[arg(default_value = "on")]
    star: String,
}

/// Runs the command.
pub fn run(flags: &Flags) -> Result<()> {
    let (runs, storage) = (flags.runs, &flags.storage);
    let options = Options {
        budget_bytes: 8 << 30,
        threads: 2,
        policy: PolicyKind::All,
        ..Options::default()
    };
    let database = Database::open(&flags.database, options)?;
    let session = database.session();
    let say = |sql: &str| -> Result<()> {
        database.block_on(async { session.sql(sql).await?.collect().await })?;
        Ok(())
    };
    say(&format!("SET hotshelf.star_pipelines = {}", flags.star))?;
    println!("| query | MB | in memory GB/s | estimated GB/s | error | slow run waits |");
    println!("|---|---|---|---|---|---|");
    let mut errors = Vec::new();
    for path in files(&flags.queries, "sql")? {
        let sql = std::fs::read_to_string(&path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        say("SET hotshelf.storage_bandwidth = 'none'")?;
        say("SET hotshelf.policy = 'all'")?;
        measure(&database, &session, &sql, 2)?;
        let fast = measure(&database, &session, &sql, runs)?;
        say("SET hotshelf.policy = 'none'")?;
        say(&format!("SET hotshelf.storage_bandwidth = '{storage}'"))?;
        let slow = measure(&database, &session, &sql, runs)?;
        let truth = median(fast.iter().map(|run| run.bytes as f64 / run.elapsed_s));
        let estimate = median(slow.iter().map(|run| run.estimated));
        let wait = median(slow.iter().map(|run| run.wait_s / (2.0 * run.elapsed_s)));
        let error = estimate / truth - 1.0;
        errors.push(error.abs());
        println!(
            "| {name} | {:.0} | {:.2} | {:.2} | {:+.0} % | {:.0} % |",
            fast[0].bytes as f64 * 1e-6,
            truth * 1e-9,
            estimate * 1e-9,
            error * 100.0,
            wait * 100.0
        );
    }
    println!("median error {:.1} %", median(errors) * 100.0);
    Ok(())
}

fn measure(database: &Database, session: &Session, sql: &str, runs: usize) -> Result<Vec<Run>> {
    let last = "SELECT encoded_bytes, p_bw_encoded, elapsed_s, wait_s FROM pipelines() WHERE query = \
                (SELECT max(query) FROM pipelines()) ORDER BY encoded_bytes DESC LIMIT 1";
    let mut measured = Vec::new();
    for _ in 0..runs {
        let batches = database.block_on(async {
            session.sql(sql).await?.collect().await?;
            session.sql(last).await?.collect().await
        })?;
        let batch = batches
            .iter()
            .find(|batch| batch.num_rows() > 0)
            .ok_or("no pipeline ran")?;
        let real = |column: usize| batch.column(column).as_primitive::<Float64Type>().value(0);
        measured.push(Run {
            bytes: batch.column(0).as_primitive::<UInt64Type>().value(0),
            estimated: real(1),
            elapsed_s: real(2),
            wait_s: real(3),
        });
    }
    Ok(measured)
}
