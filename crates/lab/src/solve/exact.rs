//! The linear programs, solved by Clarabel.
//!
//! Variables are the proportions `x` of the choices and the times `t` of the terms; a maximum becomes one
//! constraint per argument. Bytes are scaled by all bytes there are and times by the slowest term, so that the solver's
//! tolerances mean something.

use super::is_paper;
use clarabel::algebra::CscMatrix;
use clarabel::solver::{
    DefaultSettings, DefaultSolver, IPSolver, NonnegativeConeT, SolverStatus, SupportedConeT,
};
use hotshelf_cache::model::{Problem, Term};
use hotshelf_cache::tune::{Solution, TuneError, into_range};
use std::collections::BTreeMap;

/// Minimise `objective * v` subject to `rows * v <= bounds`.
struct LinearProgram {
    objective: Vec<f64>,
    row_idxs: Vec<usize>,
    column_idxs: Vec<usize>,
    values: Vec<f64>,
    bounds: Vec<f64>,
}

impl LinearProgram {
    fn new(objective: Vec<f64>) -> Self {
        Self {
            objective,
            row_idxs: Vec::new(),
            column_idxs: Vec::new(),
            values: Vec::new(),
            bounds: Vec::new(),
        }
    }

    /// Adds the constraint `sum of coefficient * variable <= bound`.
    fn at_most(&mut self, bound: f64, coefficients: impl IntoIterator<Item = (usize, f64)>) {
        let mut sums: BTreeMap<usize, f64> = BTreeMap::new();
        for (variable, value) in coefficients {
            *sums.entry(variable).or_default() += value;
        }
        for (variable, value) in sums {
            self.row_idxs.push(self.bounds.len());
            self.column_idxs.push(variable);
            self.values.push(value);
        }
        self.bounds.push(bound);
    }

    /// The best values of the variables and the price of each constraint.
    fn solve(self) -> Result<(Vec<f64>, Vec<f64>), TuneError> {
        let (row_count, column_count) = (self.bounds.len(), self.objective.len());
        let rows = CscMatrix::new_from_triplets(
            row_count,
            column_count,
            self.row_idxs,
            self.column_idxs,
            self.values,
        );
        let quadratic = CscMatrix::zeros((column_count, column_count));
        let cones: [SupportedConeT<f64>; 1] = [NonnegativeConeT(row_count)];
        let settings = DefaultSettings {
            verbose: false,
            max_threads: 1, // bounded by iterations, not by time: what is decided must not depend on load
            ..DefaultSettings::default()
        };
        let bounds = &self.bounds;
        let solver =
            DefaultSolver::new(&quadratic, &self.objective, &rows, bounds, &cones, settings);
        let mut solver = solver.map_err(|error| unsolved(&error))?;
        solver.solve();
        match solver.solution.status {
            SolverStatus::Solved | SolverStatus::AlmostSolved => {
                Ok((solver.solution.x.clone(), solver.solution.z.clone()))
            }
            status => Err(unsolved(&status)),
        }
    }
}

fn unsolved(status: &dyn std::fmt::Debug) -> TuneError {
    TuneError::Unsolved {
        status: format!("{status:?}"),
    }
}

/// A linear function of the variables.
#[derive(Default, Clone)]
struct Affine {
    constant: f64,
    coefficients: Vec<(usize, f64)>,
}

impl Affine {
    fn plus(mut self, factor: f64, other: &Self) -> Self {
        self.constant += factor * other.constant;
        let scaled = other.coefficients.iter();
        self.coefficients
            .extend(scaled.map(|(variable, value)| (*variable, factor * value)));
        self
    }
}

/// The parts that all programs have in common.
struct Scaled<'a> {
    problem: &'a Problem,
    /// One unit of memory, in bytes.
    byte_unit: f64,
    /// One unit of time, in seconds.
    time_unit: f64,
}

impl<'a> Scaled<'a> {
    fn new(problem: &'a Problem) -> Self {
        let all_bytes: f64 = problem.items.iter().map(|item| item.bytes).sum();
        let nothing = vec![0.0; problem.choices.len()];
        let slowest_s = problem.terms.iter().map(|term| {
            let load = problem.load(term, &nothing);
            load.processing_s.max(load.reading_s())
        });
        Self {
            problem,
            byte_unit: all_bytes.max(1.0),
            time_unit: slowest_s.fold(0.0, f64::max).max(f64::MIN_POSITIVE),
        }
    }

    fn choice_count(&self) -> usize {
        self.problem.choices.len()
    }

    /// The variable that is a term's time.
    fn time(&self, term_idx: usize) -> usize {
        self.choice_count() + term_idx
    }

    fn bound_proportions(&self, program: &mut LinearProgram) {
        for choice_idx in 0..self.choice_count() {
            program.at_most(0.0, [(choice_idx, -1.0)]);
        }
        for item in &self.problem.items {
            program.at_most(1.0, item.choices.clone().map(|idx| (idx, 1.0)));
        }
    }

    /// Each term takes at least what shelves and processing take.
    fn bound_times(&self, program: &mut LinearProgram) {
        for (term_idx, term) in self.problem.terms.iter().enumerate() {
            for argument in self.arguments(term) {
                let time = self.time(term_idx);
                let coefficients = argument.coefficients.into_iter();
                program.at_most(-argument.constant, coefficients.chain([(time, -1.0)]));
            }
        }
    }

    /// A term's time is the largest of these, in units of time.
    fn arguments(&self, term: &Term) -> Vec<Affine> {
        match is_paper(self.problem) {
            false => self.shared_arguments(term),
            true => self.paper_arguments(term),
        }
    }

    fn shared_arguments(&self, term: &Term) -> Vec<Affine> {
        let loss = self.problem.overlap_loss;
        let mut shelves = vec![Affine::default(); self.problem.shelves.len()];
        let mut processing = Affine {
            constant: term.bytes() / term.processing_bandwidth / self.time_unit,
            coefficients: Vec::new(),
        };
        for read in &term.reads {
            let item = &self.problem.items[read.item_idx];
            let pace = |shelf: usize| {
                self.problem.shelves[shelf].pace_s(item.request_bytes) / self.time_unit
            };
            shelves[item.home].constant += read.bytes * pace(item.home);
            for choice_idx in item.choices.clone() {
                let choice = &self.problem.choices[choice_idx];
                let there_bytes = read.bytes * choice.bytes / item.bytes;
                let gone = -read.bytes * pace(item.home);
                shelves[item.home].coefficients.push((choice_idx, gone));
                let come = there_bytes * pace(choice.shelf);
                shelves[choice.shelf].coefficients.push((choice_idx, come));
                let saved_s = term.processing_saved_s(choice) / self.time_unit;
                processing
                    .coefficients
                    .push((choice_idx, -read.bytes * saved_s));
            }
        }
        let mut arguments = vec![shelves[0].clone(), processing.clone()];
        for shelf in &shelves[1..] {
            arguments.push(shelf.clone().plus(loss, &processing));
            arguments.push(processing.clone().plus(loss, shelf));
        }
        arguments
    }

    fn paper_arguments(&self, term: &Term) -> Vec<Affine> {
        let all = term.bytes();
        let storage = all / self.problem.storage_bandwidth() / self.time_unit;
        let memory = all / self.problem.memory_bandwidth() / self.time_unit;
        let mut arguments = vec![Affine {
            constant: all / term.processing_bandwidth / self.time_unit,
            coefficients: Vec::new(),
        }];
        for read in &term.reads {
            arguments.push(Affine {
                constant: storage,
                coefficients: vec![(read.item_idx, -storage)],
            });
            arguments.push(Affine {
                constant: 0.0,
                coefficients: vec![(read.item_idx, memory)],
            });
        }
        arguments
    }

    /// The budgets of the shelves that have one. Returns which.
    fn bound_budgets(&self, program: &mut LinearProgram) -> Vec<usize> {
        let mut bounded = Vec::new();
        for (shelf_idx, shelf) in self.problem.shelves.iter().enumerate() {
            let choices = self.problem.choices.iter().enumerate();
            let kept: Vec<(usize, f64)> = choices
                .filter(|(_, choice)| choice.shelf == shelf_idx)
                .map(|(choice_idx, choice)| (choice_idx, choice.bytes / self.byte_unit))
                .collect();
            if kept.is_empty() || shelf.budget_bytes == f64::INFINITY {
                continue;
            }
            let all: f64 = kept.iter().map(|(_, bytes)| bytes).sum();
            let budget = shelf.budget_bytes / self.byte_unit;
            program.at_most(budget.min(all), kept); // more than everything is everything
            bounded.push(shelf_idx);
        }
        bounded
    }
}

/// Solves a problem exactly.
///
/// # Errors
/// [`TuneError::Unsolved`] if the solver gives up.
pub fn exact(problem: &Problem) -> Result<Solution, TuneError> {
    let scaled = Scaled::new(problem);
    let choice_count = scaled.choice_count();
    let has_room = |shelf: usize| problem.shelves[shelf].budget_bytes > 0.0;
    if !problem.choices.iter().any(|choice| has_room(choice.shelf)) {
        return Ok(Solution::new(problem, vec![0.0; choice_count]));
    }
    let of_terms: f64 = problem.terms.iter().map(|term| term.weight).sum();
    let of_others: f64 = problem.choices.iter().map(|choice| choice.saved_s).sum();
    let all = (of_terms + of_others / scaled.time_unit).max(f64::MIN_POSITIVE);
    let choices = problem.choices.iter();
    let mut objective: Vec<f64> = choices
        .map(|choice| -choice.saved_s / scaled.time_unit / all)
        .collect();
    objective.extend(problem.terms.iter().map(|term| term.weight / all));
    let mut program = LinearProgram::new(objective);
    let bounded = scaled.bound_budgets(&mut program);
    scaled.bound_proportions(&mut program);
    scaled.bound_times(&mut program);
    let (mut variables, prices) = program.solve()?;
    variables.truncate(choice_count);
    into_range(problem, &mut variables);
    let mut solution = Solution::new(problem, variables);
    let per_unit = scaled.time_unit / scaled.byte_unit * all;
    for (shelf_idx, price) in bounded.into_iter().zip(prices) {
        solution.prices[shelf_idx] = price.max(0.0) * per_unit;
    }
    Ok(solution)
}
