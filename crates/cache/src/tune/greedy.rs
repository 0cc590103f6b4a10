//! Greedy by marginal density: raise the item that saves most seconds per byte, as far as that rate holds. For problems
//! with [two shelves](Problem::is_two_shelves); [`super::descent`] solves the others.
//!
//! A term's savings are a concave, piecewise linear function of its cached bytes `y`: they grow by `1/S` per byte
//! until storage is no longer the slowest part, then by the part of it that processing does not hide, and shrink by
//! `1/M` per byte once memory is the slowest.

use super::certificate;
use super::descent;
use super::{Solution, Start};
use crate::key::mix;
use crate::model::{Choice, Problem};

/// One term's savings as a function of cached bytes.
pub(super) struct Savings {
    /// Up to here a cached byte saves all of its storage time.
    pub(super) grows_to: f64,
    /// From here a cached byte costs memory time.
    pub(super) shrinks_from: f64,
    rise: f64,
    /// Between the two.
    drag: f64,
    fall: f64,
}

impl Savings {
    pub(super) fn of(problem: &Problem, term_idx: usize) -> Self {
        let term = &problem.terms[term_idx];
        let (storage, memory) = (problem.storage_bandwidth(), problem.memory_bandwidth());
        let bytes = term.bytes();
        let floor_s = bytes / term.processing_bandwidth;
        let loss = problem.overlap_loss;
        let reading_s = bytes / storage;
        // Where memory takes as long as storage with what processing adds, and the other way round.
        let above_storage = (reading_s + loss * floor_s) / (1.0 / memory + 1.0 / storage);
        let above_processing = (floor_s + loss * reading_s) / (1.0 / memory + loss / storage);
        let shrinks_from = above_storage.max(above_processing);
        let at_floor = bytes - storage * floor_s;
        Self {
            grows_to: at_floor.min(shrinks_from).max(0.0),
            shrinks_from,
            rise: term.weight / storage,
            drag: loss * term.weight / storage,
            fall: -term.weight / memory,
        }
    }

    /// Seconds saved by the next cached byte.
    pub(super) fn slope(&self, cached: f64) -> f64 {
        if cached < self.grows_to {
            self.rise
        } else if cached < self.shrinks_from {
            self.drag
        } else {
            self.fall
        }
    }

    /// Where the slope next changes, above `cached`.
    fn next_kink(&self, cached: f64) -> f64 {
        if cached < self.grows_to {
            self.grows_to
        } else if cached < self.shrinks_from {
            self.shrinks_from
        } else {
            f64::INFINITY
        }
    }
}

/// A placement under way.
pub(super) struct PartialPlacement<'a> {
    pub(super) problem: &'a Problem,
    pub(super) savings: Vec<Savings>,
    /// By column: which terms read it, and how many bytes.
    pub(super) readers: Vec<Vec<(usize, f64)>>,
    pub(super) x: Vec<f64>,
    /// By term: cached bytes.
    pub(super) cached: Vec<f64>,
    /// By term: the slope of its savings.
    pub(super) slopes: Vec<f64>,
    /// By column: seconds saved by raising its proportion to 1 at the present rate.
    pub(super) gains: Vec<f64>,
    pub(super) remaining_bytes: f64,
    /// By column: by what the rise multiplies its density.
    preferences: Vec<f64>,
}

/// Further rises with other preferences, if the first leaves doubt. Exchanges of two columns cannot leave every
/// local optimum; another start usually ends in another one.
const RESTARTS_MAX: usize = 5;

/// Restarts are for small problems, where one wrong column matters: this many columns times terms in all.
const RESTART_WORK_MAX: usize = 3_000;

/// A solution that may fall short by no more than this part needs no second thought.
const GAP_MAX: f64 = 1e-4;

/// Solves a problem greedily.
pub fn greedy(problem: &Problem) -> Solution {
    greedy_from(problem, None)
}

/// The same, beginning where an earlier solution of nearly the same problem ended, if that saves time.
pub fn greedy_from(problem: &Problem, start: Option<Start<'_>>) -> Solution {
    if !problem.is_two_shelves() {
        let found = descent::descend(problem, start);
        return match start {
            Some(start) => at_least(problem, start, found),
            None => found,
        };
    }
    let mut best = rise(problem, 0);
    let work = problem.items.len() * problem.terms.len();
    let restart_count = (RESTART_WORK_MAX / work.max(1)).min(RESTARTS_MAX);
    for start in 1..=restart_count as u64 {
        if best.gap() <= GAP_MAX {
            break;
        }
        let other = rise(problem, start);
        let saved_s_max = best.saved_s_max.min(other.saved_s_max);
        if other.saved_s > best.saved_s {
            best = Solution {
                curve: best.curve,
                ..other
            };
        }
        best.saved_s_max = saved_s_max.max(best.saved_s);
    }
    best
}

/// How far sums of bytes may be off.
const ROUNDING: f64 = 1e-9;

/// The solution, or the one that it began at, if that still fits and saves more.
fn at_least(problem: &Problem, start: Start<'_>, found: Solution) -> Solution {
    let mut numbered = problem.shelves.iter().enumerate();
    let fits = start.x.len() == found.x.len()
        && numbered.all(|(shelf, of)| {
            problem.kept_on(shelf, start.x) <= of.budget_bytes * (1.0 + ROUNDING)
        });
    if !fits {
        return found;
    }
    let begun = Solution::new(problem, start.x.to_vec());
    match begun.saved_s > found.saved_s {
        true => Solution {
            saved_s_max: found.saved_s_max.max(begun.saved_s),
            prices: found.prices,
            lateness: found.lateness,
            curve: found.curve,
            ..begun
        },
        false => found,
    }
}

/// One rise and its repair. Start 0 follows the densities, others deviate from them by chance.
fn rise(problem: &Problem, start: u64) -> Solution {
    let mut state = PartialPlacement::new(problem, start);
    let mut curve = vec![(0.0, 0.0)];
    let mut saved_s = 0.0;
    while let Some(item_idx) = state.densest() {
        let gain = state.gains[item_idx];
        let step = state.raise(item_idx);
        saved_s += gain * step;
        curve.push((problem.budget_bytes() - state.remaining_bytes, saved_s));
    }
    state.improve();
    let bound = certificate::bound(&state);
    let mut solution = Solution::new(problem, state.x);
    solution.saved_s_max = bound.saved_s_max.max(solution.saved_s);
    solution.prices[0] = bound.saved_s_per_byte;
    solution.curve = curve;
    solution
}

impl<'a> PartialPlacement<'a> {
    fn new(problem: &'a Problem, start: u64) -> Self {
        let mut readers = vec![Vec::new(); problem.items.len()];
        for (term_idx, term) in problem.terms.iter().enumerate() {
            for column in &term.reads {
                readers[column.item_idx].push((term_idx, column.bytes));
            }
        }
        let savings: Vec<Savings> = (0..problem.terms.len())
            .map(|term_idx| Savings::of(problem, term_idx))
            .collect();
        let slopes: Vec<f64> = savings.iter().map(|savings| savings.slope(0.0)).collect();
        let gain = |(readers, choice): (&Vec<(usize, f64)>, &Choice)| {
            let gains = readers
                .iter()
                .map(|(term_idx, bytes)| slopes[*term_idx] * bytes);
            choice.saved_s + gains.sum::<f64>()
        };
        Self {
            problem,
            gains: readers.iter().zip(&problem.choices).map(gain).collect(),
            x: vec![0.0; problem.items.len()],
            cached: vec![0.0; problem.terms.len()],
            preferences: preferences(problem.items.len(), start),
            remaining_bytes: problem.budget_bytes(),
            savings,
            slopes,
            readers,
        }
    }

    /// Seconds that the last cached byte of a term saves.
    pub(super) fn slope_below(&self, term_idx: usize) -> f64 {
        let just_below = self.cached[term_idx] * (1.0 - 1e-9) - f64::MIN_POSITIVE;
        self.savings[term_idx].slope(just_below)
    }

    /// The column that saves most per byte, if any saves something and some budget remains.
    fn densest(&self) -> Option<usize> {
        if self.remaining_bytes <= 0.0 {
            return None;
        }
        let mut best = None;
        let mut best_density = 0.0;
        for (item_idx, column) in self.problem.items.iter().enumerate() {
            let density = self.preferences[item_idx] * self.gains[item_idx] / column.bytes;
            if self.x[item_idx] < 1.0 && density > best_density {
                best_density = density;
                best = Some(item_idx);
            }
        }
        best
    }

    /// Raises a column until its rate changes, it is full, or the budget is spent. Returns by how much.
    fn raise(&mut self, item_idx: usize) -> f64 {
        let bytes = self.problem.items[item_idx].bytes;
        let mut step = (1.0 - self.x[item_idx]).min(self.remaining_bytes / bytes);
        for (term_idx, term_bytes) in &self.readers[item_idx] {
            let cached = self.cached[*term_idx];
            let to_kink = self.savings[*term_idx].next_kink(cached) - cached;
            step = step.min(to_kink / term_bytes);
        }
        self.shift(item_idx, step);
        step
    }

    /// Changes a column's proportion, and all that depends on it.
    pub(super) fn shift(&mut self, item_idx: usize, step: f64) {
        let x = self.x[item_idx] + step;
        self.x[item_idx] = if x > 1.0 - 1e-12 { 1.0 } else { x.max(0.0) };
        self.remaining_bytes -= step * self.problem.items[item_idx].bytes;
        if self.remaining_bytes < 1e-9 * self.problem.budget_bytes() {
            self.remaining_bytes = self.remaining_bytes.min(0.0);
        }
        for reader_idx in 0..self.readers[item_idx].len() {
            let (term_idx, bytes) = self.readers[item_idx][reader_idx];
            let savings = &self.savings[term_idx];
            let mut cached = self.cached[term_idx] + step * bytes;
            for kink in [savings.grows_to, savings.shrinks_from] {
                if (cached - kink).abs() <= 1e-9 * (kink + bytes) {
                    cached = kink; // rounding must not leave a sliver before the kink
                }
            }
            self.cached[term_idx] = cached;
            let slope = savings.slope(cached);
            let change = slope - self.slopes[term_idx];
            if change != 0.0 {
                self.slopes[term_idx] = slope;
                for column in &self.problem.terms[term_idx].reads {
                    self.gains[column.item_idx] += change * column.bytes;
                }
            }
        }
    }
}

fn preferences(column_count: usize, start: u64) -> Vec<f64> {
    let chance = |item_idx| (mix(start << 32 | item_idx) >> 11) as f64 / (1u64 << 53) as f64;
    let preference = |item_idx| match start {
        0 => 1.0,
        _ => 0.5 + chance(item_idx),
    };
    (0..column_count as u64).map(preference).collect()
}
