//! The figures of an emulated device, and the devices whose figures are known.

use std::collections::BTreeMap;

use super::grid::Grid;
use super::recorded::recorded_rows;
use crate::axes::{Operation, Pattern, PersistInstruction, Row};
use crate::error::TierError;

const GB: f64 = 1e9;
const GRAIN_BYTES: u64 = 256;
/// Requests one core keeps in flight. With 425 ns a line, 24 give 3.6 GB/s: enough for the 1.6 to 2.7 GiB/s that one
/// thread was measured to read at random, so that the recorded grid binds one thread and not this.
const OUTSTANDING_PER_THREAD: usize = 24;

/// Latency and bandwidth by pattern, for one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectionModel {
    /// Idle latency of an access that continues where the last one ended.
    pub sequential_latency_ns: u64,
    /// Idle latency of an access elsewhere.
    pub random_latency_ns: u64,
    /// Bandwidth of sequential access.
    pub sequential: Grid,
    /// Bandwidth of random access.
    pub random: Grid,
}

/// What access from another socket keeps of the near bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FarModel {
    /// Reads, the first time.
    pub first_read: f64,
    /// Reads of threads that the scheduler moves from socket to socket: hardly more than first touches, however often
    /// they repeat.
    pub unpinned_read: f64,
    /// Reads, again.
    pub read: f64,
    /// Reads, again, while the other socket reads the same way.
    pub both_read: f64,
    /// Writes.
    pub write: f64,
    /// Writes of both sockets to the same memory, together.
    pub shared_write: f64,
}

impl FarModel {
    /// The same part of everything.
    const fn constant(part: f64) -> Self {
        Self {
            first_read: part,
            unpinned_read: part,
            read: part,
            both_read: part,
            write: part,
            shared_write: part,
        }
    }
}

/// An emulated device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceModel {
    /// Its name after `emulated:`.
    pub name: String,
    /// Where the figures are from.
    pub source: &'static str,
    /// Reading.
    pub read: DirectionModel,
    /// Writing.
    pub write: DirectionModel,
    /// Requests one thread can have in flight.
    pub outstanding_per_thread: usize,
    /// What the device moves at once: an access costs all the grains it touches.
    pub grain_bytes: u64,
    /// Access from another socket.
    pub far: FarModel,
    /// What reads and writes that divide the device's time equally keep of the bandwidth.
    pub mixed_efficiency: f64,
}

/// The emulated devices.
pub const DEVICE_NAMES: &[&str] = &[
    "optane",
    "nand",
    "cxl",
    "optane100-128",
    "optane100-256",
    "optane100-512",
    "optane200-256",
    "optane-1-dimm",
    "optane-4-dimms",
];

impl DeviceModel {
    /// A device of [`DEVICE_NAMES`].
    ///
    /// # Errors
    /// [`TierError::NoSuchDeviceModel`].
    pub fn named(name: &str) -> Result<Self, TierError> {
        let model = match name {
            "optane" => Some(optane()),
            "nand" => Some(nand()),
            "cxl" => Some(cxl()),
            other if DEVICE_NAMES.contains(&other) => recorded(other),
            _ => None,
        };
        model.ok_or_else(|| TierError::NoSuchDeviceModel {
            name: name.to_owned(),
        })
    }

    /// The figures of one direction.
    pub fn direction(&self, operation: Operation) -> &DirectionModel {
        match operation {
            Operation::Read => &self.read,
            Operation::Write => &self.write,
        }
    }
}

impl DirectionModel {
    /// The idle latency of an access.
    pub fn latency_ns(&self, pattern: Pattern) -> u64 {
        match pattern {
            Pattern::Sequential => self.sequential_latency_ns,
            Pattern::Random | Pattern::Dependent => self.random_latency_ns,
        }
    }

    /// The bandwidth of some threads together.
    pub fn bandwidth(&self, pattern: Pattern, access_bytes: u64, threads: u32) -> f64 {
        self.grid(pattern).at(access_bytes, threads)
    }

    /// The part of the device's time that some threads can make use of: all of it from the count on that reaches most.
    pub(super) fn need(&self, pattern: Pattern, access_bytes: u64, threads: u32) -> f64 {
        self.grid(pattern).part_of_peak(access_bytes, threads)
    }

    fn grid(&self, pattern: Pattern) -> &Grid {
        match pattern {
            Pattern::Sequential => &self.sequential,
            Pattern::Random | Pattern::Dependent => &self.random,
        }
    }

    fn constant(latency_ns: (u64, u64), bytes_per_s: f64) -> Self {
        Self {
            sequential_latency_ns: latency_ns.0,
            random_latency_ns: latency_ns.1,
            sequential: Grid::constant(bytes_per_s),
            random: Grid::constant(bytes_per_s),
        }
    }
}

/// Reads 33 of 40 GB/s from the second touch on, 8 at first, 9 of 34 unpinned, 50 of 80 both ways; writes 7 of 12.5,
/// and 8 from both sockets to one (Daase et al. 2021, sections 3.3 to 3.5, 4.4 and 4.5).
const OPTANE_FAR: FarModel = FarModel {
    first_read: 8.0 / 40.0,
    unpinned_read: 9.0 / 34.0,
    read: 33.0 / 40.0,
    both_read: 50.0 / 80.0,
    write: 7.0 / 12.5,
    shared_write: 8.0 / 12.5,
};

/// 45 % of the read and 40 % of the write bandwidth remain when both could use all of the device (Daase et al. 2021,
/// figure 11).
const OPTANE_MIXED: f64 = 0.85;

fn optane() -> DeviceModel {
    DeviceModel {
        name: "optane".to_owned(),
        source: "table 1 of Jibril et al. (2022), far and mixed factors of Daase et al. (2021)",
        read: DirectionModel::constant((175, 325), 32.0 * GB),
        // Writes end in the memory controller's queue; Jibril et al. give no latency for them. 90 ns is the DRAM's.
        write: DirectionModel::constant((90, 90), 13.0 * GB),
        outstanding_per_thread: OUTSTANDING_PER_THREAD,
        grain_bytes: GRAIN_BYTES,
        far: OPTANE_FAR,
        mixed_efficiency: OPTANE_MIXED,
    }
}

fn nand() -> DeviceModel {
    DeviceModel {
        name: "nand".to_owned(),
        source: "table 1 of `Selective caching` (2022)",
        read: DirectionModel::constant((16_000, 200_000), 3.0 * GB),
        write: DirectionModel::constant((16_000, 16_000), 0.6 * GB),
        outstanding_per_thread: 64,
        grain_bytes: 4096,
        far: FarModel::constant(1.0),
        mixed_efficiency: 1.0,
    }
}

fn cxl() -> DeviceModel {
    DeviceModel {
        name: "cxl".to_owned(),
        source: "makers' 36 GB/s for an x8 expander; 250 ns, the middle of 140 to 410 ns of Liu et al. (ASPLOS 2025)",
        read: DirectionModel::constant((250, 250), 36.0 * GB),
        write: DirectionModel::constant((250, 250), 36.0 * GB),
        outstanding_per_thread: OUTSTANDING_PER_THREAD,
        grain_bytes: 64,
        far: FarModel::constant(0.5),
        mixed_efficiency: 1.0,
    }
}

/// A device of the recorded grids.
fn recorded(name: &str) -> Option<DeviceModel> {
    let rows = recorded_rows(name);
    let grid = |operation, pattern, persist: Option<PersistInstruction>| {
        let wanted = |row: &&Row| {
            let point = &row.point;
            let alone = point.beside_threads == 0;
            alone
                && (point.operation, point.pattern, point.persist) == (operation, pattern, persist)
        };
        grid_of(rows.iter().filter(wanted))
    };
    let non_temporal = Some(PersistInstruction::NonTemporal);
    let line = rows
        .iter()
        .find(|row| row.point.pattern == Pattern::Dependent && row.point.access_bytes == 64);
    let random_latency_ns = line?.latency_ns? as u64;
    let sequential = grid(Operation::Read, Pattern::Sequential, None)?;
    Some(DeviceModel {
        name: name.to_owned(),
        source: "PerMA-Bench results (MIT licence, PVLDB 2022), branch eval",
        read: DirectionModel {
            // Consecutive lines of a grain come from the device's buffer; table 1 has 175 to 325 for the two.
            sequential_latency_ns: random_latency_ns * 175 / 325,
            random_latency_ns,
            random: with_pages(grid(Operation::Read, Pattern::Random, None)?, &sequential),
            sequential,
        },
        write: DirectionModel {
            sequential_latency_ns: 90,
            random_latency_ns: 90,
            sequential: with_large_writes(grid(
                Operation::Write,
                Pattern::Sequential,
                non_temporal,
            )?),
            random: grid(Operation::Write, Pattern::Random, non_temporal)?,
        },
        outstanding_per_thread: OUTSTANDING_PER_THREAD,
        grain_bytes: GRAIN_BYTES,
        far: OPTANE_FAR,
        mixed_efficiency: OPTANE_MIXED,
    })
}

/// The recorded random reads end at 1 KiB, where the prefetcher makes a dip; from a page on they reach two thirds of
/// what is read sequentially, and more threads never harm them (Daase et al. 2021, section 5.2).
fn with_pages(random: Grid, sequential: &Grid) -> Grid {
    const PAGE_BYTES: u64 = 4096;
    let mut best: f64 = 0.0;
    let mut page = |threads: u32| {
        best = best.max(sequential.at(PAGE_BYTES, threads));
        best * 2.0 / 3.0
    };
    random.with_row(PAGE_BYTES, &mut page)
}

/// The recorded writes end at 1 KiB. Up to a page they stay as recorded; from 64 KiB on they follow Daase
/// et al. 2021, figure 8, whose best is 12.5 GB/s: more than six threads are slower there. One thread is taken for half
/// of two.
fn with_large_writes(sequential: Grid) -> Grid {
    const PAGE_BYTES: u64 = 4096;
    const LARGE_BYTES: u64 = 65_536;
    const PUBLISHED_PEAK: f64 = 12.5;
    let (threads, published) = ([1, 2, 4, 6, 8, 32], vec![4.0, 8.0, 12.0, 12.0, 8.0, 5.5]);
    let Some(published) = Grid::new(&threads, &[(LARGE_BYTES, published)]) else {
        return sequential;
    };
    let sequential = sequential.with_threads(6);
    let recorded = sequential.clone();
    let part = recorded.peak() / PUBLISHED_PEAK;
    sequential
        .with_row(PAGE_BYTES, &mut |threads| recorded.at(PAGE_BYTES, threads))
        .with_row(LARGE_BYTES, &mut |threads| {
            part * published.at(LARGE_BYTES, threads)
        })
}

fn grid_of<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<Grid> {
    let mut by_size: BTreeMap<u64, BTreeMap<u32, f64>> = BTreeMap::new();
    for row in rows {
        let of_size = by_size.entry(row.point.access_bytes).or_default();
        of_size.insert(row.point.threads, row.bandwidth_bytes_per_s);
    }
    let threads: Vec<u32> = by_size.values().next()?.keys().copied().collect();
    let rows: Vec<(u64, Vec<f64>)> = by_size
        .into_iter()
        .map(|(access_bytes, values)| (access_bytes, values.into_values().collect()))
        .collect();
    Grid::new(&threads, &rows)
}
