//! The flags of `hotshelf-lab hpcache`.

use std::path::PathBuf;

use clap::Args;
use hotshelf::internals::{parse_bandwidth, parse_size};
use hotshelf_cli::failure::{Failure, Result};
use hotshelf_cli::output::Format;
use hotshelf_cli::{Engine, Resources, bad_value, text_format};

use super::{Contender, Sequence};
use crate::policy::CachePolicy;

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab hpcache --sequence paper --scale 1
  hotshelf-lab hpcache --sequence skewed --db ssb10 --budget 400MB --storage-bandwidth 900MB/s --policy lru,hpcache
  hotshelf-lab hpcache --figure 11,13 --out figures
  hotshelf-lab hpcache --figure 11 --measured --db ssb10

Sequences: paper, uniform, skewed, alternating, big-scan, two-tenants, growing. Each policy starts with a cold
cache; 'memory' is everything in memory. Without --budget it is 80/96 of the largest query's columns, without
--storage-bandwidth a third of what Q2.1 processes in memory, as in the paper. Figures are simulated at the
paper's scale unless --measured is given; they set their own budgets, parts of a query's columns as in the paper.";

#[derive(Debug, Args)]
pub struct Flags {
    /// Which sequence of queries
    #[arg(long, value_name = "NAME", required_unless_present = "figure")]
    sequence: Option<String>,
    /// Figures of the paper to make: 1, 3 to 14
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with_all = ["sequence", "policy", "budget", "list"])]
    figure: Vec<u32>,
    /// Measure the figures here instead of simulating the paper's server
    #[arg(long, requires = "figure", conflicts_with = "sequence")]
    measured: bool,
    /// Folder for the figures
    #[arg(long, value_name = "DIR", default_value = "figures")]
    out: PathBuf,
    /// Scale factor of the Star Schema Benchmark: 1 is 6 million rows
    #[arg(long, default_value_t = 1.0, value_name = "SF")]
    scale: f64,
    /// Database with the benchmark's tables, of whatever scale; made at --scale if it does not exist
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// Only these policies, such as lru,hpcache,memory [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policy: Vec<String>,
    /// Cap on reads from storage, such as 300MB/s, or none
    #[arg(long, value_name = "RATE")]
    storage_bandwidth: Option<String>,
    #[command(flatten)]
    resources: Resources,
    /// Draws the sequence's queries; 0 is the paper's own order
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// How often each policy runs, in turn; the run with the median time is shown
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Only list the queries of the sequence
    #[arg(long)]
    list: bool,
    /// Format of the result: table, csv, tsv, json, ndjson, markdown
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: String,
}

/// The experiments of the HPCache paper.
#[derive(Debug)]
pub struct Hpcache {
    pub what: What,
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
pub enum What {
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

impl Flags {
    /// Makes sense of them.
    pub fn validate(self) -> Result<Hpcache> {
        let what = match &self.sequence {
            Some(name) => What::Sequence {
                sequence: name.parse().map_err(|unknown| {
                    let names: Vec<&str> = Sequence::all().map(Sequence::name).collect();
                    Failure::usage(
                        format!("{unknown}"),
                        format!("the sequences are {}", names.join(", ")),
                    )
                })?,
                seed: self.seed,
                contenders: contenders(&self.policy)?,
                list: self.list,
            },
            None => What::Figures {
                numbers: self.figure,
                measured: self.measured,
                folder: self.out,
            },
        };
        let rate = self.storage_bandwidth.as_deref().map(parse_bandwidth);
        let size = self.resources.budget.as_deref().map(parse_size);
        Ok(Hpcache {
            what,
            scale: self.scale,
            engine: Engine {
                db: self.db,
                options: self.resources.options()?,
            },
            budget_bytes: size.transpose().map_err(bad_value)?,
            storage_bandwidth: rate.transpose().map_err(bad_value)?,
            run_count: self.runs as usize,
            format: text_format(&self.format)?,
        })
    }
}

/// Policies by name, and `memory`. No names: all.
fn contenders(names: &[String]) -> Result<Vec<Contender>> {
    if names.is_empty() {
        let all = CachePolicy::ALL
            .iter()
            .map(|policy| Contender::Policy(*policy));
        return Ok(all.chain([Contender::Memory]).collect());
    }
    let contender = |name: &String| match name.eq_ignore_ascii_case("memory") {
        true => Ok(Contender::Memory),
        false => {
            let policy: Result<CachePolicy, String> = name.to_ascii_lowercase().parse();
            let policy = policy.map_err(|error| Failure::usage(error, "--policy lru,hpcache"));
            policy.map(Contender::Policy)
        }
    };
    names.iter().map(contender).collect()
}
