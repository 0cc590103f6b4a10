//! Rows of a figure as SVG.

use std::path::Path;

use hotshelf_cli::failure::Result;
use hotshelf_cli::picture;

use super::figures::Figure;
use super::measure::Row;

/// A panel for each query and skew: bars where contenders have no place on the horizontal axis, else lines.
///
/// # Errors
/// When there is nothing to draw, or the file cannot be written.
pub fn draw(figure: &Figure, rows: &[Row], row_count: usize, path: &Path) -> Result<()> {
    let is_skew = figure.x_label == "theta";
    let title_of = |row: &Row| match is_skew {
        true => format!("{}, {}", row.layout, row.query),
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
    drawing.draw(path)
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
