//! Times how long a cancelled query goes on: `cancellation DB QUERIES [TIMES]`.
//!
//! Runs every `.sql` of the folder QUERIES once, in memory; then TIMES times (default 20) more, dropping the answer
//! after another part of that time, and waits until the last task of the query has ended. Prints median and
//! maximum in milliseconds.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{Result, files, median};
use hotshelf::{Database, Options, PolicyKind, Session};
use tokio::runtime::Handle;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, queries, rest @ ..] = arguments.as_slice() else {
        return Err("usage: cancellation DB QUERIES [TIMES]".into());
    };
    let times: u32 = rest.first().map_or(Ok(20), |text| text.parse())?;
    let options = Options {
        budget_bytes: 8 << 30,
        threads: 2,
        policy: PolicyKind::All,
        ..Options::default()
    };
    let database = Database::open(folder, options)?;
    let session = database.session();
    println!("| query | whole ms | after cancelling, median ms | most ms |");
    println!("|---|---|---|---|");
    let mut all = Vec::new();
    for path in files(Path::new(queries), "sql")? {
        let sql = std::fs::read_to_string(&path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let (whole, after) = database.block_on(measure(&session, &sql, times))?;
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

/// The time of the whole query, and how long it went on after it was cancelled at `times` moments, in milliseconds.
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
