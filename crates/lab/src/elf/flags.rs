//! The flags of `hotshelf-lab elf`.

use std::path::PathBuf;

use clap::Args;
use hotshelf_cli::failure::{Failure, Result};
use hotshelf_cli::output::Format;
use hotshelf_cli::{text_format, thread_count};

use super::caching::bench::Effort;
use super::caching::command::{Figures, TABLE};
use super::caching::figures::Figure;
use super::{ElfOptions, Experiment};

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab elf --rows 25000000
  hotshelf-lab elf --lineitem 10 --experiment layouts --runs 3
  hotshelf-lab elf --rows 5000000 --experiment selectivity --export DIR
  hotshelf-lab elf --rows 25000000 --figure 2022-4,2022-5
  hotshelf-lab elf --figure all --quick --format json

Tables are uniform columns unless --lineitem is given. Everything is in memory: 25 million rows of 10 columns
take about 3 GB, lineitem at scale 10 about 12 GB. Numbers are medians; ratios are to the first contender of a
case. For huge pages everywhere set GLIBC_TUNABLES=glibc.malloc.hugetlb=1.";

#[derive(Debug, Args)]
pub struct Flags {
    /// Rows of the uniform table
    #[arg(
        long,
        default_value_t = 5_000_000,
        value_name = "N",
        conflicts_with = "lineitem"
    )]
    rows: u32,
    /// Columns of the uniform table
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    columns: u8,
    /// Different values of each of its columns
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    values: u32,
    /// Take fifteen columns of TPC-H's lineitem at this scale factor instead
    #[arg(long, value_name = "SF")]
    lineitem: Option<f64>,
    /// Only these: layouts, planner, selectivity
    #[arg(long = "experiment", value_name = "NAMES", value_delimiter = ',')]
    experiments: Vec<String>,
    /// Figures of selective caching instead, by paper and number (2020-3 to 5, 2022-3 to 8), and table1, skew, packed,
    /// hits, hybrid, emulated, device, subjects, subjects-device; or all
    #[arg(
        long = "figure",
        value_name = "NAMES",
        value_delimiter = ',',
        conflicts_with = "experiments"
    )]
    figures: Vec<String>,
    /// A small table and few queries: an impression within a minute
    #[arg(long, requires = "figures", conflicts_with_all = ["rows", "lineitem"])]
    quick: bool,
    /// Folder for the figures
    #[arg(
        long,
        value_name = "DIR",
        default_value = "figures",
        requires = "figures"
    )]
    out: PathBuf,
    /// How often each contender runs
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Threads that build
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = thread_count())]
    threads: u16,
    /// Write the columns here first, one file of 32-bit codes each, for other programs
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
    /// Format of the result: table, csv, tsv, json, ndjson, markdown
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: String,
}

#[derive(Debug)]
pub struct Elf {
    pub data: Data,
    pub experiments: Vec<(&'static str, Experiment)>,
    /// Figures of selective caching, instead of experiments.
    pub figures: Option<Figures>,
    pub options: ElfOptions,
    pub export: Option<PathBuf>,
    pub format: Format,
}

/// The table that an Elf is measured on.
#[derive(Debug)]
pub enum Data {
    Uniform {
        row_count: u32,
        column_count: u8,
        value_count: u32,
    },
    Lineitem {
        scale: f64,
    },
}

/// Rows of the table for an impression.
const QUICK_ROWS: u32 = 200_000;

impl Flags {
    /// The figures that are asked for.
    fn figures(&self) -> Result<Option<Figures>> {
        let known = || Figure::ALL.iter().map(|figure| figure.name);
        let (mut names, mut has_table) = (Vec::new(), false);
        for name in &self.figures {
            has_table |= name == TABLE || name == "all";
            match known().find(|known| known == name) {
                Some(name) => names.push(name),
                None if name == "all" => names.extend(known()),
                None if name == TABLE => {}
                None => {
                    let known = known().collect::<Vec<_>>().join(", ");
                    return Err(Failure::usage(
                        format!("there is no figure '{name}' of selective caching"),
                        format!("the figures are {TABLE}, {known}, and all"),
                    ));
                }
            }
        }
        let (round_count, exact_count) = match self.quick {
            true => (2, 2_000),
            false => (self.runs as usize, 200_000),
        };
        let effort = Effort {
            round_count,
            exact_count,
            thread_count: self.threads.into(),
        };
        Ok((!self.figures.is_empty()).then(|| Figures {
            has_table,
            names,
            folder: self.out.clone(),
            effort,
        }))
    }

    /// Makes sense of them.
    pub fn validate(self) -> Result<Elf> {
        let mut experiments = Vec::new();
        for name in &self.experiments {
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
        let figures = self.figures()?;
        let data = match self.lineitem {
            Some(scale) if scale > 0.0 => Data::Lineitem { scale },
            Some(scale) => {
                return Err(Failure::usage(
                    format!("{scale} is not a scale factor"),
                    "try --lineitem 1",
                ));
            }
            None => Data::Uniform {
                row_count: if self.quick { QUICK_ROWS } else { self.rows },
                column_count: self.columns,
                value_count: self.values,
            },
        };
        Ok(Elf {
            data,
            experiments,
            figures,
            options: ElfOptions {
                round_count: self.runs as usize,
                thread_count: self.threads.into(),
            },
            export: self.export,
            format: text_format(&self.format)?,
        })
    }
}
