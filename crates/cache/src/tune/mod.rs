//! Which part of each item to keep where: solvers of the [`Problem`] and the pure function [`tune`].
//!
//! * [`greedy`] raises the item with the most saved seconds per byte until nothing more is saved, in microseconds,
//!   and says with a certificate how far from the optimum it may be. Where items have several choices, `descent`
//!   moves parts of them from choice to choice instead.
//! * [`exact`] solves the linear program with Clarabel, an interior-point solver.
//!
//! [`Problem`]: crate::model::Problem

mod certificate;
mod clearing;
mod descent;
mod exact;
mod greedy;
mod greedy_paper;
mod improve;
mod instances;
#[cfg(test)]
mod laws;
mod leap;
mod level;
mod moves;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod oracle_laws;
mod settle;
#[cfg(test)]
mod shelf_laws;
mod smooth;

pub use descent::{Start, refine_prices};
pub(crate) use exact::into_range;
pub use exact::{exact, least_memory};
pub use greedy::{greedy, greedy_from};
pub use instances::{InstanceSize, random_instance};

use crate::key::ColumnId;
use crate::model::{Item, LookBackWindow, ModelForm, Problem, Tiers};
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
    /// so that queries which can or cannot reach the threshold anyway are not forgotten. Always solved exactly.
    Threshold {
        /// The response time to stay below, in seconds.
        threshold_s: f64,
        /// The factor of the weighted time, for example 0.001.
        scale: f64,
    },
}

/// How to solve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Solver {
    /// Greedy with certificate.
    #[default]
    Greedy,
    /// Clarabel.
    Exact,
}

/// How a placement is found.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TuneOptions {
    /// The model.
    pub form: ModelForm,
    /// The objective.
    pub goal: Goal,
    /// The solver.
    pub solver: Solver,
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
    /// Bytes kept and seconds saved after each step of the greedy solver: what smaller budgets would buy.
    pub curve: Vec<(f64, f64)>,
}

impl Solution {
    fn new(problem: &Problem, x: Vec<f64>) -> Self {
        let total_s = problem.total_s(&x);
        let saved_s = problem.total_s(&vec![0.0; x.len()]) - total_s;
        Self {
            x,
            total_s,
            saved_s,
            saved_s_max: saved_s,
            prices: vec![0.0; problem.shelves.len()],
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
    /// The exact solver gave up.
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
/// [`TuneError`] if the bandwidths are unknown or the exact solver fails; the caller keeps what it has.
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
    let problem = Problem::new(&window.terms(), sizes, shelves, options.form);
    let solution = solve(&problem, options)?;
    Ok(Decision {
        placement: solution.placement(&problem),
        problem,
        solution,
    })
}

/// Solves a problem as the options say. Of the placements of the shared form that are equally good on two shelves it is
/// the most even.
///
/// # Errors
/// [`TuneError::Unsolved`] if the exact solver fails.
pub fn solve(problem: &Problem, options: &TuneOptions) -> Result<Solution, TuneError> {
    solve_from(problem, options, None)
}

/// [`solve`], beginning where an earlier solution of nearly the same problem ended.
///
/// # Errors
/// [`TuneError::Unsolved`] if the exact solver fails.
pub fn solve_from(
    problem: &Problem,
    options: &TuneOptions,
    start: Option<Start<'_>>,
) -> Result<Solution, TuneError> {
    let mut solution = match (options.goal, options.solver) {
        (Goal::Total, Solver::Greedy) => greedy_from(problem, start),
        (goal, _) => exact(problem, goal)?,
    };
    if problem.form == ModelForm::Shared && problem.is_two_shelves() {
        level::level(problem, &mut solution.x);
    }
    Ok(solution)
}
