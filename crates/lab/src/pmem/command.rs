//! `hotshelf-lab pmem`: measures figures tier by tier, prints their rows and draws them.

use std::fs;

use hotshelf_cli::failure::{Failure, note};
use hotshelf_cli::interrupt;
use hotshelf_cli::output::{Output, Target};
use hotshelf_tier::probe::Operation;

use super::case::Case;
use super::device::{Device, Found, Limits, Machine, is_coarse};
use super::drawing::{draw, draw_queries, words};
use super::figures::{Figure, Sweep};
use super::flags::{Pmem, Which};
use super::queries;
use super::rows::{Row, batch};
use super::stated;
use crate::failure::Result;

pub fn run(pmem: &Pmem) -> Result<()> {
    fs::create_dir_all(&pmem.folder).map_err(Failure::io("create", &pmem.folder))?;
    let machine = Machine::read();
    let mut all = Vec::new();
    for which in &pmem.figures {
        let path = pmem.folder.join(match which {
            Which::Bandwidths(figure) => format!("pmem-{:02}.svg", figure.number),
            other => format!("pmem-{}.svg", other.name()),
        });
        let rows = match which {
            Which::Bandwidths(figure) => {
                let rows = figure_rows(figure, pmem, &machine)?;
                draw(figure, &rows, &path)?;
                rows
            }
            Which::Queries => {
                let rows = queries::figure_14(pmem, &machine)?;
                draw_queries("Figure 14: Star Schema Benchmark", &rows, &path)?;
                rows
            }
            Which::Table => {
                let rows = queries::table_1(pmem, &machine)?;
                draw_queries("Table 1: Q2.1 step by step", &rows, &path)?;
                rows
            }
        };
        note(&format!("wrote {}", path.display()));
        all.extend(rows);
    }
    if pmem.only_stated {
        all.retain(|row| row.paper.is_some());
    }
    let rows = batch(&all).map_err(|error| Failure::Format {
        format: "table",
        what: error.to_string(),
    })?;
    let mut output = Output::open(Target::Stdout, pmem.format)?;
    output.print(&rows)?;
    Ok(output.close()?)
}

/// All rows of a figure of bandwidths, by tier.
pub fn figure_rows(figure: &Figure, pmem: &Pmem, machine: &Machine) -> Result<Vec<Row>> {
    let stop = interrupt::flag();
    let limits = Limits {
        time: pmem.time,
        stop: &stop,
    };
    let mut rows = Vec::new();
    for device in &pmem.devices {
        let is_wanted = |case: &Case| {
            let is_stated = |operation| {
                let of = |memory| stated::find(figure.number, memory, case, operation);
                device.memory().and_then(of).is_some()
            };
            !pmem.quick || is_coarse(case) || case.operations().any(is_stated)
        };
        let wanted: Vec<(&Sweep, Case)> = figure
            .sweeps
            .iter()
            .flat_map(|sweep| sweep.cases().into_iter().map(move |case| (sweep, case)))
            .filter(|(_, case)| is_wanted(case))
            .collect();
        let can_be_shown =
            |(sweep, case): &&(&Sweep, Case)| device.why_not(sweep, case, machine).is_none();
        let cases = wanted.iter().filter(can_be_shown).map(|(_, case)| *case);
        let found = device.measure(figure, cases.collect(), machine, &limits)?;
        for (sweep, case) in &wanted {
            let found = found.iter().find(|found| found.case == *case);
            let of = |operation| row(figure, device, sweep, (case, operation), found, machine);
            rows.extend(case.operations().map(of));
        }
    }
    Ok(rows)
}

fn row(
    figure: &Figure,
    device: &Device,
    sweep: &Sweep,
    (case, operation): (&Case, Operation),
    found: Option<&Found>,
    machine: &Machine,
) -> Row {
    let measured = found.map(|found| found.rates.as_ref());
    let bytes_per_s = measured
        .and_then(|rates| rates.ok())
        .map(|rates| match operation {
            Operation::Read => rates.read,
            Operation::Write => rates.write,
        });
    let why_not = device.why_not(sweep, case, machine).map(str::to_owned);
    let refused = measured.and_then(|rates| rates.err().cloned());
    let of_paper = |memory| stated::find(figure.number, memory, case, operation);
    let paper = device.memory().and_then(of_paper);
    let shown = |note| bytes_per_s.and(note);
    Row {
        figure: figure.number.to_string(),
        panel: sweep.panel,
        tier: device.name(),
        label: device.label(),
        what: words(case, operation),
        case: Some((*case, operation)),
        unit: "GB/s",
        value: bytes_per_s.map(|rate| rate / 1e9),
        paper: paper.map(|stated| stated.gb_per_s),
        paper_words: paper.map(|stated| stated.words),
        paper_follows: paper.is_some_and(|stated| stated.follows),
        parameters: shown(device.parameters(figure.number, case, operation)),
        note: why_not
            .or(refused)
            .or_else(|| shown(device.note(sweep, case, machine))),
    }
}
