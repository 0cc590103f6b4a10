//! `hotshelf-lab`: experiments with Hotshelf and its parts, a folder for each kind.
//!
//! Exit code 0: done, nothing found; 1: something found, or failed; 2: the call makes no sense; 130: interrupted.
#![forbid(unsafe_code)]

mod answers;
mod elf;
mod failure;
mod handcrafted;
mod hpcache;
mod ladder;
mod pmem;
mod policy;
mod rivals;
mod simulate;
mod solve;
#[cfg(test)]
mod tests;
mod tier;
mod timing;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Parser, Subcommand};
use hotshelf::Database;
use hotshelf_cli::interrupt;

use answers::{flags as fuzz, sqllogictest};
use failure::{ExperimentError, Result};
use rivals::plain_vortex;
use simulate::replay;
use tier::{emulated, read_bandwidth};
use timing::{cancellation, pipeline_bandwidth, points, scan_compare, star_times};

/// Experiments with Hotshelf and its parts
#[derive(Debug, Parser)]
#[command(name = "hotshelf-lab", version, after_help = EXAMPLES, max_term_width = 100)]
struct Flags {
    /// Log more to standard error (repeat for more); RUST_LOG chooses exactly
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  hotshelf-lab fuzz --seconds 60
  hotshelf-lab hpcache --sequence paper
  hotshelf-lab elf --rows 25000000
  hotshelf-lab COMMAND --help";

#[derive(Debug, Subcommand)]
enum Command {
    /// Random databases and queries against an oracle and against each other
    #[command(after_help = fuzz::EXAMPLES)]
    Fuzz(fuzz::Fuzz),
    /// Run sqllogictest files over stored tables, beside DataFusion's own
    #[command(after_help = sqllogictest::EXAMPLES)]
    Sqllogictest(sqllogictest::Flags),
    /// Run a sequence of queries under each cache policy, or make a figure of the HPCache paper
    #[command(after_help = hpcache::flags::EXAMPLES)]
    Hpcache(hpcache::flags::Flags),
    /// Compare the price of memory with the time that a little less and a little more of it takes
    #[command(after_help = hpcache::price::EXAMPLES)]
    Price(hpcache::price::Flags),
    /// Compare the Elf's layouts and planner, and the Elf with scans
    #[command(after_help = elf::flags::EXAMPLES)]
    Elf(elf::flags::Flags),
    /// Replay traces on modelled machines: the HPCache paper's claims, mixes, cache sizes, three shelves
    #[command(after_help = replay::EXAMPLES)]
    Simulate {
        /// Only this
        what: Option<replay::Replay>,
    },
    /// Time the tuner's solvers and compare them with the exact one
    #[command(after_help = "Examples:\n  hotshelf-lab solve")]
    Solve,
    /// Damage files of Elfs and ask what can still be read
    #[command(after_help = "Examples:\n  hotshelf-lab mutate --seconds 10 --seed 7")]
    Mutate {
        /// For how long
        #[arg(long, default_value_t = 60, value_name = "N")]
        seconds: u64,
        /// What the damage is drawn from
        #[arg(long, default_value_t = 1, value_name = "N")]
        seed: u64,
    },
    /// Print what emulated devices deliver, and what the profile derives from measured ones
    #[command(after_help = "Examples:\n  hotshelf-lab emulated")]
    Emulated,
    /// Make figures of the paper on OLAP and persistent memory, with all their axes, on any memory
    #[command(after_help = pmem::flags::EXAMPLES)]
    Pmem(pmem::flags::Flags),
    /// Run the Star Schema Benchmark by hand beside the product, on any memory
    #[command(after_help = handcrafted::flags::EXAMPLES)]
    Ssb(handcrafted::flags::Flags),
    /// Time reads of a file by the I/O engine
    #[command(after_help = read_bandwidth::HELP)]
    ReadBandwidth {
        /// The file
        file: PathBuf,
        /// How to read it
        #[arg(value_name = "NAME=VALUE")]
        settings: Vec<String>,
    },
    /// Time grouping and joining by the operators alone, with any number of rows
    #[command(after_help = ladder::EXAMPLES)]
    Ladder {
        #[command(subcommand)]
        which: ladder::Ladder,
    },
    /// Time queries with star pipelines on and off
    #[command(after_help = star_times::EXAMPLES)]
    StarTimes(star_times::Flags),
    /// Compare the estimated throughput of pipelines with the real one
    #[command(after_help = pipeline_bandwidth::EXAMPLES)]
    PipelineBandwidth(pipeline_bandwidth::Flags),
    /// Time one prepared statement with many values, and count what it reads
    #[command(after_help = points::EXAMPLES)]
    Points(points::Flags),
    /// Time how long a cancelled query goes on
    #[command(after_help = cancellation::EXAMPLES)]
    Cancellation(cancellation::Flags),
    /// Compare scans with those of plain vortex-datafusion
    #[command(after_help = scan_compare::EXAMPLES)]
    ScanCompare(scan_compare::Flags),
    /// Time statements in plain vortex-datafusion over a database's files
    #[command(after_help = plain_vortex::EXAMPLES)]
    PlainVortex(plain_vortex::Flags),
}

fn main() -> ExitCode {
    match hotshelf_cli::program(run) {
        Ok(found) => ExitCode::from(u8::from(found)),
        Err(error) => error.report(),
    }
}

/// Whether something was found that should not be.
fn run() -> Result<bool> {
    let flags = Flags::parse();
    // What goes wrong in random databases is to go wrong.
    if flags.verbose > 0 || !matches!(flags.command, Command::Fuzz(_)) {
        hotshelf_cli::start_log(flags.verbose);
    }
    match flags.command {
        Command::Fuzz(fuzz) => return Ok(fuzz.run()?),
        Command::Sqllogictest(flags) => sqllogictest::run(&flags)?,
        Command::Price(flags) => {
            interrupt::listen()?;
            hpcache::price::run(&flags.validate()?)?;
        }
        Command::Hpcache(flags) => {
            interrupt::listen()?;
            hpcache::run(&flags.validate()?)?;
        }
        Command::Elf(flags) => {
            interrupt::listen()?;
            elf::run(&flags.validate()?)?;
        }
        Command::Simulate { what } => replay::run(what),
        Command::Solve => solve::times::run(),
        Command::Mutate { seconds, seed } => {
            elf::mutate::run(Duration::from_secs(seconds), seed);
        }
        Command::Emulated => {
            emulated::run().map_err(|error| ExperimentError::Other(error.into()))?
        }
        Command::Pmem(flags) => {
            interrupt::listen()?;
            pmem::run(&flags.validate()?)?;
        }
        Command::Ssb(flags) => {
            interrupt::listen()?;
            handcrafted::run(&flags.validate()?)?;
        }
        Command::ReadBandwidth { file, settings } => read_bandwidth::run(&file, &settings)?,
        Command::Ladder { which } => ladder::run(&which)?,
        Command::StarTimes(flags) => star_times::run(&flags)?,
        Command::PipelineBandwidth(flags) => pipeline_bandwidth::run(&flags)?,
        Command::Points(flags) => points::run(&flags)?,
        Command::Cancellation(flags) => cancellation::run(&flags)?,
        Command::ScanCompare(flags) => scan_compare::run(&flags)?,
        Command::PlainVortex(flags) => plain_vortex::run(&flags)?,
    }
    Ok(false)
}

/// Runs `work` in the database until it is done or Ctrl-C is pressed.
fn work<T>(database: &Database, work: impl Future<Output = Result<T>>) -> Result<T> {
    interrupt::run(database, async { Ok(work.await) })?
}
