//! The flags made sense of: names resolved, sizes in bytes, contradictions refused.

mod probe;
mod raw;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Parser;
use hotshelf::internals::{parse_bandwidth, parse_size};
use hotshelf::{ExistingTable, ImportOptions, Options, PolicyKind};
use tracing_subscriber::EnvFilter;

use crate::failure::{Failure, Result};
use crate::opened::Opened;
use crate::output::{Format, Target, print_lines};
pub use probe::{Measure, Probe, ProbeSource};
use raw::{
    Raw, RawBench, RawBenches, RawCommand, RawDemo, RawEngine, RawGenerate, RawImport, RawSettings,
    RawSql, RawTables,
};
pub use raw::{Resources, thread_count};

/// Endings of compressed files.
const PACKED: [&str; 4] = ["gz", "zst", "bz2", "xz"];

/// A call of the program.
#[derive(Debug)]
pub struct Flags {
    pub verbose: u8,
    pub command: Command,
}

/// What to do.
#[derive(Debug)]
pub enum Command {
    Demo(Demo),
    Import(Import),
    Sql(Sql),
    Shell(Engine),
    Tables(Tables),
    Verify { db: PathBuf },
    Repair { db: PathBuf },
    Generate(Generate),
    Bench(Bench),
    Probe(Probe),
}

#[derive(Debug)]
pub struct Demo {
    pub scale: f64,
    pub folder: PathBuf,
    pub keep: bool,
}

#[derive(Debug)]
pub struct Import {
    pub engine: Engine,
    pub options: ImportOptions,
}

#[derive(Debug)]
pub struct Sql {
    pub engine: Engine,
    pub source: Source,
    pub target: Target,
    pub format: Format,
    pub timing: bool,
}

/// Where statements come from.
#[derive(Debug)]
pub enum Source {
    Text(String),
    File(PathBuf),
    Stdin,
}

#[derive(Debug)]
pub struct Tables {
    pub db: PathBuf,
    pub format: Format,
}

#[derive(Debug)]
pub struct Generate {
    pub benchmark: Benchmark,
    pub scale: f64,
    pub target: GenerateTarget,
    /// Replace tables of the same names.
    pub replace: bool,
    pub threads: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Benchmark {
    Ssb,
    Tpch,
}

/// Where generated tables go.
#[derive(Debug)]
pub enum GenerateTarget {
    Parquet(PathBuf),
    Database(PathBuf),
}

#[derive(Debug)]
pub struct Bench {
    pub benchmark: Benchmark,
    pub scale: f64,
    pub engine: Engine,
    /// Folder of Parquet files to query in place.
    pub parquet: Option<PathBuf>,
    pub format: Format,
    pub run_count: usize,
    /// Names of the queries; all if empty.
    pub queries: Vec<String>,
}

/// A database and how to open it.
#[derive(Debug)]
pub struct Engine {
    /// Its folder; without one, a temporary database.
    pub db: Option<PathBuf>,
    /// What it is opened with.
    pub options: Options,
}

impl Engine {
    /// Opens it.
    ///
    /// # Errors
    /// Those of [`Opened::open`].
    pub fn open(&self) -> Result<Opened> {
        Opened::open(self.db.as_deref(), self.options.clone())
    }
}

/// Reads the program's flags; none if help was asked for, which is then printed. Unknown flags end the program
/// here.
pub fn read() -> Result<Option<Flags>> {
    match Raw::try_parse() {
        Ok(raw) => validate(raw).map(Some),
        Err(refusal) if refusal.use_stderr() => refusal.exit(),
        Err(help) => print_help(&help).map(|()| None),
    }
}

fn print_help(help: &clap::Error) -> Result<()> {
    let text = help.render();
    let text = match std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        true => text.ansi().to_string(),
        false => text.to_string(),
    };
    print_lines(&[text.trim_end().to_owned()])
}

/// Sends the log to standard error: warnings, or what `-v` and `RUST_LOG` ask for.
pub fn start_log(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "warn,hotshelf=info",
        2 => "info,hotshelf=debug",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

fn validate(raw: Raw) -> Result<Flags> {
    let command = match raw.command {
        RawCommand::Demo(demo) => Command::Demo(validate_demo(demo)),
        RawCommand::Import(import) => Command::Import(validate_import(import)?),
        RawCommand::Sql(sql) => Command::Sql(validate_sql(sql)?),
        RawCommand::Shell(shell) => Command::Shell(validate_engine(shell.engine)?),
        RawCommand::Tables(tables) => Command::Tables(validate_tables(tables)?),
        RawCommand::Verify(verify) => Command::Verify { db: verify.db },
        RawCommand::Repair(repair) => Command::Repair { db: repair.db },
        RawCommand::Generate(generate) => Command::Generate(validate_generate(generate)?),
        RawCommand::Bench { which } => match which {
            RawBenches::Ssb(bench) => Command::Bench(validate_bench(Benchmark::Ssb, bench)?),
            RawBenches::Tpch(bench) => Command::Bench(validate_bench(Benchmark::Tpch, bench)?),
            RawBenches::Other(call) => return Err(no_benchmark(&call)),
        },
        RawCommand::Probe(probe) => Command::Probe(probe::validate(probe)?),
    };
    Ok(Flags {
        verbose: raw.verbose,
        command,
    })
}

fn validate_demo(raw: RawDemo) -> Demo {
    Demo {
        scale: raw.scale,
        folder: raw.dir,
        keep: raw.keep,
    }
}

fn validate_import(raw: RawImport) -> Result<Import> {
    let existing = match (raw.append, raw.replace) {
        (true, _) => ExistingTable::Append,
        (_, true) => ExistingTable::Replace,
        _ => ExistingTable::Fail,
    };
    let format = raw.format.map(|name| name.parse()).transpose();
    Ok(Import {
        engine: Engine {
            db: Some(raw.db),
            options: raw.resources.options()?,
        },
        options: ImportOptions {
            table: raw.table,
            inputs: raw.files,
            format: format.map_err(bad_value)?,
            schema: raw.schema,
            existing,
            csv_delimiter: delimiter(&raw.delimiter)?,
            csv_header: !raw.no_header,
        },
    })
}

fn delimiter(text: &str) -> Result<u8> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err(Failure::usage(
            format!("invalid delimiter '{text}'"),
            "give one ASCII character, or 'tab'",
        )),
    }
}

fn validate_sql(raw: RawSql) -> Result<Sql> {
    let source = match (raw.command, raw.file) {
        (Some(text), _) => Source::Text(text),
        (None, Some(path)) => Source::File(path),
        (None, None) => Source::Stdin,
    };
    let format = match (&raw.format, &raw.output) {
        (Some(name), _) => Format::parse(name)?,
        (None, Some(path)) => format_of_file(path)?,
        (None, None) => Format::Table,
    };
    let target = raw.output.map_or(Target::Stdout, Target::File);
    target.check(format)?;
    Ok(Sql {
        engine: validate_engine(raw.engine)?,
        source,
        target,
        format,
        timing: raw.timing,
    })
}

fn validate_tables(raw: RawTables) -> Result<Tables> {
    Ok(Tables {
        db: raw.db,
        format: text_format(&raw.format)?,
    })
}

fn validate_generate(raw: RawGenerate) -> Result<Generate> {
    let benchmark = match raw.benchmark.to_ascii_lowercase().as_str() {
        "ssb" => Benchmark::Ssb,
        "tpch" | "tpc-h" => Benchmark::Tpch,
        _ => return Err(unknown_benchmark(&raw.benchmark)),
    };
    let target = match (raw.out, raw.db) {
        (Some(folder), _) => GenerateTarget::Parquet(folder),
        (None, Some(folder)) => GenerateTarget::Database(folder),
        (None, None) => {
            return Err(Failure::usage(
                "there is nowhere to put the tables",
                "--db DIR makes them in a database, --out DIR writes Parquet files; for example \
                 `hotshelf generate ssb --scale 1 --db mydb`",
            ));
        }
    };
    Ok(Generate {
        benchmark,
        scale: raw.scale,
        target,
        replace: raw.replace,
        threads: raw.threads.map_or(Options::default().threads, usize::from),
    })
}

fn validate_bench(benchmark: Benchmark, raw: RawBench) -> Result<Bench> {
    Ok(Bench {
        benchmark,
        scale: raw.scale,
        engine: Engine {
            db: raw.data,
            options: with_settings(&raw.settings)?,
        },
        parquet: raw.parquet,
        format: text_format(&raw.format)?,
        run_count: raw.runs as usize,
        queries: raw.queries,
    })
}

/// The policy of that name.
///
/// # Errors
/// There is none; the hint names all.
pub fn policy(name: &str) -> Result<PolicyKind> {
    name.parse()
        .map_err(|unknown| Failure::usage(format!("{unknown}"), policy_hint()))
}

fn validate_engine(raw: RawEngine) -> Result<Engine> {
    Ok(Engine {
        db: raw.db,
        options: with_settings(&raw.settings)?,
    })
}

fn with_settings(raw: &RawSettings) -> Result<Options> {
    let mut options = raw.resources.options()?;
    if let Some(name) = &raw.policy {
        options.policy = policy(name)?;
    }
    if let Some(rate) = &raw.storage_bandwidth {
        options.storage_bandwidth_max = parse_bandwidth(rate).map_err(bad_value)?;
    }
    Ok(options)
}

impl Resources {
    /// The options of a database that has them, and the defaults.
    ///
    /// # Errors
    /// A size cannot be read.
    pub fn options(&self) -> Result<Options> {
        let mut options = Options::default();
        if let Some(size) = &self.budget {
            options.budget_bytes = parse_size(size).map_err(bad_value)?;
        }
        if let Some(threads) = self.threads {
            options.threads = usize::from(threads);
        }
        options.spill_folder.clone_from(&self.spill);
        options.machine_profile = !self.no_profile;
        options.owns_process = true;
        Ok(options)
    }
}

fn policy_hint() -> String {
    let names: Vec<&str> = PolicyKind::ALL.iter().map(|kind| kind.name()).collect();
    format!("the policies are {}", names.join(", "))
}

/// The format that a file's name tells: a table if it tells none.
fn format_of_file(path: &Path) -> Result<Format> {
    let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
    if PACKED.iter().any(|packed| ending == *packed) {
        return Err(Failure::usage(
            format!("answers are not compressed as {}", path.display()),
            "write parquet, or write csv to standard output and compress that",
        ));
    }
    Ok(Format::of_file(path).unwrap_or(Format::Table))
}

/// The format of that name, if lists can be written so.
///
/// # Errors
/// There is none, or it is binary.
pub fn text_format(name: &str) -> Result<Format> {
    let format = Format::parse(name)?;
    if format.is_binary() {
        return Err(Failure::usage(
            format!("this list cannot be written as {format}"),
            "the formats are table, csv, tsv, json, ndjson, markdown",
        ));
    }
    Ok(format)
}

fn unknown_benchmark(name: &str) -> Failure {
    Failure::usage(
        format!("there is no benchmark '{name}' here"),
        "there is ssb, tpch",
    )
}

/// Experiments were commands here once.
fn no_benchmark(call: &[String]) -> Failure {
    match call.first().map_or("", String::as_str) {
        name @ ("hpcache" | "elf") => Failure::usage(
            format!("there is no benchmark '{name}' here"),
            format!("experiments are in a program of their own: `hotshelf-lab {name}`"),
        ),
        name => unknown_benchmark(name),
    }
}

/// A value that the library could not read is a misuse of the program.
pub fn bad_value(error: hotshelf::Error) -> Failure {
    Failure::Usage {
        message: error.to_string(),
        hint: error.hint(),
    }
}
