//! Draws what a probe measured: one heat map per pair of axes, all of a tier in one SVG.

use plotters::prelude::*;
use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use hotshelf_tier::probe::{
    Grouping, Operation, Pattern, PersistInstruction, Pinning, Placement, Point, ProbeReport, Row,
};

const FONT: &str = "sans-serif";
const PANEL_WIDTH: u32 = 560;
const CELL_HEIGHT: u32 = 22;
const HEAD_HEIGHT: u32 = 64;
const TITLE_HEIGHT: u32 = 26;
const LABEL_WIDTH: i32 = 116;
const AXIS_HEIGHT: u32 = 36;
const COLUMNS: usize = 2;
/// Cells get their number written in where so many or fewer stand side by side.
const NUMBERED_COLUMNS_MAX: usize = 12;

/// Bandwidths over two axes.
#[derive(Debug, Clone, PartialEq)]
struct HeatMap {
    title: String,
    x_axis: &'static str,
    y_axis: &'static str,
    x: Vec<String>,
    y: Vec<String>,
    /// By `y`, then `x`; in bytes per second, `None` where nothing was measured.
    cells: Vec<Vec<Option<f64>>>,
}

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

fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{}M", b >> 20),
        b if b >= 1 << 10 => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}

/// Which rows a map shows, and where.
struct Axes {
    title: &'static str,
    x_axis: &'static str,
    y_axis: &'static str,
    wanted: fn(&Point) -> bool,
    /// Sorted by these numbers, labelled by the texts.
    x: fn(&Point) -> (u64, String),
    y: fn(&Point) -> (u64, String),
}

/// The maps that have something to compare.
fn maps(report: &ProbeReport) -> Vec<HeatMap> {
    let maps = AXES.iter().map(|axes| map_of(axes, &report.rows));
    let drawn = |map: &HeatMap| map.x.len() > 2 || map.y.len() > 1;
    maps.filter(drawn).collect()
}

fn map_of(axes: &Axes, rows: &[Row]) -> HeatMap {
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| (axes.wanted)(&row.point))
        .collect();
    let along = |axis: fn(&Point) -> (u64, String)| {
        let mut marks: Vec<(u64, String)> = rows.iter().map(|row| axis(&row.point)).collect();
        marks.sort();
        marks.dedup();
        marks
    };
    let (x, y) = (along(axes.x), along(axes.y));
    let cell = |x: &(u64, String), y: &(u64, String)| {
        let here = rows
            .iter()
            .filter(|row| (axes.x)(&row.point) == *x && (axes.y)(&row.point) == *y);
        here.map(|row| total(row)).max_by(f64::total_cmp)
    };
    let cells = y
        .iter()
        .map(|y| x.iter().map(|x| cell(x, y)).collect())
        .collect();
    let labels = |marks: Vec<(u64, String)>| marks.into_iter().map(|(_, label)| label).collect();
    HeatMap {
        title: axes.title.to_owned(),
        x_axis: axes.x_axis,
        y_axis: axes.y_axis,
        x: labels(x),
        y: labels(y),
        cells,
    }
}

/// Both operations together where two run; DRAM alone where it is what is measured.
fn total(row: &Row) -> f64 {
    let beside = row
        .beside_bandwidth_bytes_per_s
        .filter(|_| !row.point.on_dram);
    row.bandwidth_bytes_per_s + beside.unwrap_or(0.0)
}

fn bytes(point: &Point) -> (u64, String) {
    (point.access_bytes, size(point.access_bytes))
}

fn threads(point: &Point) -> (u64, String) {
    (u64::from(point.threads), format!("{}", point.threads))
}

fn beside(point: &Point) -> (u64, String) {
    (
        u64::from(point.beside_threads),
        point.beside_threads.to_string(),
    )
}

fn depth(point: &Point) -> (u64, String) {
    let depth = point.queue_depth.unwrap_or(0);
    (u64::from(depth), depth.to_string())
}

fn range(point: &Point) -> (u64, String) {
    let range = point.range_bytes.unwrap_or(0);
    (range, size(range))
}

fn pinning(point: &Point) -> (u64, String) {
    match point.pinning {
        Pinning::None => (0, "none".to_owned()),
        Pinning::Node => (1, "node".to_owned()),
        Pinning::Core => (2, "core".to_owned()),
    }
}

fn placement(point: &Point) -> (u64, String) {
    let (order, label) = match point.placement {
        Placement::Near => (0, "near"),
        Placement::FarFirst => (1, "far, first touch"),
        Placement::Far => (2, "far"),
        Placement::BothNear => (3, "both near"),
        Placement::BothFar => (4, "both far"),
        Placement::BothShared => (5, "both, one memory"),
    };
    (order, label.to_owned())
}

fn persist(point: &Point) -> (u64, String) {
    let (order, label) = match point.persist {
        Some(PersistInstruction::NonTemporal) => (0, "non-temporal"),
        Some(PersistInstruction::Flush) => (1, "flush"),
        Some(PersistInstruction::None) => (2, "not durable"),
        None => (3, "-"),
    };
    let pattern = match point.pattern {
        Pattern::Sequential => (0, "seq."),
        Pattern::Random | Pattern::Dependent => (10, "rand."),
    };
    (pattern.0 + order, format!("{label}, {}", pattern.1))
}

/// A point that differs from the plain one of its size and threads in what is named only.
fn plain(point: &Point) -> bool {
    point.beside_threads == 0
        && point.placement == Placement::Near
        && point.range_bytes.is_none()
        && !point.on_dram
        && point.pinning != Pinning::Core
}

fn is_memory(point: &Point, operation: Operation, pattern: Pattern, grouping: Grouping) -> bool {
    let durable = point.persist == Point::new(operation, 0, 0).persist;
    plain(point)
        && durable
        && point.queue_depth.is_none()
        && (point.operation, point.pattern, point.grouping) == (operation, pattern, grouping)
}

fn is_file_read(point: &Point, pattern: Pattern) -> bool {
    let one_ring = point.queue_depth.is_some() && point.threads == 1;
    plain(point) && one_ring && (point.operation, point.pattern) == (Operation::Read, pattern)
}

const AXES: &[Axes] = &[
    Axes {
        title: "Sequential reads, ranges of their own",
        x_axis: "bytes of an access",
        y_axis: "threads",
        wanted: |p| {
            is_memory(
                p,
                Operation::Read,
                Pattern::Sequential,
                Grouping::Individual,
            )
        },
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Sequential reads, taking turns",
        x_axis: "bytes of an access",
        y_axis: "threads",
        wanted: |p| is_memory(p, Operation::Read, Pattern::Sequential, Grouping::Grouped),
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Sequential writes, ranges of their own",
        x_axis: "bytes of an access",
        y_axis: "threads",
        wanted: |p| {
            is_memory(
                p,
                Operation::Write,
                Pattern::Sequential,
                Grouping::Individual,
            )
        },
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Sequential writes, taking turns",
        x_axis: "bytes of an access",
        y_axis: "threads",
        wanted: |p| is_memory(p, Operation::Write, Pattern::Sequential, Grouping::Grouped),
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Random reads",
        x_axis: "bytes of an access",
        y_axis: "threads",
        wanted: |p| is_memory(p, Operation::Read, Pattern::Random, Grouping::Individual),
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Random writes",
        x_axis: "bytes of an access",
        y_axis: "threads",
        wanted: |p| is_memory(p, Operation::Write, Pattern::Random, Grouping::Individual),
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Random reads by range, all cores (64 B also with one thread)",
        x_axis: "bytes of the range",
        y_axis: "bytes of an access",
        wanted: |p| p.operation == Operation::Read && p.range_bytes.is_some(),
        x: range,
        y: |p| {
            (
                p.access_bytes * 1000 + u64::from(p.threads),
                format!("{} ({} thr.)", size(p.access_bytes), p.threads),
            )
        },
    },
    Axes {
        title: "Random writes by range, all cores",
        x_axis: "bytes of the range",
        y_axis: "bytes of an access",
        wanted: |p| p.operation == Operation::Write && p.range_bytes.is_some(),
        x: range,
        y: bytes,
    },
    Axes {
        title: "Persist instruction",
        x_axis: "bytes of an access",
        y_axis: "instruction",
        wanted: |p| {
            let size = [64, 256, 4096].contains(&p.access_bytes);
            let writes = p.operation == Operation::Write && p.queue_depth.is_none();
            plain(p) && size && writes && p.grouping == Grouping::Individual
        },
        x: bytes,
        y: persist,
    },
    Axes {
        title: "Pinning, reads of 4 KiB",
        x_axis: "threads",
        y_axis: "pinned to",
        wanted: |p| p.operation == Operation::Read && is_pinned_axis(p),
        x: threads,
        y: pinning,
    },
    Axes {
        title: "Pinning, writes of 4 KiB",
        x_axis: "threads",
        y_axis: "pinned to",
        wanted: |p| p.operation == Operation::Write && is_pinned_axis(p),
        x: threads,
        y: pinning,
    },
    Axes {
        title: "Sockets, reads of 4 KiB",
        x_axis: "threads",
        y_axis: "memory",
        wanted: |p| p.operation == Operation::Read && is_placement_axis(p),
        x: threads,
        y: placement,
    },
    Axes {
        title: "Sockets, writes of 4 KiB",
        x_axis: "threads",
        y_axis: "memory",
        wanted: |p| p.operation == Operation::Write && is_placement_axis(p),
        x: threads,
        y: placement,
    },
    Axes {
        title: "Readers beside writers, both together",
        x_axis: "writers",
        y_axis: "readers",
        wanted: |p| p.beside_threads > 0 && !p.on_dram && p.queue_depth.is_none(),
        x: beside,
        y: threads,
    },
    Axes {
        title: "DRAM while this tier is read",
        x_axis: "readers of this tier",
        y_axis: "readers of DRAM",
        wanted: |p| p.on_dram,
        x: beside,
        y: threads,
    },
    Axes {
        title: "Sequential reads of a file",
        x_axis: "in flight",
        y_axis: "bytes of a block",
        wanted: |p| is_file_read(p, Pattern::Sequential),
        x: depth,
        y: bytes,
    },
    Axes {
        title: "Random reads of a file",
        x_axis: "in flight",
        y_axis: "bytes of a block",
        wanted: |p| is_file_read(p, Pattern::Random),
        x: depth,
        y: bytes,
    },
    Axes {
        title: "Synced writes of files",
        x_axis: "bytes of a block",
        y_axis: "writers",
        wanted: |p| {
            // Memory that is flushed has smaller pieces, too.
            let synced = p.persist == Some(PersistInstruction::Flush);
            plain(p) && synced && p.access_bytes >= 64 << 10
        },
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Reads of a file beside writers, both together",
        x_axis: "writers",
        y_axis: "in flight",
        wanted: |p| p.beside_threads > 0 && !p.on_dram && p.queue_depth.is_some(),
        x: beside,
        y: depth,
    },
];

fn is_pinned_axis(point: &Point) -> bool {
    let durable = point.persist == Point::new(point.operation, 0, 0).persist;
    let alone = point.beside_threads == 0 && !point.on_dram && point.queue_depth.is_none();
    alone
        && durable
        && point.access_bytes == 4096
        && point.placement == Placement::Near
        && (point.pattern, point.grouping) == (Pattern::Sequential, Grouping::Individual)
}

fn is_placement_axis(point: &Point) -> bool {
    is_pinned_axis(&Point {
        placement: Placement::Near,
        ..*point
    }) && point.pinning == Pinning::Node
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotshelf_tier::probe::{ProbeOptions, probe};
    use hotshelf_tier::topology::Topology;
    use std::ops::ControlFlow;

    fn emulated() -> ProbeReport {
        let options = ProbeOptions {
            quick: true,
            ..ProbeOptions::default()
        };
        let target = "emulated:optane100-128".parse().unwrap();
        let go_on = &mut |_: hotshelf_tier::probe::Progress<'_>| ControlFlow::Continue(());
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
