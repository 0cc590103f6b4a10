//! The emulated devices beside the papers' figures: what the papers state in words, and what simulated threads get.
//!
//! `cargo run --release -p hotshelf-tier --example emulated_figures`

#![forbid(unsafe_code)]

use hotshelf_tier::TierError;
use hotshelf_tier::emulated::{DeviceModel, simulate};
use hotshelf_tier::probe::{Operation, Pattern, Placement, Point};

/// A figure, what it states, its unit, and the same of the model.
struct Line {
    figure: &'static str,
    what: &'static str,
    paper: f64,
    emulated: f64,
}

fn main() -> Result<(), TierError> {
    let table = DeviceModel::named("optane")?;
    let grid = DeviceModel::named("optane100-128")?;
    let mut lines = table_lines(&table);
    lines.extend(grid_lines(&grid));
    println!(
        "emulated; tables from `{}`, figures from `{}`",
        table.source, grid.source
    );
    println!(
        "{:10} {:56} {:>8} {:>9} {:>6}",
        "figure", "what", "paper", "emulated", "ratio"
    );
    for line in lines {
        let ratio = line.emulated / line.paper;
        println!(
            "{:10} {:56} {:8.1} {:9.1} {ratio:6.2}",
            line.figure, line.what, line.paper, line.emulated
        );
    }
    Ok(())
}

fn gb(model: &DeviceModel, point: Point) -> f64 {
    simulate(model, &point).bandwidth_bytes_per_s / 1e9
}

fn read(access_bytes: u64, threads: u32) -> Point {
    Point::new(Operation::Read, access_bytes, threads)
}

fn write(access_bytes: u64, threads: u32) -> Point {
    Point::new(Operation::Write, access_bytes, threads)
}

fn random(point: Point) -> Point {
    Point {
        pattern: Pattern::Random,
        ..point
    }
}

fn table_lines(model: &DeviceModel) -> Vec<Line> {
    let dependent = Point {
        pattern: Pattern::Dependent,
        ..read(64, 1)
    };
    let line = |what, paper, emulated| Line {
        figure: "table 1",
        what,
        paper,
        emulated,
    };
    vec![
        line(
            "idle random read, ns",
            325.0,
            simulate(model, &dependent).latency_ns.unwrap_or(0.0),
        ),
        line("read bandwidth, GB/s", 32.0, gb(model, read(4096, 18))),
        line("write bandwidth, GB/s", 13.0, gb(model, write(4096, 6))),
    ]
}

fn grid_lines(model: &DeviceModel) -> Vec<Line> {
    let placed = |point: Point, placement| Point { placement, ..point };
    let mixed = Point {
        beside_threads: 4,
        ..read(4096, 30)
    };
    let mixed = simulate(model, &mixed);
    let writes_beside = mixed.beside_bandwidth_bytes_per_s.unwrap_or(0.0) / 1e9;
    let line = |figure, what, paper, emulated| Line {
        figure,
        what,
        paper,
        emulated,
    };
    vec![
        line(
            "figure 3",
            "18 threads read 4 KiB, GB/s",
            40.0,
            gb(model, read(4096, 18)),
        ),
        line(
            "figure 3",
            "8 threads read 4 KiB, GB/s",
            34.0,
            gb(model, read(4096, 8)),
        ),
        line(
            "figure 3",
            "36 threads read 64 B, GB/s",
            37.0,
            gb(model, read(64, 36)),
        ),
        line(
            "figure 5",
            "far reads at first touch, GB/s",
            8.0,
            gb(model, placed(read(2 << 20, 18), Placement::FarFirst)),
        ),
        line(
            "figure 5",
            "far reads again, GB/s",
            33.0,
            gb(model, placed(read(2 << 20, 18), Placement::Far)),
        ),
        line(
            "figure 7",
            "4 threads write 4 KiB, GB/s",
            12.5,
            gb(model, write(4096, 4)),
        ),
        line(
            "figure 7",
            "36 threads write 64 B, GB/s",
            9.6,
            gb(model, write(64, 36)),
        ),
        line(
            "figure 7",
            "36 threads write 64 KiB, GB/s",
            5.5,
            gb(model, write(65_536, 36)),
        ),
        line(
            "figure 10",
            "8 threads write far memory, GB/s",
            7.0,
            gb(model, placed(write(4096, 8), Placement::Far)),
        ),
        line(
            "figure 11",
            "30 readers beside 4 writers, GB/s",
            14.0,
            mixed.bandwidth_bytes_per_s / 1e9,
        ),
        line(
            "figure 11",
            "4 writers beside 30 readers, GB/s",
            5.2,
            writes_beside,
        ),
        line(
            "figure 12",
            "36 threads read 256 B at random, GB/s",
            20.0,
            gb(model, random(read(256, 36))),
        ),
        line(
            "figure 12",
            "36 threads read 4 KiB at random, GB/s",
            26.7,
            gb(model, random(read(4096, 36))),
        ),
        line(
            "figure 13",
            "6 threads write 4 KiB at random, GB/s",
            8.4,
            gb(model, random(write(4096, 6))),
        ),
    ]
}
