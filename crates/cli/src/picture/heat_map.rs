//! Draws what a probe measured: one heat map per pair of axes, all of a tier in one SVG.

mod maps;

use plotters::prelude::*;
use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use hotshelf::probe::ProbeReport;

use maps::{HeatMap, maps};

const FONT: &str = "sans-serif";
const PANEL_WIDTH: u32 = 560;
const CELL_HEIGHT: u32 = 22;
const HEAD_HEIGHT: u32 = 64;
const TITLE_HEIGHT: u32 = 26;
const LABEL_WIDTH: i32 = 116;
const AXIS_HEIGHT: u32 = 36;
const COLUMNS: usize = 2;
/// Cells get their number written in where this many or fewer are side by side.
const NUMBERED_COLUMNS_MAX: usize = 12;

/// All heat maps of a report as SVG text.
///
/// # Errors
/// What went wrong, in words; also if there is nothing to draw.
pub fn draw(report: &ProbeReport) -> Result<String, String> {
    let maps = maps(report);
    if maps.is_empty() {
        return Err("too little was measured".to_owned());
    }
    let rows: Vec<&[HeatMap]> = maps.chunks(COLUMNS).collect();
    let height: u32 = HEAD_HEIGHT + rows.iter().map(|row| row_height(row)).sum::<u32>();
    let mut svg = String::new();
    {
        let size = (PANEL_WIDTH * COLUMNS as u32, height);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        panels(&area, report, &rows).map_err(|error| error.to_string())?;
    }
    // What every element would have anyway makes half of a large picture.
    Ok(svg
        .replace(" opacity=\"1\"", "")
        .replace(" stroke=\"none\"", ""))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawResult = Result<(), Box<dyn std::error::Error>>;

fn panels(area: &Area<'_>, report: &ProbeReport, rows: &[&[HeatMap]]) -> DrawResult {
    area.fill(&WHITE)?;
    let emulated = if report.emulated { " (emulated)" } else { "" };
    let title = format!("{}{emulated}: bandwidth in GB/s", report.tier);
    let title_font = (FONT, 22).into_font().color(&BLACK);
    area.draw(&Text::new(title, (12, 10), title_font))?;
    let machine = match report.fingerprint.virtualised {
        true => format!("{}, virtual", report.fingerprint.cpu_model),
        false => report.fingerprint.cpu_model.clone(),
    };
    let place = format!(
        "{machine}, {} cores; each map has a colour scale of its own",
        report.fingerprint.physical_cores
    );
    area.draw(&Text::new(
        place,
        (12, 38),
        (FONT, 14).into_font().color(&BLACK.mix(0.7)),
    ))?;
    let mut top = HEAD_HEIGHT;
    for row in rows {
        for (column, map) in row.iter().enumerate() {
            panel(
                area,
                map,
                ((column as u32 * PANEL_WIDTH) as i32, top as i32),
            )?;
        }
        top += row_height(row);
    }
    area.present()?;
    Ok(())
}

fn row_height(row: &[HeatMap]) -> u32 {
    row.iter().map(panel_height).max().unwrap_or(0)
}

fn panel_height(map: &HeatMap) -> u32 {
    TITLE_HEIGHT + map.y.len() as u32 * CELL_HEIGHT + AXIS_HEIGHT
}

fn panel(area: &Area<'_>, map: &HeatMap, (left, top): (i32, i32)) -> DrawResult {
    let most = map
        .cells
        .iter()
        .flatten()
        .flatten()
        .copied()
        .fold(0.0, f64::max);
    let small = || (FONT, 12).into_font().color(&BLACK);
    let bold = (FONT, 15).into_font().color(&BLACK);
    area.draw(&Text::new(map.title.clone(), (left + 12, top + 4), bold))?;
    let grid_top = top + TITLE_HEIGHT as i32;
    let width = (PANEL_WIDTH as i32 - LABEL_WIDTH - 16) / map.x.len().max(1) as i32;
    let width = width.min(72);
    let right = small().pos(Pos::new(HPos::Right, VPos::Center));
    let middle = small().pos(Pos::new(HPos::Center, VPos::Center));
    for (y_idx, (label, cells)) in map.y.iter().zip(&map.cells).enumerate() {
        let y = grid_top + y_idx as i32 * CELL_HEIGHT as i32;
        let centre = y + CELL_HEIGHT as i32 / 2;
        area.draw(&Text::new(
            label.clone(),
            (left + LABEL_WIDTH - 6, centre),
            right.clone(),
        ))?;
        for (x_idx, cell) in cells.iter().enumerate() {
            let x = left + LABEL_WIDTH + x_idx as i32 * width;
            let Some(value) = cell else { continue };
            let part = value / most.max(f64::MIN_POSITIVE);
            let corners = [(x, y), (x + width - 1, y + CELL_HEIGHT as i32 - 1)];
            area.draw(&Rectangle::new(corners, color(part).filled()))?;
            if map.x.len() <= NUMBERED_COLUMNS_MAX {
                let ink = if part < 0.55 { WHITE } else { BLACK };
                let style = (FONT, 12).into_font().color(&ink);
                let style = style.pos(Pos::new(HPos::Center, VPos::Center));
                area.draw(&Text::new(number(*value), (x + width / 2, centre), style))?;
            }
        }
    }
    let axis_top = grid_top + map.y.len() as i32 * CELL_HEIGHT as i32;
    let every = map.x.len().div_ceil(NUMBERED_COLUMNS_MAX).max(1);
    for (x_idx, label) in map.x.iter().enumerate().step_by(every) {
        let x = left + LABEL_WIDTH + x_idx as i32 * width + width / 2;
        area.draw(&Text::new(label.clone(), (x, axis_top + 8), middle.clone()))?;
    }
    let axes = format!("{} over {}; most {}", map.y_axis, map.x_axis, number(most));
    let grey = (FONT, 12).into_font().color(&BLACK.mix(0.6));
    area.draw(&Text::new(axes, (left + LABEL_WIDTH, axis_top + 18), grey))?;
    Ok(())
}

/// Dark blue over green to yellow, readable in grey too.
fn color(part: f64) -> RGBColor {
    const STOPS: [(f64, f64, f64); 5] = [
        (68.0, 1.0, 84.0),
        (59.0, 82.0, 139.0),
        (33.0, 145.0, 140.0),
        (94.0, 201.0, 98.0),
        (253.0, 231.0, 37.0),
    ];
    let at = part.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let low = (at as usize).min(STOPS.len() - 2);
    let (a, b, t) = (STOPS[low], STOPS[low + 1], at - low as f64);
    let between = |a: f64, b: f64| (a + (b - a) * t).round() as u8;
    RGBColor(between(a.0, b.0), between(a.1, b.1), between(a.2, b.2))
}

fn number(bytes_per_s: f64) -> String {
    match bytes_per_s / 1e9 {
        gb if gb >= 99.5 => format!("{gb:.0}"),
        gb if gb >= 9.95 => format!("{gb:.1}"),
        gb => format!("{gb:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::maps::AXES;
    use super::*;
    use hotshelf::probe::{ProbeOptions, Row, Topology, probe};
    use std::ops::ControlFlow;

    fn emulated() -> ProbeReport {
        let options = ProbeOptions {
            quick: true,
            ..ProbeOptions::default()
        };
        let target = "emulated:optane100-128".parse().unwrap();
        let go_on = &mut |_: hotshelf::probe::Progress<'_>| ControlFlow::Continue(());
        probe(&target, &Topology::default(), &options, go_on).unwrap()
    }

    #[test]
    fn every_axis_of_memory_gets_a_map_with_every_cell_filled_from_its_row() {
        let report = emulated();
        let maps = maps(&report);
        let titles: Vec<&str> = maps.iter().map(|map| map.title.as_str()).collect();
        for title in [
            "Sequential reads, taking turns",
            "Random writes",
            "Persist instruction",
            "Sockets, reads of 4 KiB",
            "Readers beside writers, both together",
        ] {
            assert!(titles.contains(&title), "{title} is not in {titles:?}");
        }
        let reads = &maps[0];
        let x = reads.x.iter().position(|label| label == "4K").unwrap();
        let y = reads.y.iter().position(|label| label == "18").unwrap();
        let wanted = |row: &&Row| {
            let p = &row.point;
            (AXES[0].wanted)(p) && (p.access_bytes, p.threads) == (4096, 18)
        };
        let row = report.rows.iter().find(wanted).unwrap();
        assert_eq!(reads.cells[y][x], Some(row.bandwidth_bytes_per_s));
        assert!(reads.cells.iter().flatten().all(Option::is_some));
    }

    #[test]
    fn the_drawing_says_that_it_is_emulated_and_names_the_axes() {
        let svg = draw(&emulated()).unwrap();
        for text in [
            "(emulated)",
            "GB/s",
            "threads over bytes of an access",
            "both, one memory",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn nothing_to_draw_is_an_error() {
        let mut report = emulated();
        report.rows.truncate(1);
        assert!(draw(&report).is_err());
    }

    #[test]
    fn numbers_have_three_digits() {
        for (bytes_per_s, text) in [(1.234e9, "1.23"), (12.34e9, "12.3"), (123.4e9, "123")] {
            assert_eq!(number(bytes_per_s), text);
        }
    }
}
