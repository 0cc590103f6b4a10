//! Experiments with the Elf: both layouts, the planner, scans at all selectivities, and selective caching.
//!
//! Contenders answer the same queries in turn; every figure is a median over rounds, and every ratio is to the
//! first contender of its case in the same run. Answers are compared on the way.

pub mod baseline;
mod caching;
mod command;
mod compare;
mod data;
pub mod flags;
mod layouts;
pub mod mutate;
mod planner;
mod selectivity;

use hotshelf_elf::Result;
use hotshelf_elf::keys::CodeTable;

pub use command::run;
use data::{export, lineitem, uniform};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Experiment {
    /// Size, build and queries of `packed` against `linear`.
    Layouts,
    /// Elf or scan: calibration and regret.
    Planner,
    /// The Elf against scans from 0.001 % to 50 % of the rows.
    Selectivity,
}

impl Experiment {
    /// All experiments and their names.
    pub const ALL: [(&'static str, Self); 3] = [
        ("layouts", Self::Layouts),
        ("planner", Self::Planner),
        ("selectivity", Self::Selectivity),
    ];
}

/// How often and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElfOptions {
    /// Rounds of every comparison.
    pub round_count: usize,
    /// Threads that build.
    pub thread_count: usize,
}

impl Default for ElfOptions {
    fn default() -> Self {
        Self {
            round_count: 5,
            thread_count: 2,
        }
    }
}

/// One measured value.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What was asked.
    pub case: String,
    /// Who answered.
    pub contender: String,
    /// The value in `unit`.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// How much better than the first contender of the case; absent where nothing is compared.
    pub ratio: Option<f64>,
}

/// Runs an experiment over a table; `show` gets each figure as it is known.
///
/// # Errors
/// None today: queries are made for the table.
fn measure(
    experiment: Experiment,
    table: &CodeTable,
    options: &ElfOptions,
    show: &mut dyn FnMut(Figure),
) -> Result<()> {
    match experiment {
        Experiment::Layouts => layouts::run(table, options, show),
        Experiment::Planner => planner::run(table, show),
        Experiment::Selectivity => selectivity::run(table, options, show),
    }
}
