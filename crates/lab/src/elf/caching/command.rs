//! `hotshelf-lab elf --figure`: the figures as rows and as SVG.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow::error::ArrowError;
use hotshelf_cli::failure::{Failure, note};
use hotshelf_cli::output::Output;
use hotshelf_elf::keys::CodeTable;

use super::bench::{Bench, Effort, FigureError};
use super::drawing::draw;
use super::figures::Figure;
use super::measure::Row;
use crate::failure::{ExperimentError, Result};
use crate::tier::emulated::{Line, table_1};

impl From<FigureError> for ExperimentError {
    fn from(error: FigureError) -> Self {
        match error {
            FigureError::Elf(error) => error.into(),
            FigureError::Tier(error) => Failure::from(error).into(),
            error @ FigureError::Folder(_) => Self::Other(Box::new(error)),
        }
    }
}

/// Table 1 of the papers, as `--figure` names it.
pub const TABLE: &str = "table1";

/// Figures to be measured.
#[derive(Debug)]
pub struct Figures {
    /// Whether Table 1 is asked for, for which nothing is measured.
    pub has_table: bool,
    /// Those of [`Figure::ALL`].
    pub names: Vec<&'static str>,
    /// Where the pictures go.
    pub folder: PathBuf,
    /// How much is measured.
    pub effort: Effort,
}

/// Measures figures over a table, prints their rows and draws them.
///
/// # Errors
/// Those of measuring, printing and drawing.
pub fn run(figures: &Figures, table: CodeTable, output: &mut Output) -> Result<()> {
    let folder = &figures.folder;
    fs::create_dir_all(folder).map_err(Failure::io("create", folder))?;
    let row_count = table.row_count();
    let bench = Bench::new(table, figures.effort)?;
    let wanted = |figure: &Figure| figures.names.contains(&figure.name);
    for figure in Figure::ALL.into_iter().filter(wanted) {
        let rows = figure.measure(&bench)?;
        let path = folder.join(format!("elf-caching-{}.svg", figure.name));
        draw(&figure, &rows, row_count, &path)?;
        note(&format!("wrote {}", path.display()));
        output.print(&batch(&rows)?)?;
    }
    Ok(())
}

/// Prints Table 1 of the papers.
///
/// # Errors
/// Those of printing, and when the model is missing.
pub fn print_table(output: &mut Output) -> Result<()> {
    let lines = table_1().map_err(Failure::from)?;
    let number = |of: fn(&Line) -> f64| {
        Arc::new(Float64Array::from_iter_values(lines.iter().map(of))) as ArrayRef
    };
    let text = |of: &dyn Fn(&Line) -> &'static str| {
        Arc::new(StringArray::from_iter_values(lines.iter().map(of))) as ArrayRef
    };
    let columns = [
        ("figure", text(&|_| TABLE)),
        ("what", text(&|line| line.what)),
        ("paper", number(|line| line.paper)),
        ("emulated", number(|line| line.emulated)),
        ("ratio", number(Line::ratio)),
    ];
    output.print(&made(RecordBatch::try_from_iter(columns))?)?;
    Ok(())
}

fn batch(rows: &[Row]) -> Result<RecordBatch> {
    let text = |of: fn(&Row) -> String| {
        Arc::new(StringArray::from_iter_values(rows.iter().map(of))) as ArrayRef
    };
    let count = |of: fn(&Row) -> u64| {
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))) as ArrayRef
    };
    let real = |of: fn(&Row) -> Option<f64>| {
        let rounded = |value: f64| (value * 1e4).round() / 1e4;
        let values = rows.iter().map(|row| of(row).map(rounded));
        Arc::new(values.collect::<Float64Array>()) as ArrayRef
    };
    let emulated = rows.iter().map(|row| Some(row.is_emulated()));
    let columns = [
        ("figure", text(|row| row.figure.clone())),
        ("layout", text(|row| row.layout.to_owned())),
        ("variant", text(|row| row.variant.clone())),
        ("shelf", text(|row| row.shelf.to_owned())),
        (
            "emulated",
            Arc::new(emulated.collect::<BooleanArray>()) as ArrayRef,
        ),
        ("query", text(|row| row.query.clone())),
        ("theta", real(|row| Some(row.theta))),
        ("threads", count(|row| row.threads as u64)),
        ("x", real(|row| row.x)),
        ("queries_per_s", real(|row| Some(row.queries_per_s))),
        ("dram_bytes", count(|row| row.dram_bytes)),
        ("index_bytes", count(|row| row.index_bytes)),
        (
            "slow_accesses_per_query",
            real(|row| Some(row.slow_accesses_per_query)),
        ),
    ];
    let nullable = columns.map(|(name, values)| (name, values, name == "x"));
    made(RecordBatch::try_from_iter_with_nullable(nullable))
}

fn made(batch: Result<RecordBatch, ArrowError>) -> Result<RecordBatch> {
    Ok(batch.map_err(|error| Failure::Format {
        format: "table",
        what: error.to_string(),
    })?)
}
