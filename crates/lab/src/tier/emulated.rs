//! The emulated devices beside the papers' figures: what the papers state in words, and what simulated threads get; and
//! what the profile derives from each grid that was measured on a real device.
//!
//! `hotshelf-lab emulated`

use hotshelf_tier::TierError;
use hotshelf_tier::emulated::{
    Device, DeviceModel, EmulatedTier, Reach, Request, recorded_rows, simulate,
};
use hotshelf_tier::probe::{Operation, Pattern, Pinning, Placement, Point};
use hotshelf_tier::profile::{DeriveInput, derive};

use super::insights::{self, random_bytes_min};

/// Devices with published measurements.
const RECORDED: [&str; 8] = [
    "optane100-128",
    "optane100-256",
    "optane100-512",
    "optane200-256",
    "optane-4-dimms",
    "optane-1-dimm",
    "dram-beside-optane100",
    "dram-beside-optane200",
];
/// Their hosts have more than 16 and less than 32 cores a socket.
pub(super) const RECORDED_CORES: u32 = 18;
/// The emulated memory whose waiting is measured.
const DELIVERED_BYTES: usize = 64 << 20;

/// A figure, what it states, its unit, and the same of the model.
pub struct Line {
    figure: &'static str,
    /// What is stated, and in which unit.
    pub what: &'static str,
    /// As the paper states it.
    pub paper: f64,
    /// As the model has it.
    pub emulated: f64,
}

impl Line {
    /// The model's over the paper's.
    pub fn ratio(&self) -> f64 {
        self.emulated / self.paper
    }
}

/// Prints the comparison.
///
/// # Errors
/// If a model is missing.
pub fn run() -> Result<(), TierError> {
    let table = DeviceModel::named("optane")?;
    let grid = DeviceModel::named("optane100-128")?;
    let mut lines = table_1()?;
    lines.extend(reading_lines(&grid));
    lines.extend(writing_lines(&grid));
    lines.extend(far_writing_lines(&grid));
    lines.extend(other_lines(&grid));
    println!(
        "emulated; table 1 from `{}`, figures from `{}`",
        table.source, grid.source
    );
    println!(
        "{:10} {:56} {:>8} {:>9} {:>6}",
        "figure", "what", "paper", "emulated", "ratio"
    );
    for line in lines {
        println!(
            "{:10} {:56} {:8.1} {:9.1} {:6.2}",
            line.figure,
            line.what,
            line.paper,
            line.emulated,
            line.ratio()
        );
    }
    advice();
    delivered(&table)?;
    delivered(&grid)
}

/// Table 1 of the selective caching papers, as far as it is about persistent memory.
///
/// # Errors
/// If the model is missing.
pub fn table_1() -> Result<Vec<Line>, TierError> {
    Ok(table_lines(&DeviceModel::named("optane")?))
}

/// What threads really wait for on this machine, beside what the model says.
fn delivered(model: &DeviceModel) -> Result<(), TierError> {
    let tier = EmulatedTier::new(model.clone(), DELIVERED_BYTES)?;
    println!();
    println!(
        "{:46} {:>12} {:>12} {:>8}",
        format!("delivered, {}", model.name),
        "model",
        "delivered",
        "error"
    );
    for line in tier.self_test() {
        println!(
            "{:46} {:12.4e} {:12.4e} {:6.1} %",
            line.what,
            line.expected,
            line.delivered,
            line.error() * 100.0
        );
    }
    Ok(())
}

/// What the profile derives from each recorded grid.
fn advice() {
    println!();
    println!(
        "{:24} {:>7} {:>6} {:>7} {:>6} {:>9} {:>10}",
        "measured", "readers", "bytes", "writers", "bytes", "serialise", "random min"
    );
    let mut held = Vec::new();
    for device in RECORDED {
        let rows = recorded_rows(device);
        let profile = derive(&DeriveInput {
            tier: device,
            rows: &rows,
            physical_cores: RECORDED_CORES,
        });
        println!(
            "{device:24} {:7} {:6} {:7} {:6} {:>9} {:10}",
            profile.read_threads.value,
            profile.read_grain_bytes.value,
            profile.write_threads.value,
            profile.write_grain_bytes.value,
            profile.serialise.value,
            random_bytes_min(&rows).map_or("-".to_owned(), |bytes| bytes.to_string())
        );
        held.push((device, insights::of(&rows, &profile, RECORDED_CORES)));
    }
    println!();
    for (device, insights) in held {
        let holding = insights.iter().filter(|one| one.holds == Some(true));
        let holding: Vec<String> = holding.map(|one| one.number.to_string()).collect();
        println!("{device:24} insights that hold: {}", holding.join(", "));
    }
}

fn line(figure: &'static str, what: &'static str, paper: f64, emulated: f64) -> Line {
    Line {
        figure,
        what,
        paper,
        emulated,
    }
}

fn gb(model: &DeviceModel, point: Point) -> f64 {
    simulate(model, &point).bandwidth_bytes_per_s / 1e9
}

/// Threads of one socket, pinned to it, as in most of the paper's runs.
fn near(operation: Operation, access_bytes: u64, threads: u32) -> Point {
    Point {
        pinning: Pinning::Node,
        ..Point::new(operation, access_bytes, threads)
    }
}

fn read(access_bytes: u64, threads: u32) -> Point {
    near(Operation::Read, access_bytes, threads)
}

fn write(access_bytes: u64, threads: u32) -> Point {
    near(Operation::Write, access_bytes, threads)
}

fn random(point: Point) -> Point {
    Point {
        pattern: Pattern::Random,
        ..point
    }
}

fn placed(point: Point, placement: Placement) -> Point {
    Point { placement, ..point }
}

fn pinned(point: Point, pinning: Pinning) -> Point {
    Point { pinning, ..point }
}

fn table_lines(model: &DeviceModel) -> Vec<Line> {
    let dependent = Point {
        pattern: Pattern::Dependent,
        ..read(64, 1)
    };
    let latency = simulate(model, &dependent).latency_ns.unwrap_or(0.0);
    // One line after the other, each asked for when the one before has come.
    let mut device = Device::new(model.clone());
    let mut now_ns = 0;
    for at in 0..1000 {
        now_ns = device.submit(
            now_ns,
            &Request {
                operation: Operation::Read,
                pattern: Pattern::Sequential,
                offset: at * 64,
                len_bytes: 64,
                thread: 0,
                reach: Reach::Near,
            },
        );
    }
    let table = |what, paper, emulated| line("table 1", what, paper, emulated);
    vec![
        table("idle sequential read, ns", 175.0, now_ns as f64 / 1000.0),
        table("idle random read, ns", 325.0, latency),
        table("read bandwidth, GB/s", 32.0, gb(model, read(4096, 18))),
        table("write bandwidth, GB/s", 13.0, gb(model, write(4096, 6))),
    ]
}

fn reading_lines(model: &DeviceModel) -> Vec<Line> {
    let of = |figure, what, paper, point| line(figure, what, paper, gb(model, point));
    let far = |placement, threads| placed(read(4096, threads), placement);
    vec![
        of(
            "figure 3",
            "18 threads read 4 KiB, GB/s",
            40.0,
            read(4096, 18),
        ),
        of(
            "figure 3",
            "8 threads read 4 KiB, GB/s",
            34.0,
            read(4096, 8),
        ),
        of("figure 3", "36 threads read 64 B, GB/s", 37.0, read(64, 36)),
        of(
            "figure 4",
            "18 threads pinned to cores, GB/s",
            41.0,
            pinned(read(4096, 18), Pinning::Core),
        ),
        of(
            "figure 4",
            "8 threads not pinned, GB/s",
            9.0,
            pinned(read(4096, 8), Pinning::None),
        ),
        of(
            "figure 5",
            "far reads at first touch, GB/s",
            8.0,
            placed(read(4096, 18), Placement::FarFirst),
        ),
        of(
            "figure 5",
            "far reads again, GB/s",
            33.0,
            placed(read(4096, 18), Placement::Far),
        ),
        of(
            "figure 6",
            "two sockets, each its own memory, GB/s",
            80.0,
            far(Placement::BothNear, 36),
        ),
        of(
            "figure 6",
            "two sockets, each the other's memory, GB/s",
            50.0,
            far(Placement::BothFar, 36),
        ),
    ]
}

fn writing_lines(model: &DeviceModel) -> Vec<Line> {
    let of = |figure, what, paper, point| line(figure, what, paper, gb(model, point));
    vec![
        of(
            "figure 7",
            "4 threads write 4 KiB, GB/s",
            12.5,
            write(4096, 4),
        ),
        of(
            "figure 7",
            "36 threads write 64 B, GB/s",
            9.6,
            write(64, 36),
        ),
        of(
            "figure 7",
            "36 threads write 256 B, GB/s",
            10.0,
            write(256, 36),
        ),
        of(
            "figure 8",
            "6 threads write 64 KiB, GB/s",
            12.0,
            write(65_536, 6),
        ),
        of(
            "figure 8",
            "2 threads write 64 KiB, GB/s",
            8.0,
            write(65_536, 2),
        ),
        of(
            "figure 8",
            "36 threads write 64 KiB, GB/s",
            5.5,
            write(65_536, 36),
        ),
        of(
            "figure 9",
            "4 threads pinned to cores, GB/s",
            13.0,
            pinned(write(4096, 4), Pinning::Core),
        ),
        of(
            "figure 9",
            "8 threads not pinned, GB/s",
            7.0,
            pinned(write(4096, 8), Pinning::None),
        ),
    ]
}

fn far_writing_lines(model: &DeviceModel) -> Vec<Line> {
    let of = |what, paper, point| line("figure 10", what, paper, gb(model, point));
    let far = |placement, threads| placed(write(4096, threads), placement);
    vec![
        of(
            "8 threads write far memory, GB/s",
            7.0,
            far(Placement::Far, 8),
        ),
        of(
            "two sockets, each its own memory, GB/s",
            25.0,
            far(Placement::BothNear, 8),
        ),
        of(
            "two sockets, each the other's memory, GB/s",
            13.0,
            far(Placement::BothFar, 16),
        ),
        of(
            "two sockets, one memory, GB/s",
            8.0,
            far(Placement::BothShared, 8),
        ),
    ]
}

fn other_lines(model: &DeviceModel) -> Vec<Line> {
    let mixed = |readers, writers| {
        let point = Point {
            beside_threads: writers,
            ..read(4096, readers)
        };
        let mixed = simulate(model, &point);
        let writes = mixed.beside_bandwidth_bytes_per_s.unwrap_or(0.0);
        (mixed.bandwidth_bytes_per_s / 1e9, writes / 1e9)
    };
    let of = |figure, what, paper, point| line(figure, what, paper, gb(model, point));
    vec![
        line(
            "figure 11",
            "30 readers beside 4 writers, GB/s",
            14.0,
            mixed(30, 4).0,
        ),
        line(
            "figure 11",
            "4 writers beside 30 readers, GB/s",
            5.2,
            mixed(30, 4).1,
        ),
        line(
            "figure 11",
            "30 readers beside 1 writer, GB/s",
            26.0,
            mixed(30, 1).0,
        ),
        line(
            "figure 11",
            "4 writers beside 1 reader, GB/s",
            12.0,
            mixed(1, 4).1,
        ),
        of(
            "figure 12",
            "36 threads read 256 B at random, GB/s",
            20.0,
            random(read(256, 36)),
        ),
        of(
            "figure 12",
            "36 threads read 4 KiB at random, GB/s",
            26.7,
            random(read(4096, 36)),
        ),
        of(
            "figure 13",
            "6 threads write 4 KiB at random, GB/s",
            8.4,
            random(write(4096, 6)),
        ),
    ]
}
