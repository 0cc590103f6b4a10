//! `hotshelf-lab cancellation`: how long a cancelled query goes on.
//!
//! Runs every `.sql` of the folder QUERIES once, in memory; then TIMES times more, dropping the answer
//! after another part of that time, and waits until the last task of the query has ended. Prints median and
//! maximum in milliseconds.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hotshelf::{Database, Options, PolicyKind, Session};
use tokio::runtime::Handle;

use super::{Result, files, median};

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab cancellation mydb crates/datagen/queries/ssb
  hotshelf-lab cancellation mydb queries 100";

#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Folder of the database
    #[arg(value_name = "DB")]
    database: PathBuf,
    /// Folder of .sql files
    queries: PathBuf,
    /// How often each query is cancelled
    #[arg(default_value_t = 20)]
    times: u32,
}

/// Runs the command.
pub fn run(flags: &Flags) -> Result<()> {
    let options = Options {
        budget_bytes: 8 << 30,
        threads: 2,
        policy: PolicyKind::All,
        ..Options::default()
    };
    let database = Database::open(&flags.database, options)?;
    let session = database.session();
    println!("| query | whole ms | after cancelling, median ms | most ms |");
    println!("|---|---|---|---|");
    let mut all = Vec::new();
    for path in files(&flags.queries, "sql")? {
        let sql = std::fs::read_to_string(&path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let (whole, after) = database.block_on(measure(&session, &sql, flags.times))?;
        let most = after.iter().copied().fold(0.0, f64::max);
        println!(
            "| {name} | {whole:.0} | {:.1} | {most:.1} |",
            median(after.iter().copied())
        );
        all.extend(after);
    }
    let most = all.iter().copied().fold(0.0, f64::max);
    println!("most of {}: {most:.1} ms", all.len());
    Ok(())
}

/// The time of the whole query, and how long it still ran when it was cancelled at `times` moments, in milliseconds.
async fn measure(session: &Session, sql: &str, times: u32) -> Result<(f64, Vec<f64>)> {
    let idle = Handle::current().metrics().num_alive_tasks();
    session.sql(sql).await?.collect().await?;
    let begin = Instant::now();
    session.sql(sql).await?.collect().await?;
    let whole = begin.elapsed();
    let mut after = Vec::new();
    for time in 0..times {
        let moment = whole * (2 * time + 1) / (2 * times);
        let run = async { session.sql(sql).await?.collect().await };
        if tokio::time::timeout(moment, run).await.is_ok() {
            continue; // it was faster this time
        }
        let cancelled = Instant::now();
        while Handle::current().metrics().num_alive_tasks() > idle {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        after.push(cancelled.elapsed().as_secs_f64() * 1e3);
    }
    if after.is_empty() {
        return Err("every run ended before it was cancelled".into());
    }
    Ok((whole.as_secs_f64() * 1e3, after))
}
