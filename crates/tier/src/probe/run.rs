//! Running a plan: rounds, plausibility, progress, interruption.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::file::FileBench;
use super::journal::{Journal, JournalHead};
use super::median::{by_point, median};
use super::memory::MemoryBench;
use super::options::ProbeOptions;
use super::plan::{Plan, PlanOptions};
use super::regions::{dram_beside, regions};
use super::report::{Measured, Outcome, ProbeReport, Progress, Refusal, Round};
use super::target::ProbeTarget;
use crate::axes::{Pattern, Placement, Point, Row};
use crate::emulated::{DeviceModel, simulate};
use crate::error::TierError;
use crate::region::Region;
use crate::topology::{Fingerprint, Topology, conditions};

/// A measurement above this times the bandwidth of copying is an error of measurement.
const COPY_BOUND: f64 = 4.0;
const COPY_TIME: Duration = Duration::from_millis(60);
/// The best repeat counts: a bound must not be low because something else was running.
const COPY_REPEATS: u32 = 5;
/// The working set must be this times the last-level cache, or the cache is measured.
const CACHE_MULTIPLE: u64 = 4;
const WORKING_SET_BYTES_MIN: u64 = 256 << 20;
const QUICK_WORKING_SET_BYTES_MIN: u64 = 128 << 20;
const FILE_BYTES: u64 = 1 << 30;
const QUICK_FILE_BYTES: u64 = 256 << 20;

/// Measures a tier. `progress` is called after each point and may stop the probe; with a journal, a later call resumes
/// it.
///
/// # Errors
/// What mapping, reading or writing says; points that cannot be measured are [`ProbeReport::refused`] instead.
pub fn probe(
    target: &ProbeTarget,
    topology: &Topology,
    options: &ProbeOptions,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<ProbeReport, TierError> {
    let plan_options = PlanOptions {
        quick: options.quick,
    };
    let plan = options.plan.clone();
    let plan = plan.unwrap_or_else(|| Plan::new(target, topology, &plan_options));
    let head = head(target, topology, options);
    let (mut journal, outcomes) = match &options.journal {
        Some(path) => {
            let (journal, outcomes) = Journal::open(path, &head)?;
            (Some(journal), outcomes)
        }
        None => (None, Vec::new()),
    };
    let mut run = ProbeRun {
        target,
        plan: &plan,
        outcomes,
        bench: None,
        bound_bytes_per_s: None,
    };
    let complete = run.all(topology, options, &head, &mut journal, progress);
    // An empty journal is useless, and a complete one is no longer needed.
    let done = matches!(complete, Ok(true)) || run.outcomes.is_empty();
    if let (true, Some(journal)) = (done, journal) {
        journal.remove()?;
    }
    Ok(run.report(head, conditions(topology), complete?))
}

/// How many measurements of a probe with these options are already in its journal.
///
/// # Errors
/// [`TierError::Io`] if there is a journal that cannot be read.
pub fn resumable_count(
    target: &ProbeTarget,
    topology: &Topology,
    options: &ProbeOptions,
) -> Result<usize, TierError> {
    match &options.journal {
        Some(path) if path.exists() => {
            let kept = Journal::kept(path, &head(target, topology, options))?;
            Ok(kept.len())
        }
        _ => Ok(0),
    }
}

fn head(target: &ProbeTarget, topology: &Topology, options: &ProbeOptions) -> JournalHead {
    JournalHead {
        tier: target.to_string(),
        quick: options.quick,
        working_set_bytes: working_set_bytes(target, topology, options),
        fingerprint: Fingerprint::of(topology),
    }
}

fn working_set_bytes(target: &ProbeTarget, topology: &Topology, options: &ProbeOptions) -> u64 {
    let (memory_min, file) = match options.quick {
        true => (QUICK_WORKING_SET_BYTES_MIN, QUICK_FILE_BYTES),
        false => (WORKING_SET_BYTES_MIN, FILE_BYTES),
    };
    let default = match target {
        ProbeTarget::File(_) => file,
        _ => memory_min.max(CACHE_MULTIPLE * topology.last_level_cache_bytes()),
    };
    options.working_set_bytes.unwrap_or(default)
}

/// What is measured.
enum AnyBench {
    Memory(MemoryBench),
    File(FileBench),
    Emulated(Box<DeviceModel>),
}

struct ProbeRun<'a> {
    target: &'a ProbeTarget,
    plan: &'a Plan,
    outcomes: Vec<Outcome>,
    bench: Option<AnyBench>,
    bound_bytes_per_s: Option<f64>,
}

impl ProbeRun<'_> {
    fn all(
        &mut self,
        topology: &Topology,
        options: &ProbeOptions,
        head: &JournalHead,
        journal: &mut Option<Journal>,
        progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Result<bool, TierError> {
        let total_count = self.plan.step_count();
        let open = self.open_steps();
        let mut tell = |done_count: usize, last: Option<&Outcome>, remaining| {
            let progress_now = Progress {
                done_count,
                total_count,
                last,
                remaining,
            };
            progress(progress_now).is_break()
        };
        if tell(total_count - open.len(), None, self.plan.duration()) {
            return Ok(open.is_empty());
        }
        let started = Instant::now();
        for (open_idx, point) in open.iter().enumerate() {
            if self.bench.is_none() {
                self.prepare(topology, options, head.working_set_bytes)?;
            }
            let outcome = match self.refused_before(point) {
                Some(outcome) => outcome.clone(),
                None => self.point(point),
            };
            if let Some(journal) = journal {
                journal.append(&outcome)?;
            }
            let done_here = u32::try_from(open_idx + 1).unwrap_or(u32::MAX);
            let remaining_count = u32::try_from(open.len() - open_idx - 1).unwrap_or(u32::MAX);
            let stop = tell(
                total_count - open.len() + open_idx + 1,
                Some(&outcome),
                started.elapsed() / done_here * remaining_count,
            );
            self.outcomes.push(outcome);
            if stop {
                return Ok(remaining_count == 0);
            }
        }
        Ok(true)
    }

    /// What is still to be measured, round by round.
    fn open_steps(&self) -> Vec<Point> {
        let mut done: BTreeMap<Point, u32> = BTreeMap::new();
        for outcome in &self.outcomes {
            *done.entry(*outcome.point()).or_default() += 1;
        }
        let is_open =
            |(round, point): &(u32, &Point)| *round >= done.get(point).copied().unwrap_or(0);
        self.plan
            .steps()
            .filter(is_open)
            .map(|(_, point)| *point)
            .collect()
    }

    /// What cannot be measured once is not tried again.
    fn refused_before(&self, point: &Point) -> Option<&Outcome> {
        let refused = |outcome: &&Outcome| {
            matches!(outcome, Outcome::Refused { .. }) && outcome.point() == point
        };
        self.outcomes.iter().find(refused)
    }

    fn prepare(
        &mut self,
        topology: &Topology,
        options: &ProbeOptions,
        working_set_bytes: u64,
    ) -> Result<(), TierError> {
        let bench = match self.target {
            ProbeTarget::Emulated(name) => AnyBench::Emulated(Box::new(DeviceModel::named(name)?)),
            ProbeTarget::File(folder) => {
                let bytes = WORKING_SET_BYTES_MIN.min(working_set_bytes);
                let dram = self.dram_beside(topology, bytes)?;
                AnyBench::File(FileBench::new(
                    folder,
                    working_set_bytes,
                    dram,
                    options.keep_file,
                )?)
            }
            ProbeTarget::Dram | ProbeTarget::Node(_) | ProbeTarget::Dax(_) => {
                let regions = regions(self.target, topology, options, working_set_bytes)?;
                let dram = self.dram_beside(topology, working_set_bytes)?;
                AnyBench::Memory(MemoryBench::new(regions, dram)?)
            }
        };
        // Smaller sets are read from the caches, which are not measured here.
        let beyond_caches = working_set_bytes >= CACHE_MULTIPLE * topology.last_level_cache_bytes();
        if let (AnyBench::Memory(memory), true) = (&bench, beyond_caches) {
            let threads = u32::try_from(topology.physical_cores.len()).unwrap_or(1);
            let copy = |_| memory.copy_bandwidth(threads.max(1), COPY_TIME).ok();
            let best = (0..COPY_REPEATS).filter_map(copy).max_by(f64::total_cmp);
            self.bound_bytes_per_s = best.map(|bandwidth| COPY_BOUND * bandwidth);
        }
        self.bench = Some(bench);
        Ok(())
    }

    fn dram_beside(
        &self,
        topology: &Topology,
        working_set_bytes: u64,
    ) -> Result<Option<Region>, TierError> {
        let wanted = self.plan.points.iter().any(|point| point.on_dram);
        let region = || dram_beside(self.target, topology, working_set_bytes);
        wanted.then(region).transpose()
    }

    fn point(&mut self, point: &Point) -> Outcome {
        let measured = self.measure(point);
        match measured.and_then(|measured| self.judge(point, measured)) {
            Ok(row) => Outcome::Row(row),
            Err(refusal) => Outcome::Refused {
                point: *point,
                refusal,
            },
        }
    }

    fn measure(&mut self, point: &Point) -> Result<Measured, Refusal> {
        let mut run = |time: Duration| match &mut self.bench {
            Some(AnyBench::Memory(memory)) => memory.measure(point, time),
            Some(AnyBench::File(file)) => file.measure(point, time),
            Some(AnyBench::Emulated(model)) => {
                let simulated = simulate(model, point);
                Ok(Measured {
                    bandwidth_bytes_per_s: simulated.bandwidth_bytes_per_s,
                    beside_bandwidth_bytes_per_s: simulated.beside_bandwidth_bytes_per_s,
                    latency_ns: simulated.latency_ns,
                })
            }
            None => Err(Refusal::Busy),
        };
        // There is nothing to warm up for a first touch, and linking a chain touches all of it.
        let cold = point.placement == Placement::FarFirst || point.pattern == Pattern::Dependent;
        if !cold && !self.plan.warm_up.is_zero() {
            run(self.plan.warm_up)?;
        }
        run(self.plan.repeat)
    }

    /// The row of a measurement, if it is possible.
    fn judge(&self, point: &Point, measured: Measured) -> Result<Row, Refusal> {
        let found_bytes_per_s = measured.bandwidth_bytes_per_s;
        // Ranges that fit into a cache are faster than memory, and are measured to show just that; and DRAM is faster
        // than the slow memory whose copying gave the bound.
        let bound = self
            .bound_bytes_per_s
            .filter(|_| point.range_bytes.is_none() && !point.on_dram);
        if let Some(bound_bytes_per_s) = bound.filter(|bound| found_bytes_per_s > *bound) {
            return Err(Refusal::Impossible {
                found_bytes_per_s,
                bound_bytes_per_s,
            });
        }
        Ok(Row {
            tier: match point.on_dram {
                true => ProbeTarget::Dram.to_string(),
                false => self.target.to_string(),
            },
            emulated: matches!(self.target, ProbeTarget::Emulated(_)),
            point: *point,
            bandwidth_bytes_per_s: found_bytes_per_s,
            latency_ns: measured.latency_ns,
            beside_bandwidth_bytes_per_s: measured.beside_bandwidth_bytes_per_s,
            spread: 0.0,
        })
    }

    fn report(
        self,
        head: JournalHead,
        conditions: BTreeMap<String, String>,
        complete: bool,
    ) -> ProbeReport {
        let mut report = ProbeReport {
            tier: head.tier,
            emulated: matches!(self.target, ProbeTarget::Emulated(_)),
            fingerprint: head.fingerprint,
            conditions,
            working_set_bytes: head.working_set_bytes,
            io_engine: match &self.bench {
                Some(AnyBench::File(file)) => Some(file.engine().to_owned()),
                _ => None,
            },
            copy_bandwidth_bytes_per_s: self.bound_bytes_per_s.map(|bound| bound / COPY_BOUND),
            complete,
            rows: Vec::new(),
            rounds: Vec::new(),
            refused: Vec::new(),
        };
        let (rows, refused) = by_point(self.outcomes);
        report.refused = refused;
        for rows in rows {
            report.rounds.push(rows.iter().map(Round::of).collect());
            report.rows.push(median(rows));
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axes::Operation;

    fn judged(bandwidth_bytes_per_s: f64, bound_bytes_per_s: Option<f64>) -> Result<Row, Refusal> {
        let plan = Plan::new(
            &ProbeTarget::Dram,
            &Topology::default(),
            &PlanOptions::default(),
        );
        let run = ProbeRun {
            target: &ProbeTarget::Dram,
            plan: &plan,
            outcomes: Vec::new(),
            bench: None,
            bound_bytes_per_s,
        };
        let measured = Measured {
            bandwidth_bytes_per_s,
            beside_bandwidth_bytes_per_s: None,
            latency_ns: None,
        };
        run.judge(&Point::new(Operation::Read, 256, 1), measured)
    }

    #[test]
    fn a_number_no_machine_reaches_is_refused() {
        let refused = judged(790_776e9, Some(60e9)).unwrap_err();
        assert!(matches!(refused, Refusal::Impossible { .. }), "{refused}");
        assert!(judged(790_776e9, None).is_ok());
    }
}
