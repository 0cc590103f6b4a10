//! What to measure, in which order, and how long that takes: a pure function of the tier and the machine.

use std::collections::BTreeSet;
use std::time::Duration;

use super::target::ProbeTarget;
use crate::axes::{Grouping, Operation, Pattern, PersistInstruction, Pinning, Placement, Point};
use crate::topology::Topology;

const QUICK_SIZES: &[u64] = &[64, 256, 1024, 4096, 65_536, 1 << 20];
const RANDOM_SIZES: &[u64] = &[64, 128, 256, 512, 1024, 2048, 4096, 8192];
const QUICK_RANDOM_SIZES: &[u64] = &[64, 256, 1024, 4096];
const FILE_SIZES: &[u64] = &[4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const QUICK_FILE_SIZES: &[u64] = &[4 << 10, 64 << 10, 1 << 20];
const DEPTHS: &[u32] = &[1, 2, 4, 8, 16, 32, 64];
const QUICK_DEPTHS: &[u32] = &[1, 4, 16];
/// Reads of files beside something else: enough in flight to keep a drive busy.
const BESIDE_DEPTH: u32 = 16;
const BESIDE_BYTES: u64 = 1 << 20;
/// Files are written from this size on: the importer never writes less at once.
const FILE_WRITE_BYTES_MIN: u64 = 64 << 10;
const FILE_WRITERS_MAX: u32 = 8;
/// Ranges of random accesses, from the first cache to several times the last one, as powers of two.
const RANGES: std::ops::RangeInclusive<u32> = 15..=28;
/// One emulated socket of Daase et al.: 18 cores and as many hyperthreads.
const EMULATED_THREADS: &[u32] = &[1, 2, 4, 6, 8, 12, 16, 18, 24, 32, 36];
const QUICK_EMULATED_THREADS: &[u32] = &[1, 4, 8, 18, 36];
const EMULATED_CORES: u32 = 18;

/// How thorough to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// Under a minute: fewer sizes, counts and rounds.
    pub quick: bool,
}

/// Points to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// In order.
    pub points: Vec<Point>,
    /// How often all points are gone through. What a device does changes within seconds if it is shared or has bursts;
    /// the median of measurements minutes apart does not hang on the moment at which a point was measured.
    pub round_count: u32,
    /// How long each measurement takes.
    pub repeat: Duration,
    /// How long it is run before anything counts.
    pub warm_up: Duration,
    /// Preparing the working set.
    pub preparation: Duration,
}

impl Plan {
    /// The plan for a tier on a machine.
    pub fn new(target: &ProbeTarget, topology: &Topology, options: &PlanOptions) -> Self {
        let quick = options.quick;
        let (threads, cores) = thread_counts(topology, quick);
        let sockets = topology.socket_count();
        let points = match target {
            ProbeTarget::File(_) => file_points(quick, cores),
            ProbeTarget::Emulated(_) => {
                let threads = if quick {
                    QUICK_EMULATED_THREADS
                } else {
                    EMULATED_THREADS
                };
                memory_points(quick, threads, EMULATED_CORES, 2)
            }
            ProbeTarget::Dram => memory_points(quick, &threads, cores, sockets),
            ProbeTarget::Dax(_) | ProbeTarget::Node(_) => {
                let mut points = memory_points(quick, &threads, cores, 1);
                points.extend(beside_dram(&threads, cores));
                points
            }
        };
        let millis =
            |quick_ms, full_ms| Duration::from_millis(if quick { quick_ms } else { full_ms });
        let emulated = matches!(target, ProbeTarget::Emulated(_));
        Self {
            points,
            round_count: match (emulated, quick) {
                (true, _) => 1,
                (false, true) => 8,
                (false, false) => 13,
            },
            repeat: match target {
                ProbeTarget::Emulated(_) => Duration::ZERO,
                ProbeTarget::File(_) => millis(125, 150),
                _ => millis(22, 60),
            },
            warm_up: match target {
                // Reads of files warm up within each measurement.
                ProbeTarget::Emulated(_) | ProbeTarget::File(_) => Duration::ZERO,
                _ => millis(3, 10),
            },
            preparation: if emulated {
                Duration::ZERO
            } else {
                Duration::from_secs(3)
            },
        }
    }

    /// Its axes in words, with the number of points each.
    pub fn outline(&self) -> Vec<(&'static str, usize)> {
        let mut counts: Vec<(&'static str, usize)> = Vec::new();
        for point in &self.points {
            let axis = axis(point);
            match counts.iter_mut().find(|(name, _)| *name == axis) {
                Some((_, count)) => *count += 1,
                None => counts.push((axis, 1)),
            }
        }
        counts
    }

    /// How long it will take on a quiet machine, about.
    pub fn duration(&self) -> Duration {
        let point = self.repeat + self.warm_up;
        self.preparation + point * u32::try_from(self.step_count()).unwrap_or(u32::MAX)
    }

    /// Measurements of all rounds.
    pub fn step_count(&self) -> usize {
        self.steps().count()
    }

    /// What is measured, in order, with the round. A first touch happens once.
    pub(super) fn steps(&self) -> impl Iterator<Item = (u32, &Point)> {
        let of_round = |round: u32| self.points.iter().map(move |point| (round, point));
        let again =
            |(round, point): &(u32, &Point)| *round == 0 || point.placement != Placement::FarFirst;
        (0..self.round_count.max(1))
            .flat_map(of_round)
            .filter(again)
    }
}

/// What a point is measured for.
fn axis(point: &Point) -> &'static str {
    let write = point.operation == Operation::Write;
    let persist = Point::new(point.operation, 0, 0).persist;
    match point {
        point if point.on_dram => "DRAM beside the tier",
        point if point.beside_threads > 0 => "readers beside writers",
        point if point.placement != Placement::Near => "near and far, one and two sockets",
        point if point.pattern == Pattern::Dependent => "latency",
        point if point.range_bytes.is_some() => "random access by size and range",
        point if point.queue_depth.is_some() && point.pattern == Pattern::Random => {
            "random reads by block and depth"
        }
        point if point.queue_depth.is_some() => "sequential reads by block and depth",
        point if point.pattern == Pattern::Random && point.persist == persist && write => {
            "random writes"
        }
        point if point.pattern == Pattern::Random && !write => "random reads",
        point if point.persist != persist && point.persist != Some(PersistInstruction::Flush) => {
            "persist instruction"
        }
        _ if write => "writes by size and threads",
        _ => "sequential reads by size and threads",
    }
}

/// Powers of two up to all logical CPUs, and the physical cores.
fn thread_counts(topology: &Topology, quick: bool) -> (Vec<u32>, u32) {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).max(1);
    let logical = count(topology.nodes.iter().map(|node| node.cpus.len()).sum());
    let cores = count(topology.physical_cores.len()).min(logical);
    let mut counts: BTreeSet<u32> = [1, cores].into();
    if !quick {
        counts.insert(logical);
        counts.extend(
            (0..)
                .map(|power| 1 << power)
                .take_while(|count| *count <= logical),
        );
    }
    (counts.into_iter().collect(), cores)
}

fn memory_points(quick: bool, threads: &[u32], cores: u32, sockets: usize) -> Vec<Point> {
    let all_sizes: Vec<u64> = (6..=25).map(|power| 1 << power).collect();
    let sizes = if quick { QUICK_SIZES } else { &all_sizes[..] };
    let mut points = Vec::new();
    for operation in [Operation::Read, Operation::Write] {
        sequential(&mut points, operation, sizes, threads);
        random(&mut points, operation, quick, threads);
    }
    instructions(&mut points, threads);
    points.extend([64, 256].map(|access_bytes| Point {
        pattern: Pattern::Dependent,
        ..Point::new(Operation::Read, access_bytes, 1)
    }));
    mixed(&mut points, threads, cores);
    if !quick {
        ranged(&mut points, threads, cores);
    }
    if sockets > 1 {
        // What the scheduler does to threads that may run anywhere is an axis of its own.
        points
            .iter_mut()
            .for_each(|point| point.pinning = Pinning::Node);
        placed(&mut points, threads);
    }
    for operation in [Operation::Read, Operation::Write] {
        pinned(&mut points, operation, threads);
    }
    unique(points)
}

fn sequential(points: &mut Vec<Point>, operation: Operation, sizes: &[u64], threads: &[u32]) {
    for &access_bytes in sizes {
        for &count in threads {
            let point = Point::new(operation, access_bytes, count);
            points.push(point);
            if count > 1 {
                points.push(Point {
                    grouping: Grouping::Grouped,
                    ..point
                });
            }
        }
    }
}

fn pinned(points: &mut Vec<Point>, operation: Operation, threads: &[u32]) {
    for &count in threads {
        for pinning in [Pinning::None, Pinning::Node, Pinning::Core] {
            points.push(Point {
                pinning,
                ..Point::new(operation, 4096, count)
            });
        }
    }
}

fn random(points: &mut Vec<Point>, operation: Operation, quick: bool, threads: &[u32]) {
    let sizes = if quick {
        QUICK_RANDOM_SIZES
    } else {
        RANDOM_SIZES
    };
    for &access_bytes in sizes {
        for &count in threads {
            points.push(Point {
                pattern: Pattern::Random,
                ..Point::new(operation, access_bytes, count)
            });
        }
    }
}

/// Random accesses in ranges of growing size: one thread's in single lines, and all cores' in several sizes.
fn ranged(points: &mut Vec<Point>, threads: &[u32], cores: u32) {
    let random = |operation, access_bytes, count, power| Point {
        pattern: Pattern::Random,
        range_bytes: Some(1u64 << power),
        ..Point::new(operation, access_bytes, count)
    };
    points.extend(RANGES.map(|power| random(Operation::Read, 64, 1, power)));
    let most = threads
        .iter()
        .copied()
        .filter(|count| *count <= cores)
        .max();
    for operation in [Operation::Read, Operation::Write] {
        for access_bytes in [64, 256, 4096] {
            let of_power = |power| random(operation, access_bytes, most.unwrap_or(1), power);
            points.extend(RANGES.step_by(3).map(of_power));
        }
    }
}

/// Half of the cores read DRAM while some of the others read the tier, so that what they take from each other is memory
/// and not processor time.
fn beside_dram(threads: &[u32], cores: u32) -> Vec<Point> {
    let on_dram = (cores / 2).max(1);
    let room = cores.saturating_sub(on_dram).max(1);
    let beside = threads.iter().copied().filter(|count| *count <= room);
    let counts: BTreeSet<u32> = [0, 1, room].into_iter().chain(beside).collect();
    let point = |beside_threads| Point {
        beside_threads,
        on_dram: true,
        ..Point::new(Operation::Read, 4096, on_dram)
    };
    counts.into_iter().map(point).collect()
}

fn instructions(points: &mut Vec<Point>, threads: &[u32]) {
    for persist in [PersistInstruction::Flush, PersistInstruction::None] {
        for pattern in [Pattern::Sequential, Pattern::Random] {
            for access_bytes in [64, 256, 4096] {
                points.extend(threads.iter().map(|count| Point {
                    pattern,
                    persist: Some(persist),
                    ..Point::new(Operation::Write, access_bytes, *count)
                }));
            }
        }
    }
}

/// Readers beside writers, as far as the cores go; with one core, one of each.
fn mixed(points: &mut Vec<Point>, threads: &[u32], cores: u32) {
    for &writers in threads {
        for &readers in threads {
            if readers.saturating_add(writers) <= cores.saturating_mul(2).max(2) {
                points.push(Point {
                    beside_threads: writers,
                    ..Point::new(Operation::Read, 4096, readers)
                });
            }
        }
    }
}

fn placed(points: &mut Vec<Point>, threads: &[u32]) {
    // The first touch comes before all others of the far memory.
    let placements = [
        Placement::FarFirst,
        Placement::Far,
        Placement::BothNear,
        Placement::BothFar,
        Placement::BothShared,
    ];
    for operation in [Operation::Read, Operation::Write] {
        for placement in placements {
            points.extend(threads.iter().map(|count| Point {
                pinning: Pinning::Node,
                placement,
                ..Point::new(operation, 4096, *count)
            }));
        }
    }
}

fn file_points(quick: bool, cores: u32) -> Vec<Point> {
    let (sizes, depths) = match quick {
        true => (QUICK_FILE_SIZES, QUICK_DEPTHS),
        false => (FILE_SIZES, DEPTHS),
    };
    let mut points = Vec::new();
    for pattern in [Pattern::Sequential, Pattern::Random] {
        for &access_bytes in sizes {
            points.extend(depths.iter().map(|depth| Point {
                pattern,
                queue_depth: Some(*depth),
                ..Point::new(Operation::Read, access_bytes, 1)
            }));
        }
    }
    let reads = |access_bytes, rings| Point {
        queue_depth: Some(BESIDE_DEPTH),
        ..Point::new(Operation::Read, access_bytes, rings)
    };
    points.extend([64 << 10, BESIDE_BYTES].map(|access_bytes| reads(access_bytes, 2)));
    let writers: BTreeSet<u32> = [1, 2, cores.clamp(1, FILE_WRITERS_MAX)].into();
    for &access_bytes in sizes.iter().filter(|size| **size >= FILE_WRITE_BYTES_MIN) {
        points.extend(writers.iter().map(|count| Point {
            persist: Some(PersistInstruction::Flush),
            ..Point::new(Operation::Write, access_bytes, *count)
        }));
    }
    points.extend(writers.iter().map(|count| Point {
        beside_threads: *count,
        ..reads(BESIDE_BYTES, 1)
    }));
    points.extend([0, 1].map(|beside_threads| Point {
        beside_threads,
        on_dram: true,
        threads: (cores / 2).max(1),
        ..reads(BESIDE_BYTES, 1)
    }));
    unique(points)
}

fn unique(points: Vec<Point>) -> Vec<Point> {
    let mut seen = BTreeSet::new();
    points
        .into_iter()
        .filter(|point| seen.insert(*point))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Tree;

    fn two_sockets() -> Topology {
        Topology::parse(&Tree::from_text(include_str!(
            "../topology/trees/two-sockets.tree"
        )))
    }

    fn plan(tier: &str, topology: &Topology, quick: bool) -> Plan {
        Plan::new(&tier.parse().unwrap(), topology, &PlanOptions { quick })
    }

    #[test]
    fn a_quick_plan_takes_less_than_a_minute_on_any_machine() {
        for topology in [Topology::default(), two_sockets()] {
            for tier in ["dram", "file:/tmp", "node:1", "emulated:optane"] {
                let plan = plan(tier, &topology, true);
                assert!(
                    plan.duration() < Duration::from_secs(55),
                    "{tier}: {:?}",
                    plan.duration()
                );
            }
        }
    }

    #[test]
    fn a_full_plan_covers_every_axis_once() {
        let plan = plan("dram", &two_sockets(), false);
        let any = |wanted: fn(&Point) -> bool| assert!(plan.points.iter().any(wanted));
        any(|point| point.access_bytes == 64);
        any(|point| point.access_bytes == 32 << 20);
        any(|point| point.threads == 72);
        any(|point| point.grouping == Grouping::Grouped);
        any(|point| point.pinning == Pinning::Core);
        any(|point| point.placement == Placement::FarFirst);
        any(|point| point.placement == Placement::BothShared);
        any(|point| point.persist == Some(PersistInstruction::Flush));
        any(|point| point.pattern == Pattern::Dependent);
        any(|point| point.beside_threads > 0);
        any(|point| point.range_bytes.is_some() && point.access_bytes == 4096);
        any(|point| point.pinning == Pinning::None);
        let unique: BTreeSet<_> = plan.points.iter().collect();
        assert_eq!(unique.len(), plan.points.len());
    }

    #[test]
    fn one_socket_has_no_far_memory() {
        let plan = plan("dram", &Topology::default(), false);
        assert!(
            plan.points
                .iter()
                .all(|point| point.placement == Placement::Near)
        );
        assert!(
            plan.points.iter().any(|point| point.beside_threads == 1),
            "one reader beside one writer"
        );
    }

    #[test]
    fn files_are_read_by_block_size_and_depth() {
        let plan = plan("file:/tmp", &Topology::default(), false);
        let depths: BTreeSet<_> = plan
            .points
            .iter()
            .filter_map(|point| point.queue_depth)
            .collect();
        assert_eq!(depths.into_iter().collect::<Vec<_>>(), DEPTHS);
        let any = |wanted: fn(&&Point) -> bool| assert!(plan.points.iter().any(|p| wanted(&p)));
        any(|point| point.operation == Operation::Write && point.threads == 2);
        any(|point| point.operation == Operation::Read && point.beside_threads > 0);
        any(|point| point.on_dram && point.beside_threads > 0);
    }

    #[test]
    fn several_sockets_are_measured_with_pinned_threads_and_slow_memory_beside_dram() {
        let dram = plan("dram", &two_sockets(), false);
        let unpinned = |point: &&Point| point.pinning == Pinning::None;
        assert!(
            dram.points
                .iter()
                .filter(unpinned)
                .all(|point| point.access_bytes == 4096)
        );
        let node = plan("node:1", &two_sockets(), true);
        let beside: Vec<u32> = node
            .points
            .iter()
            .filter(|p| p.on_dram)
            .map(|p| p.beside_threads)
            .collect();
        assert!(
            beside.starts_with(&[0, 1]) && beside.len() > 2,
            "{beside:?}"
        );
        let one = plan("dax:/mnt", &Topology::default(), true);
        assert!(
            one.points
                .iter()
                .any(|p| p.on_dram && (p.threads, p.beside_threads) == (1, 1))
        );
    }
}
