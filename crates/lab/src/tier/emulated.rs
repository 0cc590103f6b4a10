//! The emulated devices: table 1 of the selective caching papers beside its model, what threads really wait for, and
//! what the profile derives from each grid that was measured on a real device.
//!
//! `hotshelf-lab emulated`

use hotshelf_tier::TierError;
use hotshelf_tier::emulated::{
    Device, DeviceModel, EmulatedTier, Reach, Request, recorded_rows, simulate,
};
use hotshelf_tier::probe::{Operation, Pattern, Pinning, Point};
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
    println!("emulated, from `{}`", table.source);
    println!(
        "{:10} {:56} {:>8} {:>9} {:>6}",
        "figure", "what", "paper", "emulated", "ratio"
    );
    for line in table_1()? {
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
