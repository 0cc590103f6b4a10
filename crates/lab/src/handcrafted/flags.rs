//! The flags of `hotshelf-lab ssb`.

use std::path::PathBuf;

use clap::Args;
use hotshelf::internals::parse_size;
use hotshelf_cli::failure::{Failure, Result};
use hotshelf_cli::output::Format;
use hotshelf_cli::{Engine, Resources, bad_value, text_format};
use hotshelf_tier::emulated::DeviceModel;

use super::bench::{Contender, Settings, Tier};
use super::crew::Step;
use super::lookup::Kind;
use super::price::Module;
use super::queries::{QUERIES, StarQuery};

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab ssb --handcrafted --scale 1
  hotshelf-lab ssb --handcrafted --db ssb1 --contender rows,columns,unaware --tier dram,emulated:optane100-128
  hotshelf-lab ssb --handcrafted --query Q2.1 --contender rows --step one-thread,all-threads,two-sockets,numa,pinning
  hotshelf-lab ssb --handcrafted --query Q2.1 --contender rows --tier file:folder
  hotshelf-lab ssb --look-up-rates 10000,1000000 --tier dram,emulated:optane100-128
  hotshelf-lab ssb --price 575/128,700/64 --time-ratio 1.66

The product runs over its own files in its cache whatever the tier; its bytes are what scans read, encoded.
Handcrafted runs choose rows of dimensions and build look-ups anew each time, which is part of their seconds. On an
emulated tier every read of the fact table waits as on the device, and so does every step of a look-up in a hash table,
except for the part that --cpu-cache holds. Files hold rows only. The share is that of the bandwidth with which all
threads read consecutive bytes. A contender whose answer is not the product's, or not that of --answers, is an error.";

#[derive(Debug, Args)]
pub struct Flags {
    /// Run the benchmark's queries by hand beside the product
    #[arg(long, required_unless_present_any = ["look_up_rates", "price"])]
    handcrafted: bool,
    /// Measure look-ups per second in tables of this many records instead
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        value_parser = look_up_records,
        conflicts_with = "handcrafted"
    )]
    look_up_rates: Vec<usize>,
    /// Compare prices of slow and fast memory instead, each as PRICE/GIGABYTES
    #[arg(long, value_name = "SLOW,FAST", value_delimiter = ',', conflicts_with_all = ["handcrafted", "look_up_rates"])]
    price: Vec<String>,
    /// With --price: how much longer queries take on the slow memory
    #[arg(long, value_name = "RATIO", default_value_t = 1.66, requires = "price")]
    time_ratio: f64,
    /// With --price: gigabytes of each memory
    #[arg(long, value_name = "N", default_value_t = 1536.0, requires = "price")]
    gigabytes: f64,
    /// Scale factor: 1 is 6 million rows
    #[arg(long, default_value_t = 1.0, value_name = "SF")]
    scale: f64,
    /// Database with the benchmark's tables at this scale; made if it does not exist
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// Where the tables lie: dram, file:FOLDER, emulated:NAME
    #[arg(
        long,
        value_name = "TIERS",
        value_delimiter = ',',
        default_value = "dram"
    )]
    tier: Vec<String>,
    /// What runs the queries
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "engine,columns,rows"
    )]
    contender: Vec<Contender>,
    /// Only these queries [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    query: Vec<String>,
    /// How dimensions are looked up
    #[arg(long, value_name = "KIND", default_value = "dash")]
    look_ups: Kind,
    /// Steps of the paper's table 1
    #[arg(
        long,
        value_name = "STEPS",
        value_delimiter = ',',
        default_value = "pinning"
    )]
    step: Vec<Step>,
    /// On emulated tiers: two emulated sockets, each with half of the CPUs and a device of its own
    #[arg(long)]
    emulated_sockets: bool,
    /// On emulated tiers: how much of the look-ups the processor's cache holds
    #[arg(long, value_name = "SIZE", default_value = "0MB")]
    cpu_cache: String,
    /// Runs of each query, the contenders in turn; medians are shown
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Answers to compare with, as benchmarks/answers.py writes them
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    #[command(flatten)]
    resources: Resources,
    /// Format of the result: table, csv, tsv, json, ndjson, markdown
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: String,
}

/// What to do.
#[derive(Debug)]
pub struct Ssb {
    pub what: What,
    pub tiers: Vec<Tier>,
    pub threads: usize,
    pub format: Format,
}

#[derive(Debug)]
pub enum What {
    Handcrafted(Box<Handcrafted>),
    Rates(Vec<usize>),
    Price {
        slow: Module,
        fast: Module,
        gigabytes: f64,
        time_ratio: f64,
    },
}

#[derive(Debug)]
pub struct Handcrafted {
    pub scale: f64,
    pub engine: Engine,
    pub contenders: Vec<Contender>,
    pub queries: Vec<&'static StarQuery>,
    pub steps: Vec<Step>,
    /// All but the step.
    pub settings: Settings,
    pub run_count: usize,
    pub answers: Option<PathBuf>,
}

impl Flags {
    /// Makes sense of them.
    pub fn validate(self) -> Result<Ssb> {
        let tiers = self
            .tier
            .iter()
            .map(|name| tier(name))
            .collect::<Result<Vec<Tier>>>()?;
        let format = text_format(&self.format)?;
        let options = self.resources.options()?;
        let threads = options.threads;
        let what = match (&self.look_up_rates[..], &self.price[..]) {
            ([], [slow, fast]) => What::Price {
                slow: module(slow)?,
                fast: module(fast)?,
                gigabytes: self.gigabytes,
                time_ratio: self.time_ratio,
            },
            ([], []) => What::Handcrafted(Box::new(Handcrafted {
                scale: self.scale,
                engine: Engine {
                    db: self.db,
                    options,
                },
                contenders: self.contender,
                queries: queries(&self.query)?,
                steps: self.step.clone(),
                settings: Settings {
                    look_ups: self.look_ups,
                    step: Step::Pinning,
                    threads,
                    emulated_sockets: self.emulated_sockets,
                    cpu_cache_bytes: parse_size(&self.cpu_cache).map_err(bad_value)? as usize,
                },
                run_count: self.runs as usize,
                answers: self.answers,
            })),
            ([], _) => {
                let message = "--price needs two prices".to_owned();
                return Err(Failure::usage(message, "--price 575/128,700/64"));
            }
            (sizes, _) => {
                if let Some(Tier::File(folder)) =
                    tiers.iter().find(|tier| matches!(tier, Tier::File(_)))
                {
                    return Err(Failure::usage(
                        format!("no table of look-ups lies in {}", folder.display()),
                        "--tier dram,emulated:optane100-128",
                    ));
                }
                What::Rates(sizes.to_vec())
            }
        };
        Ok(Ssb {
            what,
            tiers,
            threads,
            format,
        })
    }
}

/// Records of a table of look-ups.
fn look_up_records(text: &str) -> std::result::Result<usize, String> {
    let most = 1 << 28;
    let count = text
        .parse::<usize>()
        .ok()
        .filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| format!("a number from 1 to {most} is needed"))
}

fn module(text: &str) -> Result<Module> {
    Module::parse(text).map_err(|message| Failure::usage(message, "--price 575/128,700/64"))
}

fn tier(name: &str) -> Result<Tier> {
    match name.split_once(':') {
        None if name == "dram" => Ok(Tier::Dram),
        Some(("file", folder)) if !folder.is_empty() => Ok(Tier::File(folder.into())),
        Some(("emulated", device)) => match DeviceModel::named(device) {
            Ok(model) => Ok(Tier::Emulated(Box::new(model))),
            Err(error) => {
                let names = hotshelf_tier::emulated::DEVICE_NAMES.join(", ");
                Err(Failure::usage(
                    error.to_string(),
                    format!("the devices are {names}"),
                ))
            }
        },
        _ => Err(Failure::usage(
            format!("there is no tier {name}"),
            "the tiers are dram, file:FOLDER, emulated:NAME",
        )),
    }
}

/// Queries by name. No names: all.
fn queries(names: &[String]) -> Result<Vec<&'static StarQuery>> {
    if names.is_empty() {
        return Ok(QUERIES.iter().collect());
    }
    let query = |name: &String| {
        let found = QUERIES
            .iter()
            .find(|query| query.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let names: Vec<&str> = QUERIES.iter().map(|query| query.name).collect();
            let hint = format!("the queries are {}", names.join(", "));
            Failure::usage(format!("there is no query {name}"), hint)
        })
    };
    names.iter().map(query).collect()
}
