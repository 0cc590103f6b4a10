//! Where the cases of a figure are measured: this machine's memory and volume, an emulated device whose threads really
//! wait, and the same device simulated.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotshelf_cli::failure::{Failure, Result};
use hotshelf_cli::progress::Progress;
use hotshelf_tier::emulated::{DEVICE_NAMES, DeviceModel};
use hotshelf_tier::probe::{
    Grouping, Operation, Pattern, Pinning, Placement, Plan, Point, ProbeOptions, ProbeTarget, Row,
    probe,
};
use hotshelf_tier::topology::Topology;

use super::case::Case;
use super::figures::{Figure, Sweep};
use super::rows::Label;
use super::stated::{Memory, is_stated};
use super::waiting::{Rates, Waiting, expected};

/// Files are read by whole pages.
const FILE_ACCESS_BYTES_MIN: u64 = 4096;
const FILE_BYTES: u64 = 1 << 30;
/// The working set must be this times the last-level cache, or the cache is measured.
const CACHE_MULTIPLE: u64 = 4;
const WORKING_SET_BYTES_MIN: u64 = 256 << 20;
/// One measurement: threads that share a CPU must have had turns, so not less.
const REPEAT_MIN: Duration = Duration::from_millis(25);
const REPEAT_MAX: Duration = Duration::from_millis(150);
const WARM_UP: Duration = Duration::from_millis(5);

/// Memory or a volume that figures are measured on.
#[derive(Debug, Clone, PartialEq)]
pub enum Device {
    Dram,
    /// Files in a folder.
    Volume(PathBuf),
    Emulated(Box<DeviceModel>),
    Simulated(Box<DeviceModel>),
}

/// What of this machine limits the figures.
#[derive(Debug, Clone)]
pub struct Machine {
    pub topology: Topology,
    pub cpus: u32,
}

/// How long measuring may take, and whether it is to stop.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'a> {
    pub time: Duration,
    pub stop: &'a AtomicBool,
}

/// A case and what it reached, or why it did not.
#[derive(Debug)]
pub struct Found {
    pub case: Case,
    pub rates: Result<Rates, String>,
}

impl Machine {
    pub fn read() -> Self {
        let topology = Topology::read();
        let cpus: usize = topology.nodes.iter().map(|node| node.cpus.len()).sum();
        Self {
            topology,
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX).max(1),
        }
    }
}

impl Device {
    /// `dram`, `file:FOLDER`, `emulated:NAME`, `simulated:NAME`.
    ///
    /// # Errors
    /// For anything else.
    pub fn parse(name: &str) -> Result<Self> {
        let model = |model: &str| {
            DeviceModel::named(model).map(Box::new).map_err(|error| {
                let names = DEVICE_NAMES.join(", ");
                Failure::usage(error.to_string(), format!("the devices are {names}"))
            })
        };
        match name.split_once(':') {
            None if name == "dram" => Ok(Self::Dram),
            Some(("file", folder)) if !folder.is_empty() => Ok(Self::Volume(folder.into())),
            Some(("emulated", name)) => model(name).map(Self::Emulated),
            Some(("simulated", name)) => model(name).map(Self::Simulated),
            _ => Err(Failure::usage(
                format!("there is no tier {name}"),
                "the tiers are dram, file:FOLDER, emulated:NAME, simulated:NAME",
            )),
        }
    }

    pub fn name(&self) -> String {
        match self {
            Self::Dram => "dram".to_owned(),
            Self::Volume(_) => "volume".to_owned(),
            Self::Emulated(model) => format!("emulated:{}", model.name),
            Self::Simulated(model) => format!("simulated:{}", model.name),
        }
    }

    pub fn label(&self) -> Label {
        match self {
            Self::Dram | Self::Volume(_) => Label::Real,
            Self::Emulated(_) => Label::Emulated,
            Self::Simulated(_) => Label::Simulated,
        }
    }

    /// Which of the paper's two memories it is compared with. The paper has no figures of volumes.
    pub fn memory(&self) -> Option<Memory> {
        match self {
            Self::Dram => Some(Memory::Dram),
            Self::Volume(_) => None,
            Self::Emulated(_) | Self::Simulated(_) => Some(Memory::Persistent),
        }
    }

    /// Why a case cannot be shown here.
    pub fn why_not(&self, sweep: &Sweep, case: &Case, machine: &Machine) -> Option<&'static str> {
        let is_far = case.placement != Placement::Near;
        let is_pinned = sweep.pinnings.len() > 1 && case.pinning != Pinning::None;
        let is_grouped = case.grouping == Grouping::Grouped;
        let is_random_write = case.pattern == Pattern::Random && case.writers > 0;
        match self {
            Self::Dram if is_far && machine.topology.socket_count() < 2 => {
                Some("this machine has one socket only")
            }
            // The rates of threads that take turns on a CPU cannot be added up.
            Self::Dram => {
                (case.threads() > machine.cpus).then_some("more threads than this machine has CPUs")
            }
            Self::Volume(_) if is_far => Some("a volume has no near and far"),
            Self::Volume(_) if is_grouped => {
                Some("threads that use files have ranges or files of their own")
            }
            Self::Volume(_) if is_pinned => Some("threads that use files are not pinned"),
            Self::Volume(_) if is_random_write => Some("files are written from front to back"),
            Self::Volume(_) => (case.access_bytes < FILE_ACCESS_BYTES_MIN)
                .then_some("files are read and written from 4 KiB"),
            Self::Emulated(_) | Self::Simulated(_) => is_grouped.then_some(
                "the model does not know grouped access: its grid has ranges of their own",
            ),
        }
    }

    /// What to know about a value.
    pub fn note(&self, sweep: &Sweep, case: &Case, machine: &Machine) -> Option<String> {
        let threads = case.threads();
        let crowd = (threads > machine.cpus)
            .then(|| format!("{threads} threads share {} CPUs", machine.cpus));
        match self {
            Self::Dram => None,
            Self::Volume(_) => crowd,
            Self::Emulated(_) | Self::Simulated(_) => (sweep.pinnings.len() > 1
                && case.pinning == Pinning::Core)
                .then(|| "the model does not distinguish cores from their socket".to_owned()),
        }
    }

    /// Where the parameters behind a value are from, if it comes from a model.
    pub fn parameters(&self, figure: u8, case: &Case, operation: Operation) -> Option<String> {
        let (Self::Emulated(model) | Self::Simulated(model)) = self else {
            return None;
        };
        Some(match fitted_to(&model.name, case, operation) {
            Some(fitted) if fitted == figure => "parameters from this figure".to_owned(),
            Some(fitted) => format!("parameters from figure {fitted} of the paper"),
            None => format!("parameters from {}", model.source),
        })
    }

    /// Measures cases, the most telling ones first, as far as the time goes.
    ///
    /// # Errors
    /// That memory, files or the device cannot be used, or Ctrl-C.
    pub fn measure(
        &self,
        figure: &Figure,
        mut cases: Vec<Case>,
        machine: &Machine,
        limits: &Limits<'_>,
    ) -> Result<Vec<Found>> {
        cases.sort_by_key(|case| !(is_coarse(case) || is_stated(figure.number, case)));
        let what = format!("figure {}, {}", figure.number, self.name());
        let mut progress = Progress::start(what, "measurements");
        let found = match self {
            _ if cases.is_empty() => Ok(Vec::new()),
            Self::Dram => {
                let options = ProbeOptions {
                    working_set_bytes: Some(working_set_bytes(figure, &cases, machine)),
                    ..ProbeOptions::default()
                };
                let probed = Probed {
                    target: ProbeTarget::Dram,
                    options,
                    range_bytes: figure.range_bytes,
                };
                probed.measure(&cases, machine, limits, &mut progress)
            }
            Self::Volume(folder) => {
                let options = ProbeOptions {
                    working_set_bytes: Some(FILE_BYTES),
                    ..ProbeOptions::default()
                };
                let probed = Probed {
                    target: ProbeTarget::File(folder.clone()),
                    options,
                    range_bytes: None,
                };
                probed.measure(&cases, machine, limits, &mut progress)
            }
            Self::Emulated(model) => {
                let waiting = Waiting::new(model)?;
                one_by_one(&cases, limits, &mut progress, |case| waiting.measure(case))
            }
            Self::Simulated(model) => {
                one_by_one(&cases, limits, &mut progress, |case| expected(model, case))
            }
        };
        progress.clear();
        found
    }
}

/// The paper's figure that the model's parameters for a case are from, if they are not the measured grid's alone.
fn fitted_to(model: &str, case: &Case, operation: Operation) -> Option<u8> {
    const PAGE_BYTES: u64 = 4096;
    const RECORDED_RANDOM_BYTES_MAX: u64 = 1024;
    let is_recorded = model.starts_with("optane") && model != "optane";
    let is_unpinned =
        case.placement == Placement::Near && case.pinning == Pinning::None && case.threads() > 1;
    match (operation, case.placement) {
        _ if !model.starts_with("optane") => None,
        _ if case.readers > 0 && case.writers > 0 => Some(11),
        (Operation::Read, Placement::BothFar) => Some(6),
        (Operation::Read, Placement::Far | Placement::FarFirst | Placement::BothShared) => Some(5),
        (Operation::Write, Placement::Far | Placement::BothFar | Placement::BothShared) => Some(10),
        (Operation::Write, Placement::FarFirst) => Some(10),
        (Operation::Read, _) if is_unpinned => Some(4),
        (Operation::Write, _) if is_unpinned => Some(10),
        _ if !is_recorded => None,
        (Operation::Read, _) => (case.pattern == Pattern::Random
            && case.access_bytes > RECORDED_RANDOM_BYTES_MAX)
            .then_some(12),
        (Operation::Write, _) => {
            (case.pattern == Pattern::Sequential && case.access_bytes > PAGE_BYTES).then_some(8)
        }
    }
}

/// Whether a case belongs to the few that show the shape of a figure: every other size, the counts that the paper
/// names.
pub fn is_coarse(case: &Case) -> bool {
    const THREADS: [u32; 11] = [0, 1, 2, 4, 6, 8, 18, 24, 30, 36, 72];
    let is_named = |threads| THREADS.contains(&threads);
    case.access_bytes.trailing_zeros().is_multiple_of(2)
        && is_named(case.readers)
        && is_named(case.writers)
}

fn working_set_bytes(figure: &Figure, cases: &[Case], machine: &Machine) -> u64 {
    let largest = cases
        .iter()
        .map(|case| case.access_bytes * u64::from(case.readers.max(case.writers)))
        .max();
    let beyond_caches = CACHE_MULTIPLE * machine.topology.last_level_cache_bytes();
    let bytes = beyond_caches
        .max(figure.range_bytes.unwrap_or(0))
        .max(largest.unwrap_or(0));
    bytes.max(WORKING_SET_BYTES_MIN)
}

/// Cases that a probe measures.
struct Probed {
    target: ProbeTarget,
    options: ProbeOptions,
    range_bytes: Option<u64>,
}

impl Probed {
    fn measure(
        mut self,
        cases: &[Case],
        machine: &Machine,
        limits: &Limits<'_>,
        progress: &mut Progress,
    ) -> Result<Vec<Found>> {
        let points: Vec<Point> = cases
            .iter()
            .map(|case| case.point(self.range_bytes))
            .collect();
        let count = u32::try_from(points.len()).unwrap_or(u32::MAX).max(1);
        self.options.plan = Some(Plan {
            points,
            round_count: 1,
            repeat: (limits.time / count).clamp(REPEAT_MIN, REPEAT_MAX),
            warm_up: WARM_UP,
            preparation: Duration::ZERO,
        });
        // Memory and files are made before the first measurement, which is not what takes long.
        let mut started = None;
        let report = probe(&self.target, &machine.topology, &self.options, &mut |now| {
            progress.show(now.done_count as u64, now.total_count as u64);
            let started = *started.get_or_insert_with(Instant::now);
            let is_over = now.last.is_some() && started.elapsed() > limits.time * 2;
            match is_over || limits.stop.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        if limits.stop.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        let rates = |case: &Case| {
            let point = case.point(self.range_bytes);
            let refused = || report.refused.iter().find(|(refused, _)| *refused == point);
            let row = report.rows.iter().find(|row| row.point == point);
            row.map(|row| rates_of(case, row))
                .ok_or_else(|| match refused() {
                    Some((_, refusal)) => refusal.to_string(),
                    None => left_out(limits),
                })
        };
        let found = cases.iter().map(|case| Found {
            case: *case,
            rates: rates(case),
        });
        Ok(found.collect())
    }
}

fn rates_of(case: &Case, row: &Row) -> Rates {
    match case.readers {
        0 => Rates {
            read: 0.0,
            write: row.bandwidth_bytes_per_s,
        },
        _ => Rates {
            read: row.bandwidth_bytes_per_s,
            write: row.beside_bandwidth_bytes_per_s.unwrap_or(0.0),
        },
    }
}

fn one_by_one(
    cases: &[Case],
    limits: &Limits<'_>,
    progress: &mut Progress,
    measure: impl Fn(&Case) -> Rates,
) -> Result<Vec<Found>> {
    let started = Instant::now();
    let mut found = Vec::with_capacity(cases.len());
    for (idx, case) in cases.iter().enumerate() {
        if limits.stop.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        progress.show(idx as u64, cases.len() as u64);
        let rates = match started.elapsed() > limits.time * 2 {
            true => Err(left_out(limits)),
            false => Ok(measure(case)),
        };
        found.push(Found { case: *case, rates });
    }
    Ok(found)
}

fn left_out(limits: &Limits<'_>) -> String {
    format!("not measured: --seconds {}", limits.time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_traced_to_the_figure_they_were_taken_from() {
        let read = Case::near(4096, 18, 0);
        let write = Case::near(65_536, 0, 6);
        let far = |case: Case| case.placed(Placement::Far);
        for (model, case, operation, figure) in [
            ("optane100-128", read, Operation::Read, None),
            (
                "optane100-128",
                read.pinned(Pinning::None),
                Operation::Read,
                Some(4),
            ),
            ("optane100-128", far(read), Operation::Read, Some(5)),
            (
                "optane100-128",
                read.placed(Placement::BothFar),
                Operation::Read,
                Some(6),
            ),
            (
                "optane100-128",
                read.placed(Placement::BothNear),
                Operation::Read,
                None,
            ),
            ("optane100-128", write, Operation::Write, Some(8)),
            ("optane100-128", far(write), Operation::Write, Some(10)),
            (
                "optane100-128",
                Case::near(4096, 30, 6),
                Operation::Write,
                Some(11),
            ),
            ("optane100-128", read.random(), Operation::Read, Some(12)),
            ("optane", read.random(), Operation::Read, None),
            ("cxl", far(read), Operation::Read, None),
        ] {
            assert_eq!(
                fitted_to(model, &case, operation),
                figure,
                "{model}, {case:?}"
            );
        }
    }
}
