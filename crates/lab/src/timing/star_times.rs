//! `hotshelf-lab star-times`: queries with star pipelines on and off.
//!
//! Imports `DATA/*.parquet` if the database has no tables yet, then runs every `*.sql` of the folder
//! QUERIES in turn, alternating both settings, and prints the medians in milliseconds.

use std::path::{Path, PathBuf};
use std::time::Instant;

use hotshelf::{Database, ImportOptions, ImportProgress, Options, Session};

use super::{Result, files, median};

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab star-times mydb crates/datagen/queries/ssb
  hotshelf-lab star-times mydb crates/datagen/queries/tpch tpch-sf1 3
  hotshelf-lab star-times mydb queries none 1 'EXPLAIN ANALYZE'";

#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Folder of the database
    #[arg(value_name = "DB")]
    database: PathBuf,
    /// Folder of .sql files
    queries: PathBuf,
    /// Folder of Parquet files to import if the database has no tables
    data: Option<PathBuf>,
    /// Runs of each query under each setting; medians are shown
    #[arg(default_value_t = 5)]
    repeats: usize,
    /// Run every query with this in front once, and print what it says
    explain: Option<String>,
}

/// Runs the command.
pub fn run(flags: &Flags) -> Result<()> {
    let options = Options {
        budget_bytes: 8 << 30,
        threads: 2,
        ..Options::default()
    };
    let database = Database::open(&flags.database, options)?;
    if let (Some(data), true) = (&flags.data, database.table_names().is_empty()) {
        import(&database, data)?;
    }
    let session = database.session();
    let mut sums = [0.0; 2];
    for path in files(&flags.queries, "sql")? {
        let sql = std::fs::read_to_string(&path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if let Some(explain) = &flags.explain {
            println!("== {name}");
            print(&database, &session, &format!("{explain} {sql}"))?;
            continue;
        }
        let mut times = [Vec::new(), Vec::new()];
        let mut rows = [Vec::new(), Vec::new()];
        for _ in 0..flags.repeats {
            for (side, switch) in ["off", "on"].into_iter().enumerate() {
                let set = format!("SET hotshelf.star_pipelines = {switch}");
                database.block_on(async { session.sql(&set).await?.collect().await })?;
                let start = Instant::now();
                let batches =
                    database.block_on(async { session.sql(&sql).await?.collect().await })?;
                times[side].push(start.elapsed().as_secs_f64() * 1e3);
                rows[side] = sorted_rows(&batches)?;
            }
        }
        let medians = times.map(median);
        sums[0] += medians[0];
        sums[1] += medians[1];
        let verdict = if rows[0] == rows[1] {
            "equal"
        } else {
            "DIFFERENT"
        };
        println!(
            "{name} off {:8.1} on {:8.1} ms, {} rows {verdict}",
            medians[0],
            medians[1],
            rows[1].len()
        );
    }
    println!("sum off {:8.1} on {:8.1}", sums[0], sums[1]);
    Ok(())
}

fn sorted_rows(batches: &[arrow::array::RecordBatch]) -> Result<Vec<String>> {
    let text = arrow::util::pretty::pretty_format_batches(batches)?.to_string();
    let mut rows: Vec<String> = text.lines().skip(3).map(str::to_owned).collect();
    rows.sort();
    rows.retain(|row| row.starts_with('|'));
    Ok(rows)
}

fn print(database: &Database, session: &Session, sql: &str) -> Result<()> {
    let batches = database.block_on(async { session.sql(sql).await?.collect().await })?;
    println!("{}", arrow::util::pretty::pretty_format_batches(&batches)?);
    Ok(())
}

fn import(database: &Database, data: &Path) -> Result<()> {
    for path in files(data, "parquet")? {
        let options = ImportOptions {
            table: path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            inputs: vec![path.to_string_lossy().into_owned()],
            ..ImportOptions::default()
        };
        let progress = ImportProgress::default();
        database.block_on(database.import(&options, &progress))?;
    }
    Ok(())
}
