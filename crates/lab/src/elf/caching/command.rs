//! `hotshelf-lab elf --figure`: the figures as rows and as SVG.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use hotshelf_cli::failure::{Failure, note};
use hotshelf_cli::output::{Format, Output, Target};
use hotshelf_cli::picture;
use hotshelf_elf::keys::CodeTable;

use super::bench::{Bench, Effort, FigureError};
use super::figures::Figure;
use super::measure::Row;
use crate::failure::{ExperimentError, Result};

impl From<FigureError> for ExperimentError {
    fn from(error: FigureError) -> Self {
        match error {
            FigureError::Elf(error) => error.into(),
            FigureError::Tier(error) => Failure::from(error).into(),
            error @ FigureError::Folder(_) => Self::Other(Box::new(error)),
        }
    }
}

/// Figures to be measured.
#[derive(Debug)]
pub struct Figures {
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
pub fn run(figures: &Figures, table: CodeTable, format: Format) -> Result<()> {
    let folder = &figures.folder;
    fs::create_dir_all(folder).map_err(Failure::io("create", folder))?;
    let row_count = table.row_count();
    let bench = Bench::new(table, figures.effort)?;
    let mut output = Output::open(Target::Stdout, format)?;
    let wanted = |figure: &Figure| figures.names.contains(&figure.name);
    for figure in Figure::ALL.into_iter().filter(wanted) {
        let rows = figure.measure(&bench)?;
        let path = folder.join(format!("elf-caching-{}.svg", figure.name));
        draw(&figure, &rows, row_count, &path)?;
        note(&format!("wrote {}", path.display()));
        output.print(&batch(&rows)?)?;
    }
    Ok(output.close()?)
}

/// A panel for each query and skew: bars where contenders have no place on the horizontal axis, else lines.
fn draw(figure: &Figure, rows: &[Row], row_count: usize, path: &Path) -> Result<()> {
    let is_skew = figure.x_label == "theta";
    let title_of = |row: &Row| match is_skew {
        true => row.query.clone(),
        false => format!("{}, theta {}", row.query, row.theta),
    };
    let mut titles: Vec<String> = Vec::new();
    for title in rows.iter().map(title_of) {
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    let panels = titles.iter().map(|title| {
        let own: Vec<&Row> = rows.iter().filter(|row| title_of(row) == *title).collect();
        panel(title, figure.x_label, &own)
    });
    let drawing = picture::Figure {
        title: format!("{}: {}", figure.name, figure.title),
        subtitle: format!("{row_count} rows; slow memory is emulated, a block device is real"),
        panels: panels.collect(),
    };
    Ok(drawing.draw(path)?)
}

fn panel(title: &str, x_label: &str, rows: &[&Row]) -> picture::Panel {
    let mut panel = picture::Panel::new(title, x_label, "queries/s");
    for row in rows {
        let label = format!("{} ({})", row.series, row.shelf);
        let at = panel.series.iter().position(|series| series.label == label);
        let at = at.unwrap_or_else(|| {
            panel.series.push(picture::Series::empty(label));
            panel.series.len() - 1
        });
        let x = row.x.unwrap_or_default();
        panel.series[at].points.push((x, row.queries_per_s));
    }
    if rows.iter().all(|row| row.x.is_none()) {
        panel.groups = vec![title.to_owned()];
    }
    panel
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
    Ok(
        RecordBatch::try_from_iter_with_nullable(nullable).map_err(|error| Failure::Format {
            format: "table",
            what: error.to_string(),
        })?,
    )
}
