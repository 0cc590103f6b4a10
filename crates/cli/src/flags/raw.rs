//! The flags as they are written: texts and switches. [`super::read`] makes sense of them.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

/// An embedded analytical database for data bigger than memory.
#[derive(Debug, Parser)]
#[command(name = "hotshelf", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Raw {
    /// Log more to standard error (repeat for more); RUST_LOG chooses exactly
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    pub command: RawCommand,
}

const EXAMPLES: &str = "\
Examples:
  hotshelf demo
  hotshelf import --db mydb trips 'trips/*.parquet'
  hotshelf sql --db mydb --budget 256MB -c 'SELECT count(*) FROM trips'
  hotshelf COMMAND --help";

#[derive(Debug, Subcommand)]
pub enum RawCommand {
    /// Compare cache policies on a generated benchmark and draw the result
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(RawDemo),
    /// Load Parquet, CSV, JSON-lines or Arrow files into a table
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(RawImport),
    /// Run SQL statements and print their answers
    #[command(after_help = SQL_EXAMPLES)]
    Sql(RawSql),
    /// Type SQL and see the answers
    #[command(after_help = SHELL_EXAMPLES)]
    Shell(RawShell),
    /// List the tables of a database
    #[command(after_help = TABLES_EXAMPLES)]
    Tables(RawTables),
    /// Read every file of a database again and compare all checksums
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(RawVerify),
    /// Rebuild a lost or damaged catalog from the data files
    #[command(after_help = REPAIR_EXAMPLES)]
    Repair(RawRepair),
    /// Make the tables of a benchmark, as Parquet files or in a database
    #[command(after_help = GENERATE_EXAMPLES)]
    Generate(RawGenerate),
    /// Time the queries of a benchmark
    #[command(after_help = BENCHES)]
    Bench {
        #[command(subcommand)]
        which: RawBenches,
    },
    /// Measure memory, files or slow shelves, and derive how to use them
    #[command(after_help = PROBE_EXAMPLES)]
    Probe(RawProbe),
}

const BENCHES: &str = "\
Examples:
  hotshelf bench ssb --scale 1
  hotshelf bench tpch --scale 1";

#[derive(Debug, Subcommand)]
pub enum RawBenches {
    /// Time the queries of the Star Schema Benchmark
    #[command(after_help = SSB_EXAMPLES)]
    Ssb(RawBench),
    /// Time the queries of TPC-H
    #[command(after_help = TPCH_EXAMPLES)]
    Tpch(RawBench),
    /// Anything else, to say where it is
    #[command(external_subcommand)]
    Other(Vec<String>),
}

const DEMO_EXAMPLES: &str = "\
Examples:
  hotshelf demo
  hotshelf demo --scale 3 --dir /data/demo --keep";

#[derive(Debug, Args)]
pub struct RawDemo {
    /// Scale factor of the Star Schema Benchmark: 1 is 6 million rows
    #[arg(long, default_value_t = 1.0, value_name = "SF")]
    pub scale: f64,
    /// Folder for the chart and, meanwhile, the database
    #[arg(long, default_value = "hotshelf-demo", value_name = "DIR")]
    pub dir: PathBuf,
    /// Keep the database
    #[arg(long)]
    pub keep: bool,
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  hotshelf import --db mydb trips trips.parquet
  hotshelf import --db mydb trips --append '2024/*.csv' --delimiter ';' --schema 'zip VARCHAR'
  hotshelf import --db mydb logs --format json server.log --replace";

#[derive(Debug, Args)]
pub struct RawImport {
    /// Folder of the database; made if it does not exist
    #[arg(long, value_name = "DIR")]
    pub db: PathBuf,
    /// Name of the table
    pub table: String,
    /// Files, folders or globs
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,
    /// Format: parquet, csv, json, arrow [default: by the files' endings]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Types of columns that should not be inferred, such as 'a INT, b VARCHAR'
    #[arg(long, value_name = "COLUMNS")]
    pub schema: Option<String>,
    /// Add the rows to the table if it exists
    #[arg(long, conflicts_with = "replace")]
    pub append: bool,
    /// Replace the table if it exists
    #[arg(long)]
    pub replace: bool,
    /// What separates the columns of CSV: one character, or 'tab'
    #[arg(long, default_value = ",", value_name = "CHAR")]
    pub delimiter: String,
    /// The CSV files have no line of column names
    #[arg(long)]
    pub no_header: bool,
    #[command(flatten)]
    pub resources: Resources,
}

const SQL_EXAMPLES: &str = "\
Examples:
  hotshelf sql -c \"SELECT * FROM 'trips.parquet' LIMIT 5\"
  hotshelf sql --db mydb --budget 256MB --timing -f queries.sql
  hotshelf sql --db mydb --output busy.parquet -c 'SELECT * FROM trips WHERE fare > 50'
  echo 'SHOW TABLES' | hotshelf sql --db mydb --format csv";

#[derive(Debug, Args)]
pub struct RawSql {
    #[command(flatten)]
    pub engine: RawEngine,
    /// Format of the answers: table, csv, tsv, json, ndjson, markdown, parquet, arrow [default: by the ending of
    /// --output, else table]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Write the answers into a file
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Say how long each statement took
    #[arg(long)]
    pub timing: bool,
    /// Statements to run [default: standard input]
    #[arg(short = 'c', long, value_name = "SQL", conflicts_with = "file")]
    pub command: Option<String>,
    /// File with the statements to run
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

const SHELL_EXAMPLES: &str = "\
Examples:
  hotshelf shell
  hotshelf shell --db mydb --budget 1GB

A statement ends with ';'. \\help lists the other commands, Ctrl-C ends a query, Ctrl-D the shell.
Where the input is not a terminal, the exit code is 1 if a statement failed.";

#[derive(Debug, Args)]
pub struct RawShell {
    #[command(flatten)]
    pub engine: RawEngine,
}

const TABLES_EXAMPLES: &str = "\
Examples:
  hotshelf tables --db mydb
  hotshelf tables --db mydb --format json";

#[derive(Debug, Args)]
pub struct RawTables {
    /// Folder of the database
    #[arg(long, value_name = "DIR")]
    pub db: PathBuf,
    /// Format of the list: table, csv, tsv, json, ndjson, markdown
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    pub format: String,
}

const VERIFY_EXAMPLES: &str = "\
Examples:
  hotshelf verify --db mydb

Damaged files are listed on standard output; the exit code is 1 if there are any.";

#[derive(Debug, Args)]
pub struct RawVerify {
    /// Folder of the database
    #[arg(long, value_name = "DIR")]
    pub db: PathBuf,
}

const REPAIR_EXAMPLES: &str = "\
Examples:
  hotshelf repair --db mydb

Tables that were found are listed on standard output, what could not be recovered on standard error.
An intact catalog is not changed; a damaged one is kept in DIR/lost+found.";

#[derive(Debug, Args)]
pub struct RawRepair {
    /// Folder of the database
    #[arg(long, value_name = "DIR")]
    pub db: PathBuf,
}

const GENERATE_EXAMPLES: &str = "\
Examples:
  hotshelf generate ssb --scale 1 --db mydb
  hotshelf generate tpch --scale 0.1 --out tpch-files";

#[derive(Debug, Args)]
#[command(
    override_usage = "hotshelf generate <BENCHMARK> --scale <SF> <--db <DIR>|--out <DIR>> [OPTIONS]"
)]
pub struct RawGenerate {
    /// Which tables: ssb (Star Schema Benchmark) or tpch (TPC-H)
    pub benchmark: String,
    /// Scale factor: 1 is about 6 million rows in the largest table
    #[arg(long, value_name = "SF")]
    pub scale: f64,
    /// Database to make the tables in
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub db: Option<PathBuf>,
    /// Folder for one Parquet file per table
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace tables of the same names
    #[arg(long, conflicts_with = "out")]
    pub replace: bool,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N", value_parser = thread_count())]
    pub threads: Option<u16>,
}

const SSB_EXAMPLES: &str = "\
Examples:
  hotshelf bench ssb --scale 1
  hotshelf bench ssb --scale 10 --data ssb10 --budget 256MB --policy lru --storage-bandwidth 400MB/s --format json
  hotshelf bench ssb --scale 1 --parquet ssb-sf1 --query Q2.1,Q4.1

With --data the database is kept, and generated if it does not exist yet; with neither --data nor
--parquet it is removed at the end. With --parquet the queries read the files in place, not through
the cache, so no bytes are counted. The numbers are medians.";

const TPCH_EXAMPLES: &str = "\
Examples:
  hotshelf bench tpch --scale 1
  hotshelf bench tpch --scale 10 --data tpch10 --budget 1GB --query Q01,Q06

With --data the database is kept, and generated if it does not exist yet; with neither --data nor
--parquet it is removed at the end. The numbers are medians.";

#[derive(Debug, Args)]
pub struct RawBench {
    /// Scale factor: 1 is about 6 million rows in the largest table
    #[arg(long, value_name = "SF")]
    pub scale: f64,
    /// Database to keep the tables in
    #[arg(long, value_name = "DIR", conflicts_with = "parquet")]
    pub data: Option<PathBuf>,
    /// Folder of Parquet files to query in place
    #[arg(long, value_name = "DIR")]
    pub parquet: Option<PathBuf>,
    /// Format of the result: table, csv, tsv, json, ndjson, markdown
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    pub format: String,
    /// How often the queries run
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Only these queries, such as Q2.1,Q4.1
    #[arg(long = "query", value_name = "NAMES", value_delimiter = ',')]
    pub queries: Vec<String>,
    #[command(flatten)]
    pub settings: RawSettings,
}

const PROBE_EXAMPLES: &str = "\
Examples:
  hotshelf probe --quick --explain
  hotshelf probe --db mydb
  hotshelf probe --tier file:/mnt/nvme --out nvme.json
  hotshelf probe --tier emulated:optane100-128 --format csv
  hotshelf probe --from nvme.json --explain

The plan and its duration come first. A probe that was interrupted continues when it is called the same
way again. With --out, heat maps are drawn beside the file (SVG). With --db the profile is kept in the
database, which uses it from the next time it is opened; SHOW hotshelf.profile lists its values.";

#[derive(Debug, Args)]
pub struct RawProbe {
    /// What to measure: dram, file:DIR, dax:PATH, node:N or emulated:NAME [default: dram; with --db, the
    /// database's folder]
    #[arg(long, value_name = "TIER", conflicts_with = "from")]
    pub tier: Option<String>,
    /// Under a minute: fewer sizes, counts and repeats
    #[arg(long, conflicts_with = "from")]
    pub quick: bool,
    /// Keep the profile in this database
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,
    /// Format of the measurements: json, ndjson, csv, table, markdown [default: json with --out, else the
    /// profile only]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Write the measurements into a file, and heat maps beside it
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print each value of the profile with the measurement behind it
    #[arg(long)]
    pub explain: bool,
    /// Use the measurements in the JSON file of an earlier probe instead of measuring
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Note finished measurements in this file, and continue after those that it has [default: beside --out, else in
    /// the user's cache folder]
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub resume: Option<PathBuf>,
    /// Start again even if an interrupted probe could continue
    #[arg(long, conflicts_with = "from")]
    pub fresh: bool,
    /// Print the plan and how long it takes, and measure nothing
    #[arg(long, conflicts_with = "from")]
    pub dry_run: bool,
    /// Measure only points whose description contains this, such as "random, 1 threads, depth 16"; may be repeated
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["from", "db"])]
    pub only: Vec<String>,
    /// Keep the file that is read, for the next probe of the folder and for other tools
    #[arg(long, conflicts_with = "from")]
    pub keep_file: bool,
    /// Bytes to read from, such as 512MB [default: four times the last-level cache or more]
    #[arg(long, value_name = "SIZE", conflicts_with = "from")]
    pub working_set: Option<String>,
    /// Allow writing over a devdax device, which destroys what it holds
    #[arg(long, conflicts_with = "from")]
    pub overwrite_device: bool,
}

/// Where statements run and with what.
#[derive(Debug, Args)]
pub struct RawEngine {
    /// Folder of the database; made if it does not exist [default: a temporary database]
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,
    #[command(flatten)]
    pub settings: RawSettings,
}

#[derive(Debug, Args)]
pub struct RawSettings {
    #[command(flatten)]
    pub resources: Resources,
    /// Which segments stay in memory: none, all, lru, … (hpcache is tuned by the workload)
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Cap on reads from storage, such as 300MB/s, to imitate slower volumes
    #[arg(long, value_name = "RATE")]
    pub storage_bandwidth: Option<String>,
}

/// What a database may use.
#[derive(Debug, Args)]
pub struct Resources {
    /// Memory for cache, reads and operators, such as 256MB or 1GiB [default: a quarter of the machine's, or of the
    /// control group's]
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<String>,
    /// Worker threads [default: all cores]
    #[arg(long, value_name = "N", value_parser = thread_count())]
    pub threads: Option<u16>,
    /// Folder for rows that do not fit in memory [default: `spill` in the database]
    #[arg(long, value_name = "DIR")]
    pub spill: Option<PathBuf>,
    /// Do not follow the machine profile that `hotshelf probe --db` has stored in the database
    #[arg(long)]
    pub no_profile: bool,
}

/// Parses a number of threads.
pub fn thread_count() -> impl clap::builder::TypedValueParser<Value = u16> {
    clap::value_parser!(u16).range(1..=4096)
}
