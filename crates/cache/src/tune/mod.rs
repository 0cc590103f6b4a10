//! Which part of each item to keep where: solvers of the [`Problem`] and the pure function [`tune`].
//!
//! * [`greedy`] raises the item with the most saved seconds per byte until nothing more is saved, in microseconds,
//!   and says with a certificate how far from the optimum it may be. Where items have several choices, `descent`
//!   moves parts of them from choice to choice instead.
//! * `linear` solves two other questions as linear programs, exactly: which placement makes the slowest query fastest
//!   ([`Goal::Threshold`]), and how little memory suffices ([`least_memory`]).
//!
//! [`Problem`]: crate::model::Problem

mod certificate;
mod clearing;
mod descent;
#[cfg(test)]
mod exact;
mod greedy;
mod improve;
mod instances;
#[cfg(test)]
mod laws;
mod leap;
mod level;
mod linear;
mod moves;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod oracle_laws;
mod settle;
#[cfg(test)]
mod shelf_laws;
mod simplex;
mod smooth;

pub use descent::{Start, refine_prices};
pub use greedy::{greedy, greedy_from};
pub use instances::{InstanceSize, random_instance};
pub use linear::least_memory;

use crate::key::ColumnId;
use crate::model::{Item, LookBackWindow, Problem, TermTime, Tiers};
use crate::placement::{ColumnShare, Placement};
use std::collections::BTreeMap;
use thiserror::Error;

/// What is minimised.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Goal {
    /// The weighted time of all queries (Equation 4).
    #[default]
    Total,
    /// Equation 5: the slowest query, as far as it is slower than a threshold; plus a scaled-down weighted time,
    /// so that queries which can or cannot reach the threshold anyway are not forgotten. Solved exactly.
    Threshold {
        /// The response time to stay below, in seconds.
        threshold_s: f64,
        /// The factor of the weighted time, for example 0.001.
        scale: f64,
    },
}

/// Another way to place than the product's own, for experiments that compare methods: a model and its solver.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// The model.
    pub time: TermTime,
    /// Solves a problem of that model.
    pub solve: fn(&Problem) -> Result<Solution, TuneError>,
}

impl PartialEq for Method {
    fn eq(&self, other: &Self) -> bool {
        self.time == other.time
    }
}

/// How a placement is found.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TuneOptions {
    /// The objective.
    pub goal: Goal,
    /// Another method than the product's own. It knows no goal but the weighted time.
    pub method: Option<Method>,
}

/// A solved problem.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// The proportion of each choice of the problem.
    pub x: Vec<f64>,
    /// Weighted time under `x`, in seconds.
    pub total_s: f64,
    /// Weighted time saved against keeping nothing, in seconds.
    pub saved_s: f64,
    /// No placement saves more than this, in seconds.
    pub saved_s_max: f64,
    /// What one more byte of budget would save on each shelf, in seconds per byte: its price. The first is memory's.
    pub prices: Vec<f64>,
    /// What a second of each query counts beyond its weight, because the goal is a threshold that it misses, in
    /// weighted seconds. Empty: nothing.
    pub lateness: Vec<f64>,
    /// Bytes kept and seconds saved after each step of the greedy solver: what smaller budgets would buy.
    pub curve: Vec<(f64, f64)>,
}

impl Solution {
    /// What proportions `x` come to. The prices are zero.
    pub fn new(problem: &Problem, x: Vec<f64>) -> Self {
        let total_s = problem.total_s(&x);
        let saved_s = problem.total_s(&vec![0.0; x.len()]) - total_s;
        Self {
            x,
            total_s,
            saved_s,
            saved_s_max: saved_s,
            prices: vec![0.0; problem.shelves.len()],
            lateness: Vec::new(),
            curve: Vec::new(),
        }
    }

    /// By how much the savings may fall short of the best, as a part of the best.
    pub fn gap(&self) -> f64 {
        if self.saved_s_max <= self.saved_s {
            return 0.0;
        }
        1.0 - self.saved_s / self.saved_s_max
    }

    /// What one more byte of memory would save, in seconds.
    pub fn saved_s_per_byte(&self) -> f64 {
        self.prices[0]
    }

    /// By what factor the goal makes the time of a template's queries matter more than their weights do: 1, or more for
    /// those that are slower than the threshold.
    pub fn urgency(&self, problem: &Problem, template: u64) -> f64 {
        let terms = || {
            problem
                .terms
                .iter()
                .filter(|term| term.template == template)
        };
        let weight = terms().map(|term| term.weight).fold(0.0, f64::max);
        let query = terms().next().map(|term| term.query_idx);
        let late = query.and_then(|idx| self.lateness.get(idx));
        match (late, weight > 0.0) {
            (Some(late), true) => 1.0 + late / weight,
            _ => 1.0,
        }
    }

    /// The part of an item that is on a shelf.
    pub fn proportion(&self, problem: &Problem, item: &Item, shelf: usize) -> f64 {
        let choices = item.choices.clone();
        let there = choices.filter(|choice_idx| problem.choices[*choice_idx].shelf == shelf);
        there.map(|choice_idx| self.x[choice_idx]).sum()
    }

    /// What the solution keeps of each column in memory.
    pub fn placement(&self, problem: &Problem) -> Placement {
        self.placement_on(problem, 0)
    }

    /// What the solution keeps of each column on a shelf: from the beginning in memory, from the end on the shelf above
    /// the last, so that neither moves when the other changes; what follows the faster shelves on those between.
    pub fn placement_on(&self, problem: &Problem, shelf: usize) -> Placement {
        let share = |item: &Item| {
            let on = |shelf| self.proportion(problem, item, shelf);
            Some(ColumnShare {
                column: item.id.as_column()?,
                bytes: item.bytes as u64,
                proportion: on(shelf),
                from: match shelf > 0 && shelf + 2 == problem.shelves.len() {
                    true => 1.0,
                    false => (0..shelf).map(on).sum(),
                },
            })
        };
        Placement::new(problem.items.iter().filter_map(share))
    }
}

/// Why there is no placement.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum TuneError {
    /// Nothing is known about the machine yet.
    #[error(
        "the model needs the bandwidths of storage and memory, not {storage_bandwidth} and {memory_bandwidth}"
    )]
    UnknownBandwidth {
        /// Bandwidth of the storage as far as known, in bytes per second.
        storage_bandwidth: f64,
        /// Bandwidth of the memory as far as known, in bytes per second.
        memory_bandwidth: f64,
    },
    /// A solver gave up.
    #[error("the solver stopped with {status}")]
    Unsolved {
        /// The solver's own words.
        status: String,
    },
    /// No placement meets the constraints.
    #[error("no placement keeps every query within {slowdown} times its in-memory time")]
    Infeasible {
        /// What was asked for.
        slowdown: f64,
    },
}

/// What [`tune`] decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What to keep.
    pub placement: Placement,
    /// The problem that was solved.
    pub problem: Problem,
    /// Its solution.
    pub solution: Solution,
}

/// Decides what to keep: the look-back window and the columns that exist (with their sizes in bytes) against the
/// machine and the budget. Without observations the placement is empty.
///
/// # Errors
/// [`TuneError`] if the bandwidths are unknown or the solver fails; the caller keeps what it has.
pub fn tune(
    window: &LookBackWindow,
    sizes: &BTreeMap<ColumnId, u64>,
    tiers: Tiers,
    budget_bytes: u64,
    options: &TuneOptions,
) -> Result<Decision, TuneError> {
    if !tiers.is_known() {
        return Err(TuneError::UnknownBandwidth {
            storage_bandwidth: tiers.storage_bandwidth,
            memory_bandwidth: tiers.memory_bandwidth,
        });
    }
    let shelves = tiers.shelves(budget_bytes as f64);
    let mut problem = Problem::new(&window.terms(), sizes, shelves);
    problem.term_time = options.method.map(|method| method.time);
    let solution = solve(&problem, options)?;
    Ok(Decision {
        placement: solution.placement(&problem),
        problem,
        solution,
    })
}

/// Solves a problem as the options say. Of the placements that are equally good on two shelves it is the most even.
///
/// # Errors
/// [`TuneError::Unsolved`] if the solver fails.
pub fn solve(problem: &Problem, options: &TuneOptions) -> Result<Solution, TuneError> {
    solve_from(problem, options, None)
}

/// [`solve`], beginning where an earlier solution of nearly the same problem ended.
///
/// # Errors
/// [`TuneError::Unsolved`] if the solver fails.
pub fn solve_from(
    problem: &Problem,
    options: &TuneOptions,
    start: Option<Start<'_>>,
) -> Result<Solution, TuneError> {
    if let Some(method) = options.method {
        return (method.solve)(problem);
    }
    let mut solution = match options.goal {
        Goal::Total => greedy_from(problem, start),
        goal => linear::best(problem, goal)?,
    };
    if problem.is_two_shelves() {
        level::level(problem, &mut solution.x);
    }
    Ok(solution)
}

/// Brings proportions into range and within the budgets exactly.
pub fn into_range(problem: &Problem, x: &mut [f64]) {
    for x in x.iter_mut() {
        *x = if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) };
    }
    for item in &problem.items {
        let sum: f64 = x[item.choices.clone()].iter().sum();
        if sum > 1.0 {
            x[item.choices.clone()].iter_mut().for_each(|x| *x /= sum);
        }
    }
    for (shelf_idx, shelf) in problem.shelves.iter().enumerate() {
        let excess = problem.kept_on(shelf_idx, x) / shelf.budget_bytes;
        if excess > 1.0 {
            let choices = problem.choices.iter().zip(x.iter_mut());
            let there = choices.filter(|(choice, _)| choice.shelf == shelf_idx);
            there.for_each(|(_, x)| *x /= excess);
        }
    }
}
