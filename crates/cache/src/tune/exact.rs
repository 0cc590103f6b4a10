//! The linear programs solved by Clarabel, an interior-point solver: what the laws compare with.

use super::linear::{best_by, least_memory_by};
use super::simplex::Program;
use super::{Goal, Solution, TuneError};
use crate::model::Problem;
use clarabel::algebra::CscMatrix;
use clarabel::solver::{
    DefaultSettings, DefaultSolver, IPSolver, NonnegativeConeT, SolverStatus, SupportedConeT,
};

/// The best placement for a goal.
pub(super) fn exact(problem: &Problem, goal: Goal) -> Result<Solution, TuneError> {
    best_by(problem, goal, solve)
}

/// The least memory for a slowdown.
pub(super) fn exact_least_memory(problem: &Problem, slowdown: f64) -> Result<Solution, TuneError> {
    least_memory_by(problem, slowdown, solve)
}

fn solve(program: &Program) -> Result<(Vec<f64>, Vec<f64>), TuneError> {
    let (costs, rows) = program.parts();
    let (mut row_idxs, mut column_idxs, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut bounds: Vec<f64> = Vec::new();
    let mut at_most = |bound: f64, coefficients: &[(usize, f64)]| {
        for (variable, value) in coefficients {
            row_idxs.push(bounds.len());
            column_idxs.push(*variable);
            values.push(*value);
        }
        bounds.push(bound);
    };
    for (coefficients, bound) in rows {
        at_most(*bound, coefficients);
    }
    for variable in 0..costs.len() {
        at_most(0.0, &[(variable, -1.0)]);
    }
    let (row_count, column_count) = (bounds.len(), costs.len());
    let matrix =
        CscMatrix::new_from_triplets(row_count, column_count, row_idxs, column_idxs, values);
    let quadratic = CscMatrix::zeros((column_count, column_count));
    let cones: [SupportedConeT<f64>; 1] = [NonnegativeConeT(row_count)];
    let settings = DefaultSettings {
        verbose: false,
        max_threads: 1, // bounded by iterations, not by time: what is decided must not depend on load
        ..DefaultSettings::default()
    };
    let solver = DefaultSolver::new(&quadratic, costs, &matrix, &bounds, &cones, settings);
    let mut solver = solver.expect("the program is well-formed");
    solver.solve();
    match solver.solution.status {
        SolverStatus::Solved | SolverStatus::AlmostSolved => {
            Ok((solver.solution.x.clone(), solver.solution.z.clone()))
        }
        status => Err(TuneError::Unsolved {
            status: format!("{status:?}"),
        }),
    }
}
