//! The flags made sense of: names resolved, sizes in bytes, contradictions refused.

mod raw;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Parser;
use hotshelf::{ExistingTable, ImportOptions, Options, PolicyKind, parse_bandwidth, parse_size};
use hotshelf_bench::experiment::elf::{ElfOptions, Experiment};
use hotshelf_bench::experiment::hpcache::{Contender, Sequence};
use hotshelf_tier::TierError;
use hotshelf_tier::emulated::DEVICE_NAMES;
use hotshelf_tier::probe::ProbeTarget;
use tracing_subscriber::EnvFilter;

use crate::failure::{Failure, Result};
use crate::opened::Opened;
use crate::output::{Format, Target, print_lines};
use raw::{
    Raw, RawBench, RawBenches, RawCommand, RawDemo, RawElf, RawEngine, RawGenerate, RawHpcache,
    RawImport, RawProbe, RawResources, RawSettings, RawSql, RawTables,
};

/// Endings of compressed files.
const PACKED: [&str; 4] = ["gz", "zst", "bz2", "xz"];

/// A call of the program.
#[derive(Debug)]
pub struct Flags {
    verbose: u8,
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
    Hpcache(Hpcache),
    Probe(Probe),
    Elf(Elf),
}

#[derive(Debug)]
pub struct Elf {
    pub data: ElfData,
    pub experiments: Vec<(&'static str, Experiment)>,
    pub options: ElfOptions,
    pub export: Option<PathBuf>,
    pub format: Format,
}

/// The table that an Elf is measured on.
#[derive(Debug)]
pub enum ElfData {
    Uniform {
        row_count: u32,
        column_count: u8,
        value_count: u32,
    },
    Lineitem {
        scale: f64,
    },
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
    pub scale: f64,
    pub engine: Engine,
    /// Folder of Parquet files to query in place.
    pub parquet: Option<PathBuf>,
    pub format: Format,
    pub run_count: usize,
    /// Names of the queries; all if empty.
    pub queries: Vec<String>,
}

/// The experiments of the HPCache paper.
#[derive(Debug)]
pub struct Hpcache {
    pub what: HpcacheWhat,
    pub scale: f64,
    pub engine: Engine,
    /// `None`: as large in proportion as the paper's.
    pub budget_bytes: Option<u64>,
    /// `None`: as slow in proportion as the paper's. `Some(None)`: not capped.
    pub storage_bandwidth: Option<Option<u64>>,
    pub run_count: usize,
    pub format: Format,
}

#[derive(Debug)]
pub enum HpcacheWhat {
    Sequence {
        sequence: Sequence,
        seed: u64,
        contenders: Vec<Contender>,
        list: bool,
    },
    Figures {
        numbers: Vec<u32>,
        measured: bool,
        folder: PathBuf,
    },
}

#[derive(Debug)]
pub struct Probe {
    pub source: ProbeSource,
    /// Database that is to follow the profile.
    pub db: Option<PathBuf>,
    /// `None`: the measurements are not printed.
    pub format: Option<Format>,
    pub out: Option<PathBuf>,
    pub explain: bool,
}

/// Where measurements come from.
#[derive(Debug)]
pub enum ProbeSource {
    /// The JSON file of an earlier probe.
    File(PathBuf),
    Measure(Measure),
}

#[derive(Debug)]
pub struct Measure {
    pub target: ProbeTarget,
    pub quick: bool,
    pub working_set_bytes: Option<u64>,
    pub overwrite_device: bool,
    /// Where to note what is done, if the user says.
    pub journal: Option<PathBuf>,
    /// Forget what was done before.
    pub fresh: bool,
    /// Print the plan only.
    pub dry_run: bool,
    /// Only points in whose description one of these stands; all if empty.
    pub only: Vec<String>,
    /// Leave the file that is read.
    pub keep_file: bool,
}

/// A database and how to open it.
#[derive(Debug)]
pub struct Engine {
    /// Its folder; without one, a temporary database.
    pub db: Option<PathBuf>,
    pub options: Options,
}

impl Engine {
    pub fn open(&self) -> Result<Opened> {
        Opened::open(self.db.as_deref(), self.options.clone())
    }
}

/// Reads the program's flags; none if help was asked for, which is then printed. What is no flag at all ends the
/// program here.
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

impl Flags {
    /// Sends the log to standard error: warnings, or what `-v` and `RUST_LOG` ask for.
    pub fn start_log(&self) {
        let default = match self.verbose {
            0 => "warn",
            1 => "warn,hotshelf=info,hotshelf_cache=info,hotshelf_tier=info",
            2 => "info,hotshelf=debug,hotshelf_cache=debug,hotshelf_tier=debug",
            _ => "debug",
        };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .init();
    }
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
            RawBenches::Ssb(bench) => Command::Bench(validate_bench(bench)?),
            RawBenches::Hpcache(hpcache) => Command::Hpcache(validate_hpcache(hpcache)?),
            RawBenches::Elf(elf) => Command::Elf(validate_elf(elf)?),
        },
        RawCommand::Probe(probe) => Command::Probe(validate_probe(probe)?),
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
            options: with_resources(Options::default(), &raw.resources)?,
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
        _ => return Err(unknown_benchmark(&raw.benchmark, "ssb, tpch")),
    };
    let target = match (raw.out, raw.db) {
        (Some(folder), _) => GenerateTarget::Parquet(folder),
        (None, Some(folder)) => GenerateTarget::Database(folder),
        (None, None) => {
            return Err(Failure::usage(
                "there is nowhere to put the tables",
                "give --out DIR for Parquet files or --db DIR for a database",
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

fn validate_bench(raw: RawBench) -> Result<Bench> {
    Ok(Bench {
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

fn validate_elf(raw: RawElf) -> Result<Elf> {
    let mut experiments = Vec::new();
    for name in &raw.experiments {
        let found = Experiment::ALL.into_iter().find(|(known, _)| known == name);
        experiments.push(found.ok_or_else(|| {
            let names = Experiment::ALL.map(|(known, _)| known).join(", ");
            Failure::usage(
                format!("there is no experiment '{name}'"),
                format!("the experiments are {names}"),
            )
        })?);
    }
    if experiments.is_empty() {
        experiments.extend(Experiment::ALL);
    }
    let data = match raw.lineitem {
        Some(scale) if scale > 0.0 => ElfData::Lineitem { scale },
        Some(scale) => {
            return Err(Failure::usage(
                format!("{scale} is no scale factor"),
                "try --lineitem 1",
            ));
        }
        None => ElfData::Uniform {
            row_count: raw.rows,
            column_count: raw.columns,
            value_count: raw.values,
        },
    };
    Ok(Elf {
        data,
        experiments,
        options: ElfOptions {
            round_count: raw.runs as usize,
            thread_count: raw.threads.into(),
        },
        export: raw.export,
        format: text_format(&raw.format)?,
    })
}

fn validate_hpcache(raw: RawHpcache) -> Result<Hpcache> {
    let what = match &raw.sequence {
        Some(name) => HpcacheWhat::Sequence {
            sequence: name.parse().map_err(|unknown| {
                let names: Vec<&str> = Sequence::all().map(Sequence::name).collect();
                Failure::usage(
                    format!("{unknown}"),
                    format!("the sequences are {}", names.join(", ")),
                )
            })?,
            seed: raw.seed,
            contenders: contenders(&raw.policy)?,
            list: raw.list,
        },
        None => HpcacheWhat::Figures {
            numbers: raw.figure,
            measured: raw.measured,
            folder: raw.out,
        },
    };
    let rate = raw.storage_bandwidth.as_deref().map(parse_bandwidth);
    let size = raw.resources.budget.as_deref().map(parse_size);
    Ok(Hpcache {
        what,
        scale: raw.scale,
        engine: Engine {
            db: raw.db,
            options: with_resources(Options::default(), &raw.resources)?,
        },
        budget_bytes: size.transpose().map_err(bad_value)?,
        storage_bandwidth: rate.transpose().map_err(bad_value)?,
        run_count: raw.runs as usize,
        format: text_format(&raw.format)?,
    })
}

/// Policies by name, and `memory`. No names: all.
fn contenders(names: &[String]) -> Result<Vec<Contender>> {
    if names.is_empty() {
        let all = PolicyKind::ALL.iter().map(|kind| Contender::Policy(*kind));
        return Ok(all.chain([Contender::Memory]).collect());
    }
    let contender = |name: &String| match name.eq_ignore_ascii_case("memory") {
        true => Ok(Contender::Memory),
        false => policy(name).map(Contender::Policy),
    };
    names.iter().map(contender).collect()
}

fn policy(name: &str) -> Result<PolicyKind> {
    name.parse()
        .map_err(|unknown| Failure::usage(format!("{unknown}"), policy_hint()))
}

fn validate_probe(raw: RawProbe) -> Result<Probe> {
    let format = raw.format.as_deref().map(text_format).transpose()?;
    let working_set = raw.working_set.as_deref().map(parse_size).transpose();
    let working_set_bytes = working_set.map_err(bad_value)?;
    if working_set_bytes.is_some_and(|bytes| bytes < WORKING_SET_BYTES_MIN) {
        return Err(Failure::usage(
            "the working set is too small to measure anything",
            "give 1MB at least; less than four times the last-level cache measures the cache",
        ));
    }
    let source = match (raw.from, raw.tier) {
        (Some(path), _) => ProbeSource::File(path),
        (None, tier) => ProbeSource::Measure(Measure {
            target: match (tier, &raw.db) {
                (Some(tier), _) => tier.parse().map_err(bad_tier)?,
                (None, Some(folder)) => ProbeTarget::File(folder.clone()),
                (None, None) => ProbeTarget::Dram,
            },
            quick: raw.quick,
            working_set_bytes,
            overwrite_device: raw.overwrite_device,
            journal: raw.resume,
            fresh: raw.fresh,
            dry_run: raw.dry_run,
            only: raw.only,
            keep_file: raw.keep_file,
        }),
    };
    Ok(Probe {
        source,
        db: raw.db,
        format: format.or(raw.out.as_ref().map(|_| Format::Json)),
        out: raw.out,
        explain: raw.explain,
    })
}

/// Less is not even a few pieces for a few threads.
const WORKING_SET_BYTES_MIN: u64 = 1_000_000;

/// A tier that cannot be understood is a misuse of the program.
fn bad_tier(error: TierError) -> Failure {
    Failure::Usage {
        hint: match &error {
            TierError::NoSuchDeviceModel { name } => {
                let likeness = |known: &&&str| (common_prefix(known, name), Reverse(known.len()));
                let nearest = DEVICE_NAMES.iter().max_by_key(likeness);
                nearest.map(|name| format!("`emulated:{name}` is one"))
            }
            _ => Some("for example --tier dram or --tier file:/mnt/data".to_owned()),
        },
        message: error.to_string(),
    }
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
}

fn validate_engine(raw: RawEngine) -> Result<Engine> {
    Ok(Engine {
        db: raw.db,
        options: with_settings(&raw.settings)?,
    })
}

fn with_settings(raw: &RawSettings) -> Result<Options> {
    let mut options = with_resources(Options::default(), &raw.resources)?;
    if let Some(name) = &raw.policy {
        options.policy = policy(name)?;
    }
    if let Some(rate) = &raw.storage_bandwidth {
        options.storage_bandwidth_max = parse_bandwidth(rate).map_err(bad_value)?;
    }
    Ok(options)
}

fn with_resources(mut options: Options, raw: &RawResources) -> Result<Options> {
    if let Some(size) = &raw.budget {
        options.budget_bytes = parse_size(size).map_err(bad_value)?;
    }
    if let Some(threads) = raw.threads {
        options.threads = usize::from(threads);
    }
    options.spill_folder.clone_from(&raw.spill);
    options.machine_profile = !raw.no_profile;
    Ok(options)
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

fn text_format(name: &str) -> Result<Format> {
    let format = Format::parse(name)?;
    if format.is_binary() {
        return Err(Failure::usage(
            format!("this list cannot be written as {format}"),
            "the formats are table, csv, tsv, json, ndjson, markdown",
        ));
    }
    Ok(format)
}

fn unknown_benchmark(name: &str, known: &str) -> Failure {
    Failure::usage(
        format!("there is no benchmark '{name}' here"),
        format!("there is {known}"),
    )
}

/// A value that the library could not read is a misuse of the program.
fn bad_value(error: hotshelf::Error) -> Failure {
    Failure::Usage {
        message: error.to_string(),
        hint: error.hint(),
    }
}
