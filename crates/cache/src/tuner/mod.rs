//! Continuous tuning (HPCache §4.3): observations in, placements out.
//!
//! [`Tuner`] is the pure part: one [`Tuner::step`] takes what is known at a moment and says what to do. Its clock is
//! an argument. [`TunerThread`] calls it every 200 ms for a [`CacheManager`](crate::CacheManager).

mod bandwidth;
mod report;
#[cfg(test)]
mod tests;
mod thread;

pub use bandwidth::StorageProgress;
pub use report::{AdviceRow, Bound, PipelineRow, TargetRow, TunerStats};
pub use thread::TunerThread;

use crate::key::ColumnId;
use crate::model::{LookBackWindow, ModelForm, Observation, Problem, Tiers, WindowOptions};
use crate::placement::Placement;
use crate::policy::PolicyKind;
use crate::tune::{Goal, Solution, Solver, TuneError, TuneOptions, solve};
use bandwidth::BandwidthMeter;
use std::collections::BTreeMap;

/// How a tuner works.
#[derive(Debug, Clone, PartialEq)]
pub struct TunerOptions {
    /// Time between steps, in milliseconds.
    pub period_ms: u64,
    /// How the past fades.
    pub window: WindowOptions,
    /// Model, goal and solver. `None`: what the policy is made for, i.e. the shared form and the greedy solver,
    /// or for `hpcache-paper` the paper's form and the exact solver.
    pub tune: Option<TuneOptions>,
    /// The storage's bandwidth in bytes per second, as far as known before anything was measured.
    pub storage_bandwidth: Option<f64>,
    /// The memory's bandwidth in bytes per second. Pipelines that turn out to be faster raise it.
    pub memory_bandwidth: f64,
    /// A step is skipped when no input of the model has changed by more than this part since the last solution.
    pub skip_below: f64,
    /// What is in memory, or the last placement, stays although a better one is known, if the predicted time is not
    /// longer by more than this part. Every change costs reads.
    pub stay_below: f64,
}

impl Default for TunerOptions {
    fn default() -> Self {
        Self {
            period_ms: 200,
            window: WindowOptions::default(),
            tune: None,
            storage_bandwidth: None,
            memory_bandwidth: 10e9,
            skip_below: 0.02,
            stay_below: 0.01,
        }
    }
}

/// What a tuner is told at a step.
#[derive(Debug, Clone, PartialEq)]
pub struct TunerInput<'a> {
    /// Pipeline runs since the last step, finished or under way.
    pub observations: &'a [Observation],
    /// What the storage did since the beginning.
    pub storage: StorageProgress,
    /// The columns that exist and their sizes in charged bytes.
    pub sizes: &'a BTreeMap<ColumnId, u64>,
    /// What of them is in memory, in charged bytes.
    pub resident: &'a BTreeMap<ColumnId, u64>,
    /// Bytes that may be kept.
    pub capacity_bytes: u64,
    /// The policy that will carry the placement out.
    pub policy: PolicyKind,
}

/// What a step came to.
#[derive(Debug, Clone, PartialEq)]
pub enum TunerStep {
    /// Nothing moved: the last placement stands.
    Skipped,
    /// A new placement.
    Placed(Placement),
    /// There is none to be had: the last placement stands.
    Failed(TuneError),
}

/// The pure part of the tuner.
#[derive(Debug, Clone)]
pub struct Tuner {
    options: TunerOptions,
    window: LookBackWindow,
    storage: BandwidthMeter,
    memory_bandwidth: f64,
    overlap_loss: f64,
    solved: Option<Solved>,
    stats: TunerStats,
}

/// The last problem that was solved.
#[derive(Debug, Clone)]
struct Solved {
    problem: Problem,
    options: TuneOptions,
    solution: Solution,
}

impl Tuner {
    /// A tuner that knows nothing yet.
    pub fn new(options: TunerOptions) -> Self {
        Self {
            window: LookBackWindow::new(options.window.clone()),
            storage: BandwidthMeter::new(options.storage_bandwidth),
            memory_bandwidth: sane_bandwidth(options.memory_bandwidth),
            overlap_loss: OVERLAP_LOSS,
            solved: None,
            stats: TunerStats::default(),
            options,
        }
    }

    /// Forgets all that was learned, as if it had been made now.
    pub fn forget(&mut self, now_ns: u64, storage: StorageProgress) {
        *self = Self::new(self.options.clone());
        self.storage.begin_at(now_ns, storage);
    }

    /// The options in force.
    pub fn options(&self) -> &TunerOptions {
        &self.options
    }

    /// Changes the options. A window that fades otherwise begins anew; the bandwidths learned stay.
    pub fn configure(&mut self, options: TunerOptions) {
        if options.window != self.options.window {
            self.window = LookBackWindow::new(options.window.clone());
        }
        self.options = options;
    }

    /// Takes in what happened and decides. `now_ns` is a monotonic clock; if it jumps nonetheless, the bandwidth
    /// sample of that step is ignored.
    pub fn step(&mut self, now_ns: u64, input: &TunerInput<'_>) -> TunerStep {
        self.stats.step_count += 1;
        self.storage.sample(now_ns, input.storage);
        for observation in input.observations {
            self.window.observe(observation);
            self.learn_memory_bandwidth(observation);
            self.learn_overlap(observation);
        }
        let options = self.tune_options(input.policy);
        let tiers = self.tiers();
        if !tiers.is_known() {
            // Without a single read there is nothing to tune; that is no failure.
            self.stats.skip_count += 1;
            return TunerStep::Skipped;
        }
        let mut problem = Problem::new(
            &self.window.terms(),
            input.sizes,
            tiers,
            input.capacity_bytes,
            options.form,
        );
        if options.form == ModelForm::Shared {
            problem.overlap_loss = self.overlap_loss;
        }
        let stands = self.solved.as_ref().is_some_and(|solved| {
            solved.options == options && !problem.differs(&solved.problem, self.options.skip_below)
        });
        if stands {
            self.stats.skip_count += 1;
            return TunerStep::Skipped;
        }
        self.solve(problem, options, input.resident)
    }

    fn solve(
        &mut self,
        problem: Problem,
        options: TuneOptions,
        resident: &BTreeMap<ColumnId, u64>,
    ) -> TunerStep {
        self.stats.solve_count += 1;
        match solve(&problem, &options) {
            Ok(mut solution) => {
                if options.form == ModelForm::Shared && options.goal == Goal::Total {
                    self.stay(&problem, resident, &mut solution);
                }
                let placement = solution.placement(&problem);
                self.stats.note(&problem, &solution);
                self.solved = Some(Solved {
                    problem,
                    options,
                    solution,
                });
                TunerStep::Placed(placement)
            }
            Err(error) => {
                self.stats.failure_count += 1;
                self.stats.last_error = Some(error.to_string());
                TunerStep::Failed(error)
            }
        }
    }

    /// Prefers the last placement, or else what is in memory anyway, to a solution that is hardly better.
    fn stay(&self, problem: &Problem, resident: &BTreeMap<ColumnId, u64>, solution: &mut Solution) {
        let last = self
            .solved
            .as_ref()
            .map(|solved| solved.solution.placement(&solved.problem));
        let columns = || problem.columns.iter();
        let placed = last.map(|last| {
            columns()
                .map(|column| last.proportion(column.column))
                .collect()
        });
        let in_memory = columns().map(|column| {
            let bytes = resident.get(&column.column).copied().unwrap_or(0) as f64;
            (bytes / column.bytes).min(1.0)
        });
        let candidates: [Option<Vec<f64>>; 2] = [placed, Some(in_memory.collect())];
        let longest_s = solution.total_s * (1.0 + self.options.stay_below);
        for mut x in candidates.into_iter().flatten() {
            let excess = problem.kept_bytes(&x) / problem.budget_bytes;
            if excess > 1.0 {
                x.iter_mut().for_each(|x| *x /= excess);
            }
            let total_s = problem.total_s(&x);
            if total_s <= longest_s {
                solution.saved_s += solution.total_s - total_s;
                solution.total_s = total_s;
                solution.x = x;
                return;
            }
        }
    }

    /// The bandwidths as known now; zero while unknown.
    pub fn tiers(&self) -> Tiers {
        Tiers {
            storage_bandwidth: self.storage.bandwidth().unwrap_or(0.0),
            memory_bandwidth: self.memory_bandwidth,
        }
    }

    fn tune_options(&self, policy: PolicyKind) -> TuneOptions {
        self.options.tune.unwrap_or(match policy {
            PolicyKind::HpCachePaper => TuneOptions {
                form: ModelForm::Paper,
                goal: Goal::Total,
                solver: Solver::Exact,
            },
            _ => TuneOptions::default(),
        })
    }

    /// A run that read and processed shows how much of the shorter was hidden.
    fn learn_overlap(&mut self, observation: &Observation) {
        let (Some(storage), Some(run_s)) = (self.storage.bandwidth(), observation.run_s()) else {
            return;
        };
        let reading_s = observation.storage_bytes as f64 / storage;
        let processing_s = observation.busy_ns as f64 * 1e-9 / f64::from(observation.worker_count);
        let (shorter_s, longer_s) = (reading_s.min(processing_s), reading_s.max(processing_s));
        let says_something = observation.finished
            && longer_s >= OVERLAP_RUN_S_MIN
            && shorter_s >= OVERLAP_PART_MIN * longer_s;
        if says_something {
            let loss = ((run_s - longer_s) / shorter_s).clamp(0.0, OVERLAP_LOSS_MAX);
            self.overlap_loss += OVERLAP_LEARNING * (loss - self.overlap_loss);
        }
    }

    /// A pipeline that processes faster than the memory is thought to be shows that it is not.
    fn learn_memory_bandwidth(&mut self, observation: &Observation) {
        let processing = observation.processing_bandwidth().unwrap_or(0.0);
        if observation.finished && processing > self.memory_bandwidth {
            self.memory_bandwidth += 0.5 * (processing - self.memory_bandwidth);
        }
    }
}

/// The part of the shorter of reading and processing that is not hidden, before anything was measured.
const OVERLAP_LOSS: f64 = 0.1;
/// More than this would be no overlap at all.
const OVERLAP_LOSS_MAX: f64 = 0.5;
/// How much a run changes what is known of it.
const OVERLAP_LEARNING: f64 = 0.2;
/// Runs whose shorter part is shorter than this part of the longer say nothing about it, nor do short runs.
const OVERLAP_PART_MIN: f64 = 0.2;
const OVERLAP_RUN_S_MIN: f64 = 0.02;

fn sane_bandwidth(bandwidth: f64) -> f64 {
    if bandwidth.is_finite() && bandwidth > 0.0 {
        return bandwidth;
    }
    TunerOptions::default().memory_bandwidth
}
