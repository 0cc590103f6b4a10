//! `hotshelf-lab points`: one prepared statement, run with the values of each line of a file, one after the other.

use std::path::PathBuf;
use std::time::Instant;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, UInt64Type};
use hotshelf::{Database, Options, Session, Value};
use serde_json::json;

use super::Result;

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab points --db mydb --budget 64MB --values keys.ndjson 'SELECT count(*) FROM t WHERE a = $1 AND b = $2'

Each line of the file is a JSON array of values: numbers, texts (also dates and decimals), true, false, null.
The first statement is timed apart: the database has just been opened. One JSON object is printed.";

#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Folder of the database
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// Memory for cache, reads and operators
    #[arg(long, default_value = "64MB", value_name = "SIZE")]
    budget: String,
    /// File with a JSON array of values a line
    #[arg(long, value_name = "FILE")]
    values: PathBuf,
    /// How often to run through the file
    #[arg(long, default_value_t = 1, value_name = "N")]
    rounds: usize,
    /// Statements to run first, such as settings
    #[arg(long, value_name = "SQL")]
    before: Option<String>,
    /// Another statement that is run again and again between them, such as a scan
    #[arg(long, value_name = "SQL")]
    between: Option<String>,
    /// After how many
    #[arg(long, default_value_t = 100, value_name = "N", requires = "between")]
    every: usize,
    /// The statement, with parameters $1, $2, …
    statement: String,
}

/// What the engine has counted.
#[derive(Debug, Clone, Copy)]
struct Counted {
    device_reads: u64,
    device_bytes: u64,
}

/// Runs the command.
pub fn run(flags: &Flags) -> Result<()> {
    let options = Options {
        budget_bytes: hotshelf::internals::parse_size(&flags.budget)?,
        threads: 2,
        ..Options::default()
    };
    let lines = std::fs::read_to_string(&flags.values)?;
    let values: Vec<Vec<Value>> = lines
        .lines()
        .map(|line| values_of(&serde_json::from_str(line)?))
        .collect::<Result<_>>()?;
    let opening = Instant::now();
    let database = Database::open(&flags.db, options)?;
    let open_s = opening.elapsed().as_secs_f64();
    let session = database.session();
    if let Some(before) = &flags.before {
        session.query(before)?;
    }
    let statement = session.parse(&flags.statement)?.remove(0);
    let ask = |values: &[Value]| -> Result<(f64, u64)> {
        let begun = Instant::now();
        let rows = database.block_on(async {
            session
                .execute_with(&statement, values)
                .await?
                .collect()
                .await
        })?;
        Ok((begun.elapsed().as_secs_f64(), sum(&rows)))
    };
    let Some(first) = values.first() else {
        return Err("the file has no values".into());
    };
    let (first_s, _) = ask(first)?;
    for round in 0..flags.rounds.max(1) {
        let before = counted(&session)?;
        let mut times = Vec::with_capacity(values.len());
        let (mut total, mut between_s) = (0, 0.0);
        for (idx, values) in values.iter().enumerate() {
            let (seconds, found) = ask(values)?;
            times.push(seconds);
            total += found;
            if let Some(sql) = &flags.between
                && (idx + 1) % flags.every.max(1) == 0
            {
                let begun = Instant::now();
                session.query(sql)?;
                between_s += begun.elapsed().as_secs_f64();
            }
        }
        let after = counted(&session)?;
        let count = times.len() as f64;
        let seconds: f64 = times.iter().sum();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((count * share) as usize).min(times.len() - 1)] * 1e6;
        let report = json!({
            "round": round, "statements": times.len(), "found": total, "open_s": open_s, "first_s": first_s,
            "per_s": count / seconds, "seconds": seconds, "between_s": between_s, "p50_us": at(0.5), "p99_us": at(0.99),
            "device_reads": (after.device_reads - before.device_reads) as f64 / count,
            "device_bytes": (after.device_bytes - before.device_bytes) as f64 / count,
            "used_bytes": number(&session, "SELECT used_bytes FROM cache_stats()")?,
        });
        println!("{report}");
    }
    Ok(())
}

fn values_of(line: &serde_json::Value) -> Result<Vec<Value>> {
    use serde_json::Value as Json;
    let values = line.as_array().ok_or("a line is not a JSON array")?.iter();
    let value = |value: &Json| match value {
        Json::Null => Ok(Value::Null),
        Json::Bool(value) => Ok((*value).into()),
        Json::String(text) => Ok(text.as_str().into()),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Ok(whole.into()),
            (None, Some(float)) => Ok(float.into()),
            _ => Err("a number is too large".into()),
        },
        _ => Err("arrays and objects are not values".into()),
    };
    values.map(value).collect()
}

/// The sum of a first column of numbers, or else the number of rows: what answers are compared by.
fn sum(rows: &[RecordBatch]) -> u64 {
    let of = |batch: &RecordBatch| {
        let numbers = batch.columns().first()?.as_primitive_opt::<Int64Type>()?;
        (batch.num_columns() == 1).then(|| numbers.iter().flatten().sum::<i64>() as u64)
    };
    let sums = rows
        .iter()
        .map(|batch| of(batch).unwrap_or(batch.num_rows() as u64));
    sums.sum()
}

fn counted(session: &Session) -> Result<Counted> {
    Ok(Counted {
        device_reads: number(session, "SELECT device_operations FROM io_stats()")?,
        device_bytes: number(session, "SELECT device_bytes FROM io_stats()")?,
    })
}

/// The one number that a query answers.
fn number(session: &Session, sql: &str) -> Result<u64> {
    let rows = session.query(sql)?;
    let column = rows.first().map(|batch| batch.column(0).clone());
    let column = column
        .filter(|column| column.len() == 1)
        .ok_or("no answer")?;
    let numbers = column.as_primitive_opt::<UInt64Type>();
    let number = numbers.map(|numbers| numbers.value(0));
    let signed = || Some(column.as_primitive_opt::<Int64Type>()?.value(0) as u64);
    Ok(number.or_else(signed).ok_or("the answer is not a number")?)
}
