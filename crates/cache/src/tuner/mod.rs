//! Continuous tuning (HPCache §4.3): observations in, placements out.
//!
//! [`Tuner`] is the pure part: one [`Tuner::step`] takes what is known at a moment and says what to do. Its clock is
//! an argument. [`TunerThread`] calls it every 200 ms for a [`CacheManager`](crate::CacheManager).

mod appraisal;
mod bandwidth;
mod contest;
#[cfg(test)]
mod price_tests;
mod report;
mod situation;
#[cfg(test)]
mod tests;
mod thread;

pub(crate) use appraisal::{Appraisal, Value};
pub use bandwidth::StorageProgress;
pub use report::{AdviceRow, Bound, PipelineRow, TargetRow, TunerStats};
pub use thread::TunerThread;

use crate::key::ColumnId;
use crate::model::{ItemUse, Observation, Problem, Shelf, Smoothing, Tiers, WindowOptions};
use crate::placement::Placement;
use crate::policy::PolicyKind;
use crate::price::{Prices, ShelfPrice};
use crate::tune::{Goal, Method, Solution, TuneError, TuneOptions, refine_prices};
use bandwidth::BandwidthMeter;
use contest::Contest;
use situation::Situation;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a tuner works.
#[derive(Debug, Clone, PartialEq)]
pub struct TunerOptions {
    /// Time between steps, in milliseconds.
    pub period_ms: u64,
    /// How the past fades.
    pub window: WindowOptions,
    /// Other ways for it to fade. They compete with the window's own, and the one whose placements would have served
    /// the latest queries best decides. None: no competition.
    pub rivals: Vec<Smoothing>,
    /// Another method than the product's own, for experiments.
    pub method: Option<Method>,
    /// The objective.
    pub goal: Goal,
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
            rivals: [1.0, 16.0, 64.0].map(Smoothing::half_life).to_vec(),
            method: None,
            goal: Goal::Total,
            storage_bandwidth: None,
            memory_bandwidth: 10e9,
            skip_below: 0.02,
            stay_below: 0.01,
        }
    }
}

impl TunerOptions {
    /// The same with one way to look back and no competition.
    pub fn with_smoothing(mut self, smoothing: Smoothing) -> Self {
        self.window.smoothing = smoothing;
        self.rivals = Vec::new();
        self
    }
}

/// The input of one step of a tuner.
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
    /// Shelves between memory and the storage, fastest first. The engine has none; simulations do.
    pub between: &'a [Shelf],
    /// What else competes for the shelves than columns.
    pub uses: &'a [ItemUse],
    /// The time by which uses of columns become rates, as those of other items do: the cache's
    /// [`UseClock`](crate::UseClock), in seconds.
    pub use_s: f64,
}

/// What a step came to.
#[derive(Debug, Clone, PartialEq)]
pub enum TunerStep {
    /// Nothing moved: the last placement stands.
    Skipped,
    /// A new placement.
    Placed(Placement),
    /// None can be found: the last placement remains in force.
    Failed(TuneError),
}

/// The pure part of the tuner.
#[derive(Debug, Clone)]
pub struct Tuner {
    options: TunerOptions,
    contest: Contest,
    storage: BandwidthMeter,
    memory_bandwidth: f64,
    overlap_loss: f64,
    solved: Option<Arc<Solved>>,
    stats: TunerStats,
    /// When the last step was, by the clock of uses.
    stepped_at_s: Option<f64>,
    /// How far predictions are off, as a part; fades.
    prediction_error: f64,
}

/// The last problem that was solved.
#[derive(Debug, Clone)]
struct Solved {
    problem: Problem,
    options: TuneOptions,
    solution: Solution,
    /// What the window's templates weighed together.
    weight: f64,
    /// Whether more work would not make its prices better.
    has_refined_prices: bool,
}

impl Tuner {
    /// A tuner that knows nothing yet.
    pub fn new(options: TunerOptions) -> Self {
        Self {
            contest: Contest::new(&options.window, &options.rivals),
            storage: BandwidthMeter::new(options.storage_bandwidth),
            memory_bandwidth: sane_bandwidth(options.memory_bandwidth),
            overlap_loss: OVERLAP_LOSS,
            solved: None,
            stats: TunerStats::default(),
            stepped_at_s: None,
            prediction_error: 1.0,
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
        if (&options.window, &options.rivals) != (&self.options.window, &self.options.rivals) {
            self.contest = Contest::new(&options.window, &options.rivals);
        }
        self.options = options;
    }

    /// Takes in what happened and decides. `now_ns` is a monotonic clock; if it jumps nonetheless, the bandwidth
    /// sample of that step is ignored.
    pub fn step(&mut self, now_ns: u64, input: &TunerInput<'_>) -> TunerStep {
        self.stats.step_count += 1;
        self.storage.sample(now_ns, input.storage);
        let since_s = self.stepped_at_s.map(|at| input.use_s - at);
        self.contest.pass(since_s.unwrap_or(0.0));
        self.stepped_at_s = Some(input.use_s);
        for observation in input.observations {
            self.judge_prediction(observation);
            self.contest.observe(observation);
            self.learn_memory_bandwidth(observation);
            self.learn_overlap(observation);
        }
        if !self.tiers().is_known() {
            // Without a single read there is nothing to tune, which is not a failure.
            self.stats.skip_count += 1;
            return TunerStep::Skipped;
        }
        let situation = self.situation(input);
        self.contest.judge(input.observations, &situation);
        let window = self.contest.window();
        let span_s = window.span_s();
        let problem = situation.problem_with(&window.terms(), input.uses, span_s);
        let stands = self.solved.as_ref().is_some_and(|solved| {
            solved.options == situation.options && !situation.has_moved(&problem, &solved.problem)
        });
        if stands {
            self.stats.skip_count += 1;
            self.refine_prices();
            return TunerStep::Skipped;
        }
        self.solve(problem, &situation, input.resident)
    }

    fn situation<'a>(&self, input: &TunerInput<'a>) -> Situation<'a> {
        Situation {
            sizes: input.sizes,
            capacity_bytes: input.capacity_bytes,
            tiers: self.tiers(),
            overlap_loss: self.overlap_loss,
            options: TuneOptions {
                goal: self.options.goal,
                method: self.options.method,
            },
            skip_below: self.options.skip_below,
            stay_below: self.options.stay_below,
            between: input.between,
        }
    }

    fn solve(
        &mut self,
        problem: Problem,
        situation: &Situation<'_>,
        resident: &BTreeMap<ColumnId, u64>,
    ) -> TunerStep {
        self.stats.solve_count += 1;
        let solved = self.solved.as_ref();
        let last = solved.map(|solved| solved.solution.placement(&solved.problem));
        let held_bytes = |column| resident.get(&column).copied().unwrap_or(0) as f64;
        let solution = match problem.is_two_shelves() {
            true => situation.solve(&problem, last.as_ref(), held_bytes),
            false => {
                situation.solve_again(&problem, solved.map(|last| (&last.problem, &last.solution)))
            }
        };
        match solution {
            Ok(solution) => {
                let placement = solution.placement(&problem);
                self.stats.note(&problem, &solution);
                let is_descent = situation.options.method.is_none()
                    && situation.options.goal == Goal::Total
                    && !problem.is_two_shelves();
                self.solved = Some(Arc::new(Solved {
                    has_refined_prices: !is_descent,
                    problem,
                    options: situation.options,
                    solution,
                    weight: self.contest.window().weight(),
                }));
                TunerStep::Placed(placement)
            }
            Err(error) => {
                self.stats.failure_count += 1;
                self.stats.last_error = Some(error.to_string());
                TunerStep::Failed(error)
            }
        }
    }

    /// A step without news has time for prices: a solution that began at the last one leaves them a little off.
    fn refine_prices(&mut self) {
        let Some(solved) = self
            .solved
            .as_mut()
            .filter(|solved| !solved.has_refined_prices)
        else {
            return;
        };
        let solved = Arc::make_mut(solved);
        refine_prices(&solved.problem, &mut solved.solution);
        solved.has_refined_prices = true;
    }

    /// The bandwidths as known now; zero while unknown.
    pub fn tiers(&self) -> Tiers {
        Tiers {
            storage_bandwidth: self.storage.bandwidth().unwrap_or(0.0),
            memory_bandwidth: self.memory_bandwidth,
        }
    }

    /// What the last solution keeps of each column on a shelf. Empty before there is one.
    pub fn placement_on(&self, shelf: usize) -> Placement {
        let placement = |solved: &Arc<Solved>| solved.solution.placement_on(&solved.problem, shelf);
        self.solved.as_ref().map(placement).unwrap_or_default()
    }

    /// The bandwidths as known now, and the prices of the shelves as the last solution has them. They hold until the
    /// next step finds others.
    pub fn prices(&self) -> Prices {
        let tiers = self.tiers();
        let Some(solved) = &self.solved else {
            return Prices {
                tiers,
                ..Prices::default()
            };
        };
        let per_s = self.per_s(solved);
        let mut prices = Prices {
            confidence: (1.0 - solved.solution.gap()) / (1.0 + self.prediction_error),
            tiers,
            ..Prices::default()
        };
        for (shelf, saved_s) in solved.solution.prices.iter().enumerate() {
            let uses = solved.uses_per_byte(shelf);
            prices.shelves[shelf] = ShelfPrice {
                saved_s_per_byte_s: saved_s * per_s,
                refill_s_per_byte: if uses > 0.0 { saved_s / uses } else { 0.0 },
            };
        }
        prices
    }

    /// What makes weighted seconds of a solution's problem seconds per second. The solution stands while only weights'
    /// proportions matter: what they add up to has changed since.
    fn per_s(&self, solved: &Solved) -> f64 {
        let window = self.contest.window();
        match solved.weight > 0.0 {
            true => window.weight() / solved.weight / window.span_s(),
            false => 1.0 / solved.problem.span_s,
        }
    }

    fn judge_prediction(&mut self, observation: &Observation) {
        let predicted_s = self.predicted_s(observation.template, observation.pipeline);
        let (Some(predicted_s), Some(run_s)) = (predicted_s, observation.run_s()) else {
            return;
        };
        if observation.finished && run_s > 0.0 {
            let error = (predicted_s / run_s - 1.0).abs().min(PREDICTION_ERROR_MAX);
            self.prediction_error += PREDICTION_LEARNING * (error - self.prediction_error);
        }
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

/// The weight of one run in the average error of predictions.
const PREDICTION_LEARNING: f64 = 0.2;
/// Beyond this a prediction is as wrong as it can be.
const PREDICTION_ERROR_MAX: f64 = 10.0;

/// The part of the shorter of reading and processing that is not hidden, before anything was measured.
const OVERLAP_LOSS: f64 = 0.1;
/// More than this would mean no overlap at all.
const OVERLAP_LOSS_MAX: f64 = 0.5;
/// The weight of one run in that average.
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
