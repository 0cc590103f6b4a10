//! The flags of `hotshelf-lab pmem`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hotshelf::internals::parse_size;
use hotshelf_cli::failure::{Failure, Result};
use hotshelf_cli::output::Format;
use hotshelf_cli::{bad_value, text_format};

use super::device::Device;
use super::figures::{FIGURES, Figure};

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab pmem --figure 3
  hotshelf-lab pmem --figure 8,11 --tier emulated:optane100-128,simulated:optane100-128 --format json
  hotshelf-lab pmem --figure 3,4,5,6,7,8,9,10,11,12,13 --quick --stated --out figures
  hotshelf-lab pmem --figure 14,table1 --scale 0.5 --tier dram,emulated:optane100-128,file:folder
  hotshelf-lab ssb --price 575/128,700/64 --time-ratio 1.66

Every axis of a figure is swept on every tier. Rows are labelled real (this machine's memory and volume), emulated
(threads really wait as long as the device would make them) or simulated (virtual time), and say where the parameters
of a model are from; a row without a value says why. The paper states few values in words, and only these are beside
what was measured; 'paper_follows' marks those that follow from its words. Prices are compared by the last example.";

#[derive(Debug, Args)]
pub struct Flags {
    /// Figures of the paper to make: 3 to 14, table1
    #[arg(long, value_name = "N", value_delimiter = ',', required = true)]
    figure: Vec<String>,
    /// Where to measure: dram, file:FOLDER, emulated:NAME, simulated:NAME
    #[arg(
        long,
        value_name = "TIERS",
        value_delimiter = ',',
        default_value = "dram,file:.,emulated:optane100-128,simulated:optane100-128"
    )]
    tier: Vec<String>,
    /// About how long a figure takes on each tier, at most twice as long; what tells most is measured first
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Every other size and the thread counts that the paper names, a third of the time
    #[arg(long)]
    quick: bool,
    /// Print only rows for which the paper states a value; pictures show all
    #[arg(long)]
    stated: bool,
    /// Folder for the pictures
    #[arg(long, value_name = "DIR", default_value = "figures")]
    out: PathBuf,
    /// Figure 14 and table1: scale factor of the Star Schema Benchmark
    #[arg(long, default_value_t = 0.25, value_name = "SF")]
    scale: f64,
    /// Figure 14 and table1: how much of the look-ups the processor's cache holds [default: its size]
    #[arg(long, value_name = "SIZE")]
    cpu_cache: Option<String>,
    /// Format of the result: table, csv, tsv, json, ndjson, markdown
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: String,
}

/// Figures to make.
#[derive(Debug)]
pub struct Pmem {
    pub figures: Vec<Which>,
    pub devices: Vec<Device>,
    pub time: Duration,
    pub quick: bool,
    pub only_stated: bool,
    pub folder: PathBuf,
    pub scale: f64,
    pub cpu_cache_bytes: Option<usize>,
    pub format: Format,
}

/// A figure, or the table.
#[derive(Debug, Clone, Copy)]
pub enum Which {
    Bandwidths(&'static Figure),
    Queries,
    Table,
}

impl Which {
    fn parse(name: &str) -> Result<Self> {
        let number = name.parse().ok();
        match (name, number.and_then(Figure::find)) {
            (_, Some(figure)) => Ok(Self::Bandwidths(figure)),
            ("14", _) => Ok(Self::Queries),
            ("table1", _) => Ok(Self::Table),
            _ => {
                let numbers = FIGURES.iter().map(|figure| figure.number.to_string());
                let numbers: Vec<String> = numbers.collect();
                Err(Failure::usage(
                    format!("the paper has no figure {name} that can be measured"),
                    format!("there are {}, 14, table1", numbers.join(", ")),
                ))
            }
        }
    }

    /// As `--figure` names it.
    pub fn name(self) -> String {
        match self {
            Self::Bandwidths(figure) => figure.number.to_string(),
            Self::Queries => "14".to_owned(),
            Self::Table => "table1".to_owned(),
        }
    }
}

impl Flags {
    /// Makes sense of them.
    pub fn validate(self) -> Result<Pmem> {
        let figures = self.figure.iter().map(|name| Which::parse(name));
        let devices = self.tier.iter().map(|name| Device::parse(name));
        let size = self.cpu_cache.as_deref().map(parse_size);
        let seconds = match self.quick {
            true => self.seconds.div_ceil(3),
            false => self.seconds,
        };
        Ok(Pmem {
            figures: figures.collect::<Result<_>>()?,
            devices: devices.collect::<Result<_>>()?,
            time: Duration::from_secs(seconds),
            quick: self.quick,
            only_stated: self.stated,
            folder: self.out,
            scale: self.scale,
            cpu_cache_bytes: size
                .transpose()
                .map_err(bad_value)?
                .map(|bytes| bytes as usize),
            format: text_format(&self.format)?,
        })
    }
}
