//! The linear programs, solved by Clarabel.
//!
//! Variables are the proportions `x` of the columns and the times `t` of the terms; a maximum becomes one
//! constraint per argument. Bytes are scaled by the budget's order of magnitude and times by the slowest total, so
//! that the solver's tolerances mean something.

use super::{Goal, Solution, TuneError};
use crate::model::{ModelForm, Problem};
use clarabel::algebra::CscMatrix;
use clarabel::solver::{
    DefaultSettings, DefaultSolver, IPSolver, NonnegativeConeT, SolverStatus, SupportedConeT,
};

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
        for (column_idx, value) in coefficients {
            self.row_idxs.push(self.bounds.len());
            self.column_idxs.push(column_idx);
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
        let all_bytes: f64 = problem.columns.iter().map(|column| column.bytes).sum();
        let slowest_s = problem.terms.iter().map(|term| {
            let by_processing_s = term.bytes() / term.processing_bandwidth;
            by_processing_s.max(term.bytes() / problem.tiers.storage_bandwidth)
        });
        Self {
            problem,
            byte_unit: all_bytes.max(1.0),
            time_unit: slowest_s.fold(0.0, f64::max).max(f64::MIN_POSITIVE),
        }
    }

    fn column_count(&self) -> usize {
        self.problem.columns.len()
    }

    /// The variable that is a term's time.
    fn time(&self, term_idx: usize) -> usize {
        self.column_count() + term_idx
    }

    fn bound_proportions(&self, program: &mut LinearProgram) {
        for column_idx in 0..self.column_count() {
            program.at_most(0.0, [(column_idx, -1.0)]);
            program.at_most(1.0, [(column_idx, 1.0)]);
        }
    }

    /// Each term takes at least what storage, memory and processing take.
    fn bound_times(&self, program: &mut LinearProgram) {
        let tiers = self.problem.tiers;
        for (term_idx, term) in self.problem.terms.iter().enumerate() {
            let time = self.time(term_idx);
            let all = term.bytes();
            let storage_s = move |bytes: f64| bytes / tiers.storage_bandwidth / self.time_unit;
            let memory_s = |bytes: f64| bytes / tiers.memory_bandwidth / self.time_unit;
            let floor = all / term.processing_bandwidth / self.time_unit;
            let columns = term.columns.iter();
            match self.problem.form {
                ModelForm::Shared => {
                    let loss = self.problem.overlap_loss;
                    let missing = |part: f64| {
                        let columns = term.columns.iter();
                        columns.map(move |c| (c.column_idx, -part * storage_s(c.bytes)))
                    };
                    let by_storage = storage_s(all) + loss * floor;
                    program.at_most(-by_storage, missing(1.0).chain([(time, -1.0)]));
                    let by_processing = floor + loss * storage_s(all);
                    program.at_most(-by_processing, missing(loss).chain([(time, -1.0)]));
                    let cached = columns.map(|c| (c.column_idx, memory_s(c.bytes)));
                    program.at_most(0.0, cached.chain([(time, -1.0)]));
                }
                ModelForm::Paper => {
                    program.at_most(-floor, [(time, -1.0)]);
                    for column in columns {
                        let x = column.column_idx;
                        let missing = [(x, -storage_s(all)), (time, -1.0)];
                        program.at_most(-storage_s(all), missing);
                        program.at_most(0.0, [(x, memory_s(all)), (time, -1.0)]);
                    }
                }
            }
        }
    }

    fn bound_memory(&self, program: &mut LinearProgram) {
        let columns = self.problem.columns.iter().enumerate();
        let kept = columns.map(|(column_idx, column)| (column_idx, column.bytes / self.byte_unit));
        let budget = self.problem.budget_bytes / self.byte_unit;
        program.at_most(budget.min(1.0), kept); // more than everything is everything
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

    /// Brings what the solver found into range and within the budget exactly.
    fn proportions(&self, variables: &[f64]) -> Vec<f64> {
        let in_range = |x: &f64| if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) };
        let x: Vec<f64> = variables[..self.column_count()]
            .iter()
            .map(in_range)
            .collect();
        let excess = self.problem.kept_bytes(&x) / self.problem.budget_bytes;
        match excess > 1.0 {
            true => x.into_iter().map(|x| x / excess).collect(),
            false => x,
        }
    }
}

/// Solves a problem exactly.
///
/// # Errors
/// [`TuneError::Unsolved`] if the solver gives up.
pub fn exact(problem: &Problem, goal: Goal) -> Result<Solution, TuneError> {
    let scaled = Scaled::new(problem);
    let column_count = scaled.column_count();
    if column_count == 0 || problem.budget_bytes <= 0.0 {
        return Ok(Solution::new(problem, vec![0.0; column_count]));
    }
    let scale = match goal {
        Goal::Total => 1.0,
        Goal::Threshold { scale, .. } => scale,
    };
    let total_weight: f64 = problem.terms.iter().map(|term| term.weight).sum();
    let weight = |weight: f64| scale * weight / total_weight.max(f64::MIN_POSITIVE);
    let mut objective = vec![0.0; column_count];
    objective.extend(problem.terms.iter().map(|term| weight(term.weight)));
    let slowest = objective.len();
    if let Goal::Threshold { .. } = goal {
        objective.push(1.0);
    }
    let mut program = LinearProgram::new(objective);
    scaled.bound_memory(&mut program);
    scaled.bound_proportions(&mut program);
    scaled.bound_times(&mut program);
    if let Goal::Threshold { threshold_s, .. } = goal {
        program.at_most(-threshold_s / scaled.time_unit, [(slowest, -1.0)]);
        for times in scaled.query_terms() {
            let times = times.into_iter().map(|time| (time, 1.0));
            program.at_most(0.0, times.chain([(slowest, -1.0)]));
        }
    }
    let (variables, prices) = program.solve()?;
    let mut solution = Solution::new(problem, scaled.proportions(&variables));
    let price = prices.first().copied().unwrap_or(0.0).max(0.0);
    let per_unit =
        scaled.time_unit / scaled.byte_unit * total_weight / scale.max(f64::MIN_POSITIVE);
    solution.saved_s_per_byte = price * per_unit;
    Ok(solution)
}

/// The dual problem (§4.2): the least memory with which no query is slower than `slowdown` times what it would be
/// with everything in memory (at least 1). Returns the proportions; the budget of the problem is ignored.
///
/// # Errors
/// [`TuneError::Infeasible`] for a slowdown below 1, [`TuneError::Unsolved`] if the solver gives up.
pub fn least_memory(problem: &Problem, slowdown: f64) -> Result<Solution, TuneError> {
    if slowdown.is_nan() || slowdown < 1.0 {
        return Err(TuneError::Infeasible { slowdown });
    }
    let scaled = Scaled::new(problem);
    let column_count = scaled.column_count();
    if column_count == 0 {
        return Ok(Solution::new(problem, Vec::new()));
    }
    let columns = problem.columns.iter();
    let mut objective: Vec<f64> = columns
        .map(|column| column.bytes / scaled.byte_unit)
        .collect();
    objective.extend(problem.terms.iter().map(|_| 0.0));
    let mut program = LinearProgram::new(objective);
    scaled.bound_proportions(&mut program);
    scaled.bound_times(&mut program);
    let in_memory_s = problem.query_s(&vec![1.0; column_count]);
    for (times, in_memory_s) in scaled.query_terms().into_iter().zip(in_memory_s) {
        let times = times.into_iter().map(|time| (time, 1.0));
        program.at_most(slowdown * in_memory_s / scaled.time_unit, times);
    }
    let (variables, _) = program.solve()?;
    let in_range = |x: &f64| x.clamp(0.0, 1.0);
    let x = variables[..column_count].iter().map(in_range).collect();
    Ok(Solution::new(problem, x))
}
