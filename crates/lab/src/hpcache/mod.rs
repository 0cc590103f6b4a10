//! The experiments of the HPCache paper (VLDB Journal 2023), on this machine and simulated on the paper's.
//!
//! [`Sequence`] says which queries run, [`run_sequence`] runs them under one policy, [`simulated`] and [`measured`]
//! make the paper's figures of that.

mod command;
pub mod flags;
mod measured;
pub mod price;
mod rows;
mod run;
mod sequence;
mod simulated;

use std::time::Instant;

use hotshelf_cache::model::{Problem, Term, TermRead, Tiers};
use hotshelf_cache::tune::{Solution, TuneError, greedy};
use hotshelf_cli::picture::{Panel, Series};

use crate::failure::ExperimentError;
use crate::solve::{PAPER_TIME, exact};

pub use command::run;
use run::{Contender, RunOptions, SequenceRun, ample_budget_bytes, begin_cold, run_sequence};
use sequence::{Sequence, query};

/// The paper's figures that show data of its engine, with their titles. Figure 2 is a sketch of the model, and Figure 9
/// times the solver alone.
const TITLES: [(u32, &str); 12] = [
    (1, "Figure 1: execution time by storage bandwidth"),
    (3, "Figure 3: three placements of the input"),
    (4, "Figure 4: Q2.2 by the part of its input in memory"),
    (5, "Figure 5: Q2.2 by the part of its input in memory"),
    (6, "Figure 6: predicted and actual time of Q1.3"),
    (7, "Figure 7: predicted and actual time of Q3.1"),
    (8, "Figure 8: fixed window and exponential smoothing"),
    (10, "Figure 10: tuning and leaving the placement alone"),
    (11, "Figure 11: cache below one query's working set"),
    (12, "Figure 12: cache above one query's working set"),
    (13, "Figure 13: sequence by storage bandwidth"),
    (14, "Figure 14: sequence by cache size"),
];

/// The title of a figure; `how` it is to be made is for the error.
fn title(number: u32, how: &'static str) -> Result<&'static str, ExperimentError> {
    let found = TITLES.iter().find(|(known, _)| *known == number);
    found
        .map(|(_, title)| *title)
        .ok_or_else(|| unknown_figure(number, how))
}

fn unknown_figure(number: u32, how: &'static str) -> ExperimentError {
    ExperimentError::UnknownFigure {
        number,
        how,
        known: TITLES.iter().map(|(known, _)| known.to_string()).collect(),
    }
}

/// Figure 9: the time of one solution here, by the number of columns and queries. Neither simulated nor bound to data.
pub fn solver_panels() -> Vec<Panel> {
    let sizes = [4usize, 10, 20, 40, 60, 80, 100];
    type Solve = fn(&Problem) -> Result<Solution, TuneError>;
    let solvers: [(&str, Solve, bool); 3] = [
        ("greedy, shared form", |problem| Ok(greedy(problem)), false),
        ("exact, shared form", exact, false),
        ("exact, paper's form", exact, true),
    ];
    let panel = |title: &str, x_label: &str, shape: &dyn Fn(usize) -> (usize, usize, f64)| Panel {
        series: solvers
            .iter()
            .map(|(label, solver, is_paper)| Series {
                label: (*label).to_owned(),
                points: sizes
                    .iter()
                    .map(|size| {
                        let (columns, queries, intense) = shape(*size);
                        let mut problem = random_problem(columns, queries, intense);
                        problem.term_time = is_paper.then_some(PAPER_TIME);
                        (*size as f64, median_solve_ms(&problem, *solver))
                    })
                    .collect(),
            })
            .collect(),
        ..Panel::new(title, x_label, "milliseconds for one solution")
    };
    vec![
        panel(
            "a: columns and queries together",
            "columns = queries",
            &|n| (n, n, 0.0),
        ),
        panel("b: 4 queries", "columns", &|n| (n, 4, 0.0)),
        panel("c: 4 columns", "queries", &|n| (4, n, 0.0)),
        panel(
            "d: 4 columns, 100 queries",
            "processing-intensive queries (%)",
            &|n| (4, 100, n as f64 / 100.0),
        ),
    ]
}

/// Queries over four random columns of 24 GB; a part of them process more slowly than the storage reads.
fn random_problem(column_count: usize, query_count: usize, intensive_share: f64) -> Problem {
    let mut word = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = |bound: usize| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        (word % bound.max(1) as u64) as usize
    };
    let mut term = |query_idx: usize| {
        let mut columns: Vec<usize> = Vec::new();
        while columns.len() < 4.min(column_count) {
            let column = draw(column_count);
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        let is_intensive = (query_idx as f64) < intensive_share * query_count as f64;
        let speed = 1.0 + 0.1 * draw(10) as f64;
        Term {
            weight: 0.95f64.powi(query_idx as i32),
            reads: columns
                .into_iter()
                .map(|item_idx| TermRead {
                    item_idx,
                    bytes: 24e9,
                })
                .collect(),
            processing_bandwidth: if is_intensive {
                15e9 * speed
            } else {
                60e9 * speed
            },
            query_idx,
            template: query_idx as u64,
            pipeline: 0,
        }
    };
    let tiers = Tiers {
        storage_bandwidth: 28e9,
        memory_bandwidth: 232e9,
    };
    let budget_bytes = 0.4 * 24e9 * column_count as f64;
    let mut problem = Problem::empty(tiers.shelves(budget_bytes));
    for column in 0..column_count {
        problem.add_column(hotshelf_cache::ColumnId(column as u32), 24e9);
    }
    problem.terms = (0..query_count).map(&mut term).collect();
    problem.overlap_loss = 0.1;
    problem
}

fn median_solve_ms(problem: &Problem, solve: fn(&Problem) -> Result<Solution, TuneError>) -> f64 {
    let mut times_ms: Vec<f64> = (0..7)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(solve(problem)).ok();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times_ms.sort_by(f64::total_cmp);
    times_ms[times_ms.len() / 2]
}
