//! `hotshelf-lab sqllogictest`: sqllogictest files over stored tables and, as a control, over DataFusion's own
//! in-memory tables.
//!
//! The folder holds `.slt` files such as the `test_files` of the crate `datafusion-sqllogictest`. A record counts as
//! failed only if the control passes it; what fails in both needs tables, files or functions that DataFusion's runner
//! prepares. Records that compare the text of a plan are skipped: scans of stored tables print another text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::{SessionConfig, SessionContext};
use hotshelf::{Database, Options, Session};
use hotshelf_cli::failure::Failure;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Record, Runner};

/// What runs a statement.
#[derive(Clone)]
enum Engine {
    Stored(Session),
    Control(SessionContext),
}

#[derive(Debug, thiserror::Error)]
enum EngineError {
    #[error("{0}")]
    Stored(#[from] hotshelf::Error),
    #[error("{0}")]
    Control(#[from] datafusion::error::DataFusionError),
    #[error("{0}")]
    Arrow(#[from] arrow::error::ArrowError),
}

#[async_trait::async_trait]
impl AsyncDB for Engine {
    type Error = EngineError;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, EngineError> {
        let (columns, batches) = match self {
            Engine::Stored(session) => {
                let answer = session.sql(sql).await?;
                (answer.schema().fields().len(), answer.collect().await?)
            }
            Engine::Control(context) => {
                let frame = context.sql(sql).await?;
                (frame.schema().fields().len(), frame.collect().await?)
            }
        };
        if columns == 0 {
            return Ok(DBOutput::StatementComplete(0));
        }
        let rows = batches
            .iter()
            .map(cells)
            .collect::<Result<Vec<_>, _>>()?
            .concat();
        Ok(DBOutput::Rows {
            types: vec![DefaultColumnType::Any; columns],
            rows,
        })
    }

    fn engine_name(&self) -> &str {
        "DataFusion"
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    async fn shutdown(&mut self) {}
}

/// The batch as the field's runner prints cells.
fn cells(batch: &RecordBatch) -> Result<Vec<Vec<String>>, EngineError> {
    (0..batch.num_rows())
        .map(|row| {
            batch
                .columns()
                .iter()
                .map(|column| cell(column.as_ref(), row))
                .collect()
        })
        .collect()
}

fn cell(column: &dyn Array, row: usize) -> Result<String, EngineError> {
    if column.is_null(row) {
        return Ok("NULL".into());
    }
    Ok(match column.data_type() {
        DataType::Float32 => {
            let value = column.as_primitive::<Float32Type>().value(row);
            float(f64::from(value), value.to_string())
        }
        DataType::Float64 => {
            let value = column.as_primitive::<Float64Type>().value(row);
            float(value, value.to_string())
        }
        DataType::Dictionary(_, _) => {
            let dictionary = column.as_any_dictionary();
            return cell(
                dictionary.values().as_ref(),
                dictionary.normalized_keys()[row],
            );
        }
        data_type => {
            let options = FormatOptions::default().with_null("NULL");
            let text = ArrayFormatter::try_new(column, &options)?
                .value(row)
                .to_string();
            match data_type {
                data_type if data_type.is_decimal() => without_zeros(text),
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View if text.is_empty() => {
                    "(empty)".into()
                }
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                    text.trim_end_matches('\n').replace('\0', "\\0")
                }
                _ => text,
            }
        }
    })
}

fn float(value: f64, shortest: String) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 {
            "Infinity".into()
        } else {
            "-Infinity".into()
        };
    }
    let decimals = shortest
        .split_once('.')
        .map_or(0, |(_, decimals)| decimals.len());
    let text = if decimals > 12 {
        format!("{value:.12}")
    } else {
        shortest
    };
    without_zeros(text)
}

fn without_zeros(text: String) -> String {
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    if text == "-0" { "0".into() } else { text }
}

#[derive(Default, Clone, Copy)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Failed by the control too.
    unprepared: usize,
}

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab sqllogictest datafusion-sqllogictest/test_files
  hotshelf-lab sqllogictest datafusion-sqllogictest/test_files joins off";

#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Folder of .slt files
    folder: PathBuf,
    /// Only files with this in their path
    #[arg(default_value = "")]
    filter: String,
    /// Star pipelines: on or off
    #[arg(default_value = "on")]
    star: String,
}

/// Runs the command.
pub fn run(flags: &Flags) -> Result<(), Failure> {
    let folder = flags.folder.canonicalize();
    let folder = &folder.map_err(Failure::io("open", &flags.folder))?;
    std::env::set_current_dir(folder.parent().unwrap_or(Path::new("."))).ok();
    let mut files = Vec::new();
    find(folder, &mut files);
    files.sort();
    let mut total = Tally::default();
    let mut by_reason: BTreeMap<String, usize> = BTreeMap::new();
    for file in files
        .iter()
        .filter(|file| file.to_string_lossy().contains(&flags.filter))
    {
        let tally = run_file(file, &flags.star, &mut by_reason);
        let name = file.strip_prefix(folder).unwrap_or(file).display();
        println!(
            "{name}: {} passed, {} failed, {} skipped, {} unprepared",
            tally.passed, tally.failed, tally.skipped, tally.unprepared
        );
        total.passed += tally.passed;
        total.failed += tally.failed;
        total.skipped += tally.skipped;
        total.unprepared += tally.unprepared;
    }
    println!(
        "\n{} files: {} passed, {} failed, {} skipped (plan text), {} failed by the control too",
        files.len(),
        total.passed,
        total.failed,
        total.skipped,
        total.unprepared
    );
    let mut reasons: Vec<_> = by_reason.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (reason, count) in reasons.iter().take(40) {
        println!("{count:6}  {reason}");
    }
    Ok(())
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "slt") {
            files.push(path);
        }
    }
}

fn run_file(file: &Path, star: &str, by_reason: &mut BTreeMap<String, usize>) -> Tally {
    let mut tally = Tally::default();
    let Ok(records) = sqllogictest::parse_file::<DefaultColumnType>(file) else {
        return tally;
    };
    let Ok(database) = Database::temporary(Options {
        budget_bytes: 256 << 20,
        threads: 4,
        ..Options::default()
    }) else {
        return tally;
    };
    let control = Engine::Control(SessionContext::new_with_config(
        SessionConfig::new().with_target_partitions(4),
    ));
    let stored = Engine::Stored(database.session());
    let scratch = Path::new("test_files/scratch").join(file.file_stem().unwrap_or_default());
    database.block_on(async {
        std::fs::create_dir_all(&scratch).ok();
        let expected = run_records(control, &records).await;
        std::fs::remove_dir_all(&scratch).ok();
        std::fs::create_dir_all(&scratch).ok();
        let mut switched = stored.clone();
        let set = format!("SET hotshelf.star_pipelines = {star}");
        if let Err(error) = switched.run(&set).await {
            eprintln!("{set}: {error}");
        }
        let outcomes = run_records(stored, &records).await;
        for ((sql, ours), (_, control)) in outcomes.into_iter().zip(expected) {
            match (ours, control) {
                (Ok(()), _) => tally.passed += 1,
                _ if sql.trim_start().to_lowercase().starts_with("explain") => tally.skipped += 1,
                (Err(_), Err(_)) => tally.unprepared += 1,
                (Err(reason), Ok(())) => {
                    tally.failed += 1;
                    let line = reason
                        .lines()
                        .next()
                        .unwrap_or_default()
                        .chars()
                        .take(140)
                        .collect::<String>();
                    eprintln!(
                        "{}: {}\n    {}",
                        file.display(),
                        sql.replace('\n', " "),
                        reason.replace('\n', "\n    ")
                    );
                    *by_reason.entry(line).or_default() += 1;
                }
            }
        }
    });
    tally
}

type Outcome = (String, Result<(), String>);

async fn run_records(engine: Engine, records: &[Record<DefaultColumnType>]) -> Vec<Outcome> {
    let mut runner = Runner::new(move || {
        let engine = engine.clone();
        async move { Ok(engine) }
    });
    runner.add_label("Datafusion");
    runner.with_column_validator(|_, _| true);
    runner.with_normalizer(|text| text.trim_end().to_owned());
    runner.with_validator(|normalizer, actual, expected| {
        let expected: Vec<String> = expected.iter().map(normalizer).collect();
        let actual: Vec<String> = actual
            .iter()
            .map(|row| row.join(" ").trim_end().to_owned())
            .collect();
        expected.iter().any(|line| line.contains("<slt:ignore>")) || actual == expected
    });
    let mut outcomes = Vec::new();
    for record in records {
        let sql = match record {
            Record::Statement { sql, .. } | Record::Query { sql, .. } => sql.clone(),
            Record::Halt { .. } => break,
            _ => {
                runner.run_async(record.clone()).await.ok();
                continue;
            }
        };
        let outcome = runner
            .run_async(record.clone())
            .await
            .map(|_| ())
            .map_err(|error| error.to_string());
        outcomes.push((sql, outcome));
    }
    outcomes
}
