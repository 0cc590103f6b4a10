//! `hotshelf-lab elf`: the Elf's layouts and planner, and the Elf against scans.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use hotshelf_cli::failure::{Failure, note};
use hotshelf_cli::output::{Output, Target};
use hotshelf_elf::keys::CodeTable;

use super::flags::{Data, Elf};
use super::{Figure, caching, export, lineitem, measure, uniform};
use crate::failure::Result;

pub fn run(elf: &Elf) -> Result<()> {
    let mut output = Output::open(Target::Stdout, elf.format)?;
    match &elf.figures {
        Some(figures) => {
            if figures.has_table {
                caching::command::print_table(&mut output)?;
            }
            if !figures.names.is_empty() {
                caching::command::run(figures, table(elf)?, &mut output)?;
            }
        }
        None => compare(elf, &table(elf)?, &mut output)?,
    }
    Ok(output.close()?)
}

/// The table that is measured on, and exported if that is asked for.
fn table(elf: &Elf) -> Result<CodeTable> {
    let table = match elf.data {
        Data::Uniform {
            row_count,
            column_count,
            value_count,
        } => uniform(row_count as usize, column_count.into(), value_count),
        Data::Lineitem { scale } => lineitem(scale, elf.options.thread_count),
    }?;
    note(&format!(
        "{} rows of {} columns, {} runs",
        table.row_count(),
        table.dimension_count(),
        elf.options.round_count
    ));
    if let Some(folder) = &elf.export {
        export(&table, folder).map_err(Failure::io("write", folder))?;
    }
    Ok(table)
}

fn compare(elf: &Elf, table: &CodeTable, output: &mut Output) -> Result<()> {
    for (name, experiment) in &elf.experiments {
        let mut figures = Vec::new();
        measure(*experiment, table, &elf.options, &mut |figure| {
            tracing::info!(?figure, "measured");
            figures.push(figure);
        })?;
        output.print(&rows(name, &figures)?)?;
    }
    Ok(())
}

fn rows(experiment: &str, figures: &[Figure]) -> Result<RecordBatch> {
    let text = |value: fn(&Figure) -> &str| {
        Arc::new(StringArray::from_iter_values(figures.iter().map(value))) as ArrayRef
    };
    let rounded = |value: f64| (value * 1e3).round() / 1e3;
    let values = figures.iter().map(|figure| rounded(figure.value));
    let ratios = figures.iter().map(|figure| figure.ratio.map(rounded));
    let experiments = figures.iter().map(|_| experiment);
    Ok(RecordBatch::try_from_iter([
        (
            "experiment",
            Arc::new(StringArray::from_iter_values(experiments)) as ArrayRef,
        ),
        ("case", text(|figure| &figure.case)),
        ("contender", text(|figure| &figure.contender)),
        (
            "value",
            Arc::new(Float64Array::from_iter_values(values)) as ArrayRef,
        ),
        ("unit", text(|figure| figure.unit)),
        (
            "ratio",
            Arc::new(ratios.collect::<Float64Array>()) as ArrayRef,
        ),
    ])
    .map_err(|error| Failure::Format {
        format: "table",
        what: error.to_string(),
    })?)
}
