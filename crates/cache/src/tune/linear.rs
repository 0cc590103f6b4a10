//! The questions that are solved exactly, as linear programs.
//!
//! Variables are the proportions `x` of the choices and the times `t` of the terms; a maximum becomes one
//! constraint per argument. Bytes are scaled by all bytes there are and times by the slowest term, so that the solver's
//! tolerances mean something.

use super::simplex::Program;
use super::{Goal, Solution, TuneError, into_range};
use crate::model::{Problem, Term};

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

    fn bound_proportions(&self, program: &mut Program) {
        for item in &self.problem.items {
            program.at_most(1.0, item.choices.clone().map(|idx| (idx, 1.0)));
        }
    }

    /// Each term takes at least what shelves and processing take.
    fn bound_times(&self, program: &mut Program) {
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

    /// The budgets of the shelves that have one. Returns which.
    fn bound_budgets(&self, program: &mut Program, first: usize) -> Vec<usize> {
        let mut bounded = Vec::new();
        for (shelf_idx, shelf) in self.problem.shelves.iter().enumerate().skip(first) {
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

    /// The times of each query's terms.
    fn query_terms(&self) -> Vec<Vec<usize>> {
        let mut queries: Vec<Vec<usize>> = Vec::new();
        for (term_idx, term) in self.problem.terms.iter().enumerate() {
            if queries.len() <= term.query_idx {
                queries.resize(term.query_idx + 1, Vec::new());
            }
            queries[term.query_idx].push(self.time(term_idx));
        }
        queries
    }
}

/// The best placement for a goal.
///
/// # Errors
/// [`TuneError::Unsolved`] if the solver gives up.
pub(super) fn best(problem: &Problem, goal: Goal) -> Result<Solution, TuneError> {
    best_by(problem, goal, Program::solve)
}

/// What a solver finds: the values of the variables and the prices of the constraints.
type Solved = Result<(Vec<f64>, Vec<f64>), TuneError>;

/// The same with a given solver.
pub(super) fn best_by(
    problem: &Problem,
    goal: Goal,
    solve: impl FnOnce(&Program) -> Solved,
) -> Result<Solution, TuneError> {
    let scaled = Scaled::new(problem);
    let choice_count = scaled.choice_count();
    let has_room = |shelf: usize| problem.shelves[shelf].budget_bytes > 0.0;
    if !problem.choices.iter().any(|choice| has_room(choice.shelf)) {
        return Ok(Solution::new(problem, vec![0.0; choice_count]));
    }
    let scale = match goal {
        Goal::Total => 1.0,
        Goal::Threshold { scale, .. } => scale,
    };
    let of_terms: f64 = problem.terms.iter().map(|term| term.weight).sum();
    let of_others: f64 = problem.choices.iter().map(|choice| choice.saved_s).sum();
    let all = (of_terms + of_others / scaled.time_unit).max(f64::MIN_POSITIVE);
    let choices = problem.choices.iter();
    let mut objective: Vec<f64> = choices
        .map(|choice| -scale * choice.saved_s / scaled.time_unit / all)
        .collect();
    objective.extend(problem.terms.iter().map(|term| scale * term.weight / all));
    let slowest = objective.len();
    if let Goal::Threshold { .. } = goal {
        objective.push(1.0);
    }
    let mut program = Program::new(objective);
    let bounded = scaled.bound_budgets(&mut program, 0);
    scaled.bound_proportions(&mut program);
    scaled.bound_times(&mut program);
    let mut query_rows = 0..0;
    if let Goal::Threshold { threshold_s, .. } = goal {
        program.at_most(-threshold_s / scaled.time_unit, [(slowest, -1.0)]);
        let queries = scaled.query_terms();
        query_rows = program.row_count()..program.row_count() + queries.len();
        for times in queries {
            let times = times.into_iter().map(|time| (time, 1.0));
            program.at_most(0.0, times.chain([(slowest, -1.0)]));
        }
    }
    let (mut variables, prices) = solve(&program)?;
    variables.truncate(choice_count);
    into_range(problem, &mut variables);
    let mut solution = Solution::new(problem, variables);
    let of_weight = all / scale.max(f64::MIN_POSITIVE);
    let per_unit = scaled.time_unit / scaled.byte_unit * of_weight;
    for (shelf_idx, price) in bounded.into_iter().zip(&prices) {
        solution.prices[shelf_idx] = price.max(0.0) * per_unit;
    }
    let lateness = prices[query_rows].iter();
    solution.lateness = lateness.map(|price| price.max(0.0) * of_weight).collect();
    Ok(solution)
}

/// The dual problem (§4.2): the least memory with which no query is slower than `slowdown` times what it would be
/// with everything in memory (at least 1). Returns the proportions; the memory budget of the problem is ignored.
///
/// # Errors
/// [`TuneError::Infeasible`] for a slowdown below 1, [`TuneError::Unsolved`] if the solver gives up.
pub fn least_memory(problem: &Problem, slowdown: f64) -> Result<Solution, TuneError> {
    least_memory_by(problem, slowdown, Program::solve)
}

/// The same with a given solver.
pub(super) fn least_memory_by(
    problem: &Problem,
    slowdown: f64,
    solve: impl FnOnce(&Program) -> Solved,
) -> Result<Solution, TuneError> {
    if slowdown.is_nan() || slowdown < 1.0 {
        return Err(TuneError::Infeasible { slowdown });
    }
    let unbounded = problem.with_budget(f64::INFINITY);
    let scaled = Scaled::new(&unbounded);
    if scaled.choice_count() == 0 {
        return Ok(Solution::new(problem, Vec::new()));
    }
    let memory_bytes = problem.choices.iter().map(|choice| match choice.shelf {
        0 => choice.bytes / scaled.byte_unit,
        _ => 0.0,
    });
    let mut objective: Vec<f64> = memory_bytes.collect();
    objective.extend(problem.terms.iter().map(|_| 0.0));
    let mut program = Program::new(objective);
    scaled.bound_budgets(&mut program, 1);
    scaled.bound_proportions(&mut program);
    scaled.bound_times(&mut program);
    let in_memory_s = problem.query_s(&problem.all_in_memory());
    for (times, in_memory_s) in scaled.query_terms().into_iter().zip(in_memory_s) {
        let times = times.into_iter().map(|time| (time, 1.0));
        program.at_most(slowdown * in_memory_s / scaled.time_unit, times);
    }
    let (mut variables, _) = solve(&program)?;
    variables.truncate(problem.choices.len());
    into_range(&unbounded, &mut variables);
    Ok(Solution::new(problem, variables))
}
