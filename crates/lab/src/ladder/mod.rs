//! `hotshelf-lab ladder`: operators over batches of their own, without a database, in growing sizes.

mod group;
mod join;
mod spill;

use clap::{Args, Subcommand};
use hotshelf_operators::memory::FixedPool;
use hotshelf_operators::spill::{SpillFolder, SpillOptions, uncounted};
use hotshelf_operators::{Environment, Result, Stop};
use hotshelf_tier::io::{IoEngine, IoOptions};

use crate::timing;

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab ladder group 60000000 1000000 2
  hotshelf-lab ladder join 15000000 60000000 2 512
  hotshelf-lab ladder spill 4000 2

Each runs three times. With MEGABYTES the operators spill what does not fit.";

const BATCH_ROWS: usize = 8192;
const RUN_COUNT: usize = 3;

#[derive(Debug, Subcommand)]
pub enum Ladder {
    /// Time an aggregation: a sum for each key; keys are spread evenly
    Group {
        /// Rows
        #[arg(value_parser = count())]
        rows: u64,
        /// Different keys
        #[arg(value_parser = count())]
        groups: u64,
        #[command(flatten)]
        machine: Machine,
    },
    /// Time a hash join: half of the probe rows have one partner
    Join {
        /// Rows of the build side
        #[arg(value_parser = count())]
        build_rows: u64,
        /// Rows of the probe side
        #[arg(value_parser = count())]
        probe_rows: u64,
        #[command(flatten)]
        machine: Machine,
    },
    /// Time writing batches to spill files and reading them, in the folder for temporary files
    Spill {
        /// Bytes before compression
        #[arg(value_name = "MEGABYTES", value_parser = count())]
        written_megabytes: u64,
        #[command(flatten)]
        machine: Machine,
    },
}

/// What the operators may use.
#[derive(Debug, Args)]
pub struct Machine {
    /// Threads
    #[arg(value_parser = count())]
    threads: u64,
    /// Memory of the operators [default: as much as they want]
    megabytes: Option<u64>,
}

fn count() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=1 << 40)
}

/// Runs the command.
pub fn run(ladder: &Ladder) -> timing::Result<()> {
    match ladder {
        Ladder::Group {
            rows,
            groups,
            machine,
        } => {
            let input = group::input(*rows, *groups);
            machine.times(|environment, threads| group::run(environment, &input, threads))
        }
        Ladder::Join {
            build_rows,
            probe_rows,
            machine,
        } => {
            let input = join::input(*build_rows, *probe_rows);
            machine.times(|environment, threads| join::run(environment, &input, threads))
        }
        Ladder::Spill {
            written_megabytes,
            machine,
        } => machine
            .times(|environment, threads| spill::run(environment, *written_megabytes, threads)),
    }
}

impl Machine {
    fn times(&self, mut run: impl FnMut(&Environment, usize) -> Result<()>) -> timing::Result<()> {
        let folder = tempfile::tempdir()?;
        let limit_bytes = self
            .megabytes
            .map_or(u64::MAX / 2, |megabytes| megabytes << 20);
        let options = SpillOptions {
            path: folder.path().to_owned(),
            limit_bytes: u64::MAX,
        };
        let engine = IoEngine::start(IoOptions::default())?;
        let environment = Environment {
            broker: FixedPool::new(limit_bytes),
            spill: SpillFolder::open(options, engine)?,
            spilled: uncounted(),
            stop: Stop::default(),
            table_shelf: None,
        };
        for _ in 0..RUN_COUNT {
            run(&environment, self.threads as usize)?;
        }
        Ok(())
    }
}

/// Does `work` with each part on a thread of its own.
fn on_threads<I: Send, T: Send>(
    parts: impl IntoIterator<Item = I>,
    work: impl Fn(usize, I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let work = &work;
        let parts = parts.into_iter().enumerate();
        let running = parts.map(|(idx, part)| scope.spawn(move || work(idx, part)));
        let running: Vec<_> = running.collect();
        running
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    })
}
