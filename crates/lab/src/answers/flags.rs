//! `hotshelf-lab fuzz`: its flags.

use std::path::PathBuf;
use std::time::Duration;

use crate::answers::check::{Check, FuzzError};
use crate::answers::data::Sizes;
use crate::answers::features::{Features, NAMES};
use crate::answers::fuzz::{self, Plan};
use crate::answers::query::Taste;

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab fuzz --seconds 60
  hotshelf-lab fuzz --schemas 200 --queries 500 --oracle 'python3 benchmarks/duckdb_oracle.py'
  hotshelf-lab fuzz --seed 7 --check tlp,norec --without not-a-number
  hotshelf-lab fuzz --replay 7:123 --oracle 'python3 benchmarks/duckdb_oracle.py'

Checks: duckdb (the oracle's rows), tlp and norec (a predicate's parts), settings (indexes, pipelines, threads,
budgets and files do not change rows). Every finding is reduced and written as a script. Database number i of a run
is the one of --seed SEED+i, and a script SEED-N.sql is run again by --replay SEED:N with the same other flags. If
the process is aborted, running.sql in --out names the query.";

#[derive(Debug, clap::Args)]
pub struct Fuzz {
    /// Seed of the first database
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// How many databases
    #[arg(long, default_value_t = 20, value_name = "N")]
    schemas: u64,
    /// Queries for each database
    #[arg(long, default_value_t = 500, value_name = "N")]
    queries: u64,
    /// Stop after this time
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Only these checks [default: all; duckdb with an oracle only]
    #[arg(long = "check", value_name = "NAMES", value_delimiter = ',')]
    checks: Vec<Check>,
    /// Program that answers as DuckDB does
    #[arg(long, value_name = "COMMAND")]
    oracle: Option<String>,
    /// Folder for scripts of findings
    #[arg(long, value_name = "DIR", default_value = "lab/results/fuzz")]
    out: PathBuf,
    /// Run one query of one database again
    #[arg(long, value_name = "SEED:N")]
    replay: Option<String>,
    /// Leave these features out (see the list of names in the error for a wrong one)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    without: Vec<String>,
    /// Use these features too, which are left out by default: negative-zero
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    with: Vec<String>,
    /// A statement that takes longer is a finding
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    timeout: u64,
    /// Time to reduce each finding
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    reduce: u64,
    /// Stop after this many findings
    #[arg(long, default_value_t = 50, value_name = "N")]
    findings: usize,
    /// Rows of the largest tables
    #[arg(long, default_value_t = 50_000, value_name = "N")]
    rows: usize,
    /// Format of the summary: table or json
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Table,
    Json,
}

impl Fuzz {
    /// Runs the command; whether something was found.
    pub fn run(self) -> Result<bool, FuzzError> {
        let format = self.format;
        let summary = fuzz::run(&self.plan()?)?;
        match format {
            Format::Table => print!("{}", summary.table()),
            Format::Json => println!("{}", summary.json()),
        }
        Ok(!summary.wrong.is_empty())
    }

    fn features(&self) -> Result<Features, FuzzError> {
        let with = Features::USUAL.set(self.with.iter().map(String::as_str), true);
        let all = with.and_then(|with| with.set(self.without.iter().map(String::as_str), false));
        all.map_err(|name| {
            let known = NAMES
                .iter()
                .map(|(name, _, what)| format!("\n  {name}: {what}"));
            let known: String = known.collect();
            FuzzError::Usage(format!("there is no feature '{name}':{known}"))
        })
    }

    fn plan(self) -> Result<Plan, FuzzError> {
        let features = self.features()?;
        let mut checks = self.checks;
        if checks.is_empty() {
            checks = Check::ALL.to_vec();
            checks.retain(|check| *check != Check::Duckdb || self.oracle.is_some());
        }
        if checks.contains(&Check::Duckdb) && self.oracle.is_none() {
            return Err(FuzzError::Usage("the check 'duckdb' needs --oracle".into()));
        }
        let replay = self.replay.as_deref().map(parse_replay).transpose()?;
        Ok(Plan {
            seed: self.seed,
            schemas: self.schemas,
            queries: self.queries,
            time: self.seconds.map(Duration::from_secs),
            checks,
            oracle: self.oracle,
            out: Some(self.out),
            replay,
            timeout: Duration::from_secs(self.timeout),
            reduce: Duration::from_secs(self.reduce),
            findings_max: self.findings,
            sizes: Sizes {
                rows_max: self.rows,
                ..Sizes::default()
            },
            taste: Taste {
                features,
                ..Taste::default()
            },
            is_verbose: true,
        })
    }
}

fn parse_replay(text: &str) -> Result<(u64, u64), FuzzError> {
    let parts = text.split_once(':');
    let numbers = parts.and_then(|(seed, number)| Some((seed.parse().ok()?, number.parse().ok()?)));
    numbers.ok_or_else(|| FuzzError::Usage(format!("'{text}' is not SEED:N, such as 7:123")))
}
