//! What the machine profile says, as settings of this engine.
//!
//! `hotshelf probe --db` leaves a profile in the database's folder. Opening the database reads it, checks that it
//! belongs to this machine and this device, and makes an [`EngineProfile`] of it: one value for everything the engine
//! can do one way or another, each with where it comes from. Without a profile, or with a damaged or foreign one,
//! conservative defaults apply and say so.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hotshelf_store::ShelfUse;
use hotshelf_tier::io::PAGE_BYTES;
use hotshelf_tier::probe::Pinning;
use hotshelf_tier::profile::{MachineProfile, PROFILE_FILE, ProfileOrigin, TierProfile, Value};
use hotshelf_tier::topology::Topology;

/// Names of the values, with what each means.
pub(crate) const NAMES: &[(&str, &str)] = &[
    ("io_threads", "rings that read files (profile)"),
    ("io_depth", "reads in flight per ring (profile)"),
    ("io_bytes", "largest read given to the device (profile)"),
    (
        "writers",
        "importers that write to the device at once (profile)",
    ),
    (
        "write_bytes",
        "what importers write at once, at least (profile)",
    ),
    (
        "write_bandwidth",
        "bytes per second with which spilled rows are written (profile)",
    ),
    (
        "serialise",
        "whether importers let queries read first (profile)",
    ),
    ("pinning", "where workers run (profile)"),
    ("placement", "which sockets' processors work (profile)"),
];

/// Until something was measured or read: a plain NVMe drive.
const STORAGE_BANDWIDTH: u64 = 1_600_000_000;
const STORAGE_ACCESS_NS: u64 = 100_000;
/// A scan reads ahead what the device delivers while a worker, or an operator above it, is busy with a row group or
/// two, and while this many reads that wait for each other are answered.
const LOOK_AHEAD_NS: f64 = 20e6;
const LOOK_AHEAD_ACCESSES: f64 = 4.0;
/// Two row groups of many columns.
const LOOK_AHEAD_BYTES_MIN: u64 = 8 << 20;
/// Smaller reads cost processor time per byte, which a probe does not count.
const IO_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(16 << 20);
const IO_DEPTH: std::ops::RangeInclusive<u32> = 16..=1024;
const IO_THREADS_MAX: u32 = 16;
const WRITE_BYTES: std::ops::RangeInclusive<u64> = (16 << 10)..=(16 << 20);

/// A value of the engine and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting<T> {
    pub value: T,
    /// `measured (file:/db)` or `default`.
    pub source: String,
    /// The measurement, or why there is none.
    pub reason: String,
}

/// Where workers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// On all.
    All,
    /// On the first one only, whose memory they then use.
    First,
}

/// The settings that follow from the profile.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EngineProfile {
    /// Whose values are in force, in a sentence.
    pub origin: String,
    /// What is wrong with the profile that is there, if anything is.
    pub notice: Option<String>,
    pub io_threads: Setting<usize>,
    pub io_depth: Setting<usize>,
    pub io_bytes: Setting<usize>,
    pub writers: Setting<usize>,
    pub write_bytes: Setting<usize>,
    /// Of durable writes; unknown: that of reads counts.
    pub write_bandwidth: Setting<Option<u64>>,
    pub serialise: Setting<bool>,
    pub pinning: Setting<Pinning>,
    pub sockets: Setting<Sockets>,
    /// Bytes per second that the device gives.
    pub storage_bandwidth: Setting<u64>,
    /// What a read takes that nothing else hides.
    pub storage_access_ns: Setting<u64>,
    /// Bytes per second that memory gives, if that was measured.
    pub memory_bandwidth: Option<u64>,
    /// What an access to memory takes that nothing else hides, if that was measured.
    pub memory_access_ns: Option<u64>,
    /// How shelves want to be used, by the names of the tiers that were measured.
    pub shelves: BTreeMap<String, ShelfUse>,
    /// The processors that the first socket, or all of them, have; empty if the kernel does not say.
    pub cpus: Vec<u32>,
}

/// A line for people to read.
pub(crate) struct ProfileLine {
    pub name: &'static str,
    pub value: String,
    pub source: String,
    pub reason: String,
}

impl EngineProfile {
    /// The settings for a database in `root`; `follow` false gives the defaults.
    pub fn load(root: &Path, follow: bool, threads: usize) -> Self {
        let cores = u32::try_from(threads).unwrap_or(u32::MAX);
        if !follow || !root.join(PROFILE_FILE).exists() {
            let origin = match follow {
                true => "defaults: there is no profile (`hotshelf probe --db` makes one)",
                false => "defaults: the profile is not followed",
            };
            return Self::defaults(origin.to_owned(), cores);
        }
        let topology = Topology::read();
        let (machine, trouble) = match MachineProfile::load(root, &topology) {
            Ok((machine, ProfileOrigin::Measured)) => (machine, None),
            Ok((machine, origin)) => (machine, Some(origin.to_string())),
            // Whatever is wrong with the file, the database can do without it.
            Err(error) => (MachineProfile::empty(&topology), Some(error.to_string())),
        };
        if let Some(trouble) = trouble {
            let mut profile = Self::defaults(format!("defaults: {trouble}"), cores);
            profile.notice = Some(format!(
                "the machine profile is not used: {trouble}; `hotshelf probe --db {}` makes a new one",
                root.display()
            ));
            return profile;
        }
        let file = machine
            .tiers
            .values()
            .find(|tier| is_here(&tier.tier, root));
        let tiers = machine.tiers.iter();
        let shelves = tiers.map(|(name, tier)| (name.clone(), ShelfUse::of(tier, &topology)));
        Self {
            shelves: shelves.collect(),
            ..Self::of(file, machine.tiers.get("dram"), &topology, cores)
        }
    }

    fn defaults(origin: String, cores: u32) -> Self {
        Self {
            origin,
            ..Self::of(None, None, &Topology::default(), cores)
        }
    }

    /// The settings by the profiles of the database's files and of memory.
    fn of(
        file: Option<&TierProfile>,
        dram: Option<&TierProfile>,
        topology: &Topology,
        cores: u32,
    ) -> Self {
        let names: Vec<&str> = [file, dram]
            .iter()
            .flatten()
            .map(|tier| tier.tier.as_str())
            .collect();
        let origin = match names.is_empty() {
            true => "defaults: the profile has nothing on this folder's device".to_owned(),
            false => format!("measured on this machine ({})", names.join(", ")),
        };
        let file = file
            .cloned()
            .unwrap_or_else(|| TierProfile::defaults("file:", cores));
        let dram = dram
            .cloned()
            .unwrap_or_else(|| TierProfile::defaults("dram", cores));
        let several = topology.socket_count() > 1;
        let first_only = several && dram.near_only.value && !dram.stripe_sockets.value;
        let sockets = if first_only {
            Sockets::First
        } else {
            Sockets::All
        };
        Self {
            origin,
            notice: None,
            io_threads: setting(&file, &file.read_threads, |n| {
                (*n).clamp(1, IO_THREADS_MAX) as usize
            }),
            io_depth: setting(&file, &file.queue_depth, |depth| {
                clamp(depth.unwrap_or(*IO_DEPTH.end()), IO_DEPTH) as usize
            }),
            io_bytes: setting(&file, &file.read_grain_bytes, |bytes| {
                (clamp(*bytes, IO_BYTES) as usize).next_multiple_of(PAGE_BYTES)
            }),
            writers: setting(&file, &file.write_threads, |n| (*n).max(1) as usize),
            write_bytes: setting(&file, &file.write_grain_bytes, |bytes| {
                clamp(*bytes, WRITE_BYTES) as usize
            }),
            write_bandwidth: setting(&file, &file.write_bandwidth_bytes_per_s, |rate| *rate),
            serialise: setting(&file, &file.serialise, |serialise| *serialise),
            pinning: setting(&dram, &dram.read_pinning, |pinning| *pinning),
            sockets: match several {
                true => setting(&dram, &dram.near_only, |_| sockets),
                false => Setting {
                    value: sockets,
                    source: "this machine".to_owned(),
                    reason: "there is one socket".to_owned(),
                },
            },
            storage_bandwidth: setting(&file, &file.read_bandwidth_bytes_per_s, |rate| {
                rate.unwrap_or(STORAGE_BANDWIDTH)
            }),
            storage_access_ns: setting(&file, &file.access_ns, |ns| {
                ns.unwrap_or(STORAGE_ACCESS_NS)
            }),
            memory_bandwidth: dram.read_bandwidth_bytes_per_s.value,
            memory_access_ns: dram.access_ns.value,
            shelves: BTreeMap::new(),
            cpus: cpus(topology, sockets),
        }
    }

    /// Every value of [`NAMES`] and where it comes from.
    pub fn lines(&self) -> Vec<ProfileLine> {
        vec![
            line("io_threads", &self.io_threads, usize::to_string),
            line("io_depth", &self.io_depth, usize::to_string),
            line("io_bytes", &self.io_bytes, usize::to_string),
            line("writers", &self.writers, usize::to_string),
            line("write_bytes", &self.write_bytes, usize::to_string),
            line("write_bandwidth", &self.write_bandwidth, |rate| {
                rate.map_or("that of reads".to_owned(), |rate| rate.to_string())
            }),
            line("serialise", &self.serialise, bool::to_string),
            line("pinning", &self.pinning, |pinning| {
                format!("{pinning:?}").to_lowercase()
            }),
            line("placement", &self.sockets, |sockets| match sockets {
                Sockets::All => "all sockets".to_owned(),
                Sockets::First => "first socket".to_owned(),
            }),
        ]
    }

    /// Bytes that a scan reads ahead from a device that gives this much per second.
    pub fn look_ahead_bytes(&self, storage_bandwidth: f64) -> u64 {
        let accesses_ns = LOOK_AHEAD_ACCESSES * self.storage_access_ns.value as f64;
        let bytes = storage_bandwidth * 1e-9 * (LOOK_AHEAD_NS + accesses_ns);
        (bytes as u64).max(LOOK_AHEAD_BYTES_MIN)
    }

    /// The processors that the `worker_idx`-th thread may run on; `None` if it may run anywhere.
    pub fn cpus_of(&self, worker_idx: usize, worker_count: usize) -> Option<Vec<u32>> {
        if self.cpus.is_empty() {
            return None;
        }
        match (self.pinning.value, self.sockets.value) {
            // Threads beyond the workers wait for files, and need no processor of their own.
            (Pinning::Core, _) if worker_idx < worker_count && worker_count <= self.cpus.len() => {
                Some(vec![self.cpus[worker_idx]])
            }
            (Pinning::None, Sockets::All) => None,
            _ => Some(self.cpus.clone()),
        }
    }
}

/// Whether a measured folder lies on the device of `root`.
fn is_here(tier: &str, root: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let measured = tier
        .strip_prefix("file:")
        .and_then(|path| device(Path::new(path)));
    measured.is_some() && measured == device(root)
}

/// All processors, or those of the first socket, in order.
fn cpus(topology: &Topology, sockets: Sockets) -> Vec<u32> {
    let first = topology.nodes.iter().filter_map(|node| node.socket).min();
    let of_sockets = topology
        .nodes
        .iter()
        .filter(|node| sockets == Sockets::All || node.socket == first);
    of_sockets.flat_map(|node| node.cpus.clone()).collect()
}

impl<T> Setting<T> {
    pub fn is_measured(&self) -> bool {
        self.source.starts_with(MEASURED)
    }

    /// Where the value comes from, and why.
    pub fn origin(&self) -> (String, String) {
        (self.source.clone(), self.reason.clone())
    }
}

const MEASURED: &str = "measured";

fn setting<T, U>(tier: &TierProfile, value: &Value<T>, of: impl Fn(&T) -> U) -> Setting<U> {
    Setting {
        value: of(&value.value),
        source: match value.measured {
            true => format!("{MEASURED} ({})", tier.tier),
            false => "default".to_owned(),
        },
        reason: value.reason.clone(),
    }
}

fn clamp<T: Ord + Copy>(value: T, range: std::ops::RangeInclusive<T>) -> T {
    value.clamp(*range.start(), *range.end())
}

fn line<T>(name: &'static str, setting: &Setting<T>, show: impl Fn(&T) -> String) -> ProfileLine {
    ProfileLine {
        name,
        value: show(&setting.value),
        source: setting.source.clone(),
        reason: setting.reason.clone(),
    }
}

/// The values for SHOW ALL: what is in force and from where, in one text.
pub(crate) fn described(value: &impl Display, source: &impl Display) -> String {
    format!("{value} ({source})")
}

#[cfg(test)]
mod tests;
