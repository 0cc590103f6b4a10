//! Rows of a figure as SVG: a picture for each figure, a panel for each of its parts on each tier.

use std::path::Path;

use hotshelf_cli::failure::Result;
use hotshelf_cli::picture::{Figure as Picture, Panel, Series};
use hotshelf_tier::probe::{Grouping, Operation, Pinning, Placement};

use super::case::{Case, operation_name, pinning_name, placement_name, size_name};
use super::figures::{Axis, Figure, Sweep};
use super::rows::Row;

/// More lines look alike. These counts and sizes are drawn where a line is one of many; all are rows.
const THREADS_DRAWN: [u32; 5] = [1, 4, 8, 18, 36];
const BYTES_DRAWN: [u64; 6] = [64, 256, 1024, 4096, 65_536, 1 << 25];
/// How the names of its values begin.
const PAPER: &str = "paper, ";
/// What a picture must say.
const SUBTITLE: &str = "'paper' is what its text states, joined where that is several points; emulated threads really \
                        wait, simulated ones in virtual time";

/// Draws a figure of bandwidths.
///
/// # Errors
/// When there is nothing to draw, or the file cannot be written.
pub fn draw(figure: &Figure, rows: &[Row], path: &Path) -> Result<()> {
    let mut panels: Vec<Panel> = Vec::new();
    for row in rows {
        let Some((case, operation)) = &row.case else {
            continue;
        };
        let Some(sweep) = sweep_of(figure, row.panel, case) else {
            continue;
        };
        let part = match sweep.is_mixed() {
            true => format!("{} of {}", operation_name(*operation), row.panel),
            false => row.panel.to_owned(),
        };
        let title = format!("{part}: {} ({})", row.tier, row.label.name());
        let at = panels.iter().position(|panel| panel.title == title);
        let at = at.unwrap_or_else(|| {
            panels.push(Panel::new(&title, sweep.x.label(), "GB/s"));
            panels.len() - 1
        });
        let label = series(sweep, case, *operation);
        let x = sweep.x.of(case);
        if !is_drawn(sweep, case) {
            continue;
        }
        if let Some(value) = row.value {
            add(&mut panels[at], &label, (x, value));
        }
        if let Some(paper) = row.paper {
            add(&mut panels[at], &format!("{PAPER}{label}"), (x, paper));
        }
    }
    panels.retain(has_own);
    let picture = Picture {
        title: format!("Figure {}: {}", figure.number, figure.title),
        subtitle: SUBTITLE.to_owned(),
        panels,
    };
    picture.draw(path)
}

/// Draws figure 14 or table 1: bars for each tier in groups of what was measured.
///
/// # Errors
/// When there is nothing to draw, or the file cannot be written.
pub fn draw_queries(title: &str, rows: &[Row], path: &Path) -> Result<()> {
    let mut panels: Vec<Panel> = Vec::new();
    for row in rows {
        let title = format!("{}, {}", row.panel, row.unit);
        let at = panels.iter().position(|panel| panel.title == title);
        let at = at.unwrap_or_else(|| {
            panels.push(Panel::new(&title, "", row.unit));
            panels.len() - 1
        });
        let panel = &mut panels[at];
        let group = panel.groups.iter().position(|group| *group == row.what);
        let group = group.unwrap_or_else(|| {
            panel.groups.push(row.what.clone());
            panel.groups.len() - 1
        });
        let label = format!("{} ({})", row.tier, row.label.name());
        if let Some(value) = row.value {
            add(panel, &label, (group as f64, value));
        }
        if let Some(paper) = row.paper {
            add(
                panel,
                &format!("paper, {}", row.tier),
                (group as f64, paper),
            );
        }
    }
    panels.retain(|panel| !panel.series.is_empty());
    let picture = Picture {
        title: title.to_owned(),
        subtitle: "smaller data than the paper's; slow memory is emulated".to_owned(),
        panels,
    };
    picture.draw(path)
}

/// Whether there is more to see than the paper's values.
fn has_own(panel: &Panel) -> bool {
    let is_paper = |series: &Series| series.label.starts_with(PAPER);
    !panel.series.iter().all(is_paper)
}

fn add(panel: &mut Panel, label: &str, point: (f64, f64)) {
    let at = panel.series.iter().position(|series| series.label == label);
    let at = at.unwrap_or_else(|| {
        panel.series.push(Series::empty(label));
        panel.series.len() - 1
    });
    let points = &mut panel.series[at].points;
    let before = points.partition_point(|(x, _)| *x < point.0);
    points.insert(before, point);
}

/// The sweep of this panel that a case belongs to.
pub fn sweep_of(figure: &Figure, panel: &str, case: &Case) -> Option<&'static Sweep> {
    let figure = Figure::find(figure.number)?;
    let mut of_panel = figure.sweeps.iter().filter(|sweep| sweep.panel == panel);
    of_panel.find(|sweep| {
        sweep.placements.contains(&case.placement)
            && sweep.readers.contains(&case.readers)
            && sweep.writers.contains(&case.writers)
    })
}

fn is_drawn(sweep: &Sweep, case: &Case) -> bool {
    let is_by_size = sweep.access_bytes.len() > 1;
    let threads = case.readers.max(case.writers);
    match (is_by_size, sweep.x) {
        (false, _) => true,
        (true, Axis::Bytes) => THREADS_DRAWN.contains(&threads),
        (true, _) => BYTES_DRAWN.contains(&case.access_bytes),
    }
}

/// What distinguishes a line from others of its panel.
fn series(sweep: &Sweep, case: &Case, operation: Operation) -> String {
    let mut parts: Vec<String> = Vec::new();
    let threads = case.readers.max(case.writers);
    match (sweep.access_bytes.len() > 1, sweep.x) {
        (true, Axis::Bytes) => parts.push(format!("{threads} threads")),
        (true, _) => parts.push(size_name(case.access_bytes)),
        (false, _) => {}
    }
    if sweep.pinnings.len() > 1 {
        parts.push(pinning_name(case.pinning).to_owned());
    }
    if sweep.placements.len() > 1 {
        parts.push(placement_name(case.placement).to_owned());
    }
    if sweep.is_mixed() {
        parts.push(match case.writers {
            0 => "readers alone".to_owned(),
            1 => "1 writer".to_owned(),
            writers => format!("{writers} writers"),
        });
    }
    match parts.is_empty() {
        true => format!("{} alone", operation_name(operation)),
        false => parts.join(", "),
    }
}

/// A case in words.
pub fn words(case: &Case, operation: Operation) -> String {
    let count = |threads: u32, what: &str| match threads {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{threads} {what}s")),
    };
    let mut parts = vec![format!(
        "{} {}",
        operation_name(operation),
        size_name(case.access_bytes)
    )];
    parts.extend(count(case.readers, "reader"));
    parts.extend(count(case.writers, "writer"));
    if case.grouping != Grouping::Individual {
        parts.push("grouped".to_owned());
    }
    if case.pattern != hotshelf_tier::probe::Pattern::Sequential {
        parts.push("random".to_owned());
    }
    if case.pinning != Pinning::Node {
        parts.push(pinning_name(case.pinning).to_owned());
    }
    if case.placement != Placement::Near {
        parts.push(placement_name(case.placement).to_owned());
    }
    parts.join(", ")
}
