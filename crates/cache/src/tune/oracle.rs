//! An oracle for problems on any number of shelves that shares nothing with the solvers but the problem's data.
//!
//! The model is written down once more as a program for Clarabel, from its definition and in other variables than
//! [`exact`](super::exact()) uses: a proportion for every place of an item with home among them, which add up to one,
//! and for each term its time, its reading time and its processing time in seconds. A second oracle tries every
//! placement of a grid and needs no solver at all.

use crate::model::{Item, Problem, Term};
use clarabel::algebra::CscMatrix;
use clarabel::solver::{
    DefaultSettings, DefaultSolver, IPSolver, NonnegativeConeT, SolverStatus, ZeroConeT,
};

/// What the oracle says.
pub(super) struct Verdict {
    /// The least weighted time, in seconds.
    pub(super) total_s: f64,
    /// The parts of each choice.
    pub(super) x: Vec<f64>,
    /// What a byte of each shelf saves there, in seconds.
    pub(super) prices: Vec<f64>,
}

const GB: f64 = 1e9;

/// `row * v + slack = bound`; the first rows have no slack.
#[derive(Default)]
struct Rows {
    entries: Vec<(usize, usize, f64)>,
    bounds: Vec<f64>,
}

impl Rows {
    fn add(&mut self, bound: f64, entries: &[(usize, f64)]) {
        let row = self.bounds.len();
        self.entries.extend(
            entries
                .iter()
                .map(|(variable, value)| (row, *variable, *value)),
        );
        self.bounds.push(bound);
    }
}

/// Seconds that one byte takes on a shelf.
fn byte_s(problem: &Problem, shelf: usize, item: &Item) -> f64 {
    let shelf = &problem.shelves[shelf];
    let requests = 1.0 / item.request_bytes;
    1.0 / shelf.bandwidth + requests * shelf.latency_s / shelf.in_flight
}

/// The variables: choices, homes, then three times per term.
struct Layout {
    home: usize,
    time: usize,
    reading: usize,
    processing: usize,
    count: usize,
}

impl Layout {
    fn of(problem: &Problem) -> Self {
        let (choices, items) = (problem.choices.len(), problem.items.len());
        let terms = problem.terms.len();
        let first = choices + items;
        Self {
            home: choices,
            time: first,
            reading: first + terms,
            processing: first + 2 * terms,
            count: first + 3 * terms,
        }
    }
}

/// What a term asks of a shelf, as entries of a row, in seconds.
fn shelf_entries(problem: &Problem, term: &Term, shelf: usize, home: usize) -> Vec<(usize, f64)> {
    let mut entries = Vec::new();
    for read in &term.reads {
        let item = &problem.items[read.item_idx];
        if item.home == shelf {
            let seconds = read.bytes * byte_s(problem, shelf, item);
            entries.push((home + read.item_idx, seconds));
        }
        for idx in item.choices.clone() {
            let choice = &problem.choices[idx];
            if choice.shelf == shelf {
                let bytes = read.bytes / item.bytes * choice.bytes;
                entries.push((idx, bytes * byte_s(problem, shelf, item)));
            }
        }
    }
    entries
}

/// The rows of one term: its time is at least each of what goes on side by side.
fn add_term(problem: &Problem, layout: &Layout, term_idx: usize, rows: &mut Rows) {
    let term = &problem.terms[term_idx];
    let [time, reading, processing] =
        [layout.time, layout.reading, layout.processing].map(|first| first + term_idx);
    for shelf in 0..problem.shelves.len() {
        let mut entries = shelf_entries(problem, term, shelf, layout.home);
        entries.push((if shelf == 0 { time } else { reading }, -1.0));
        rows.add(0.0, &entries);
    }
    let pace_s = 1.0 / term.processing_bandwidth;
    let mut entries = vec![(processing, -1.0)];
    for read in &term.reads {
        entries.push((layout.home + read.item_idx, read.bytes * pace_s));
        for idx in problem.items[read.item_idx].choices.clone() {
            let spared_s = problem.choices[idx].processing_saved_s;
            entries.push((idx, read.bytes * (pace_s - spared_s).max(0.0)));
        }
    }
    rows.add(0.0, &entries);
    let loss = problem.overlap_loss;
    rows.add(0.0, &[(reading, 1.0), (processing, loss), (time, -1.0)]);
    rows.add(0.0, &[(reading, loss), (processing, 1.0), (time, -1.0)]);
}

/// Solves a problem of the shared form with finite processing bandwidths.
pub(super) fn judge(problem: &Problem) -> Verdict {
    let layout = Layout::of(problem);
    let mut rows = Rows::default();
    for (item_idx, item) in problem.items.iter().enumerate() {
        let places = item.choices.clone().chain([layout.home + item_idx]);
        rows.add(1.0, &places.map(|place| (place, 1.0)).collect::<Vec<_>>());
    }
    let equation_count = rows.bounds.len();
    let mut budget_rows = Vec::new();
    for (shelf_idx, shelf) in problem.shelves.iter().enumerate() {
        if shelf.budget_bytes.is_finite() {
            let choices = problem.choices.iter().enumerate();
            let there = choices.filter(|(_, choice)| choice.shelf == shelf_idx);
            let entries: Vec<_> = there
                .map(|(idx, choice)| (idx, choice.bytes / GB))
                .collect();
            budget_rows.push((shelf_idx, rows.bounds.len()));
            rows.add(shelf.budget_bytes / GB, &entries);
        }
    }
    for place in 0..layout.time {
        rows.add(0.0, &[(place, -1.0)]);
    }
    for term_idx in 0..problem.terms.len() {
        add_term(problem, &layout, term_idx, &mut rows);
    }
    let mut objective = vec![0.0; layout.count];
    for (idx, choice) in problem.choices.iter().enumerate() {
        objective[idx] = -choice.saved_s;
    }
    for (term_idx, term) in problem.terms.iter().enumerate() {
        objective[layout.time + term_idx] = term.weight;
    }
    let (variables, duals, value) = minimise(&objective, rows, equation_count);
    let best_s = |item: &Item| {
        let choices = problem.choices[item.choices.clone()].iter();
        choices.map(|choice| choice.saved_s).fold(0.0, f64::max)
    };
    let mut prices = vec![0.0; problem.shelves.len()];
    for (shelf, row) in budget_rows {
        prices[shelf] = duals[row].max(0.0) / GB;
    }
    Verdict {
        total_s: value + problem.items.iter().map(best_s).sum::<f64>(),
        x: variables[..problem.choices.len()].to_vec(),
        prices,
    }
}

/// Variables, duals of the rows and the least value.
fn minimise(objective: &[f64], rows: Rows, equation_count: usize) -> (Vec<f64>, Vec<f64>, f64) {
    let size = (rows.bounds.len(), objective.len());
    let (row_idxs, rest): (Vec<usize>, Vec<(usize, f64)>) = rows
        .entries
        .into_iter()
        .map(|(row, variable, value)| (row, (variable, value)))
        .unzip();
    let (variables, values) = rest.into_iter().unzip();
    let matrix = CscMatrix::new_from_triplets(size.0, size.1, row_idxs, variables, values);
    let cones = [
        ZeroConeT(equation_count),
        NonnegativeConeT(size.0 - equation_count),
    ];
    let settings = DefaultSettings {
        verbose: false,
        max_threads: 1,
        tol_gap_rel: 1e-9,
        tol_feas: 1e-9,
        ..DefaultSettings::default()
    };
    let none = CscMatrix::zeros((size.1, size.1));
    let solver = DefaultSolver::new(&none, objective, &matrix, &rows.bounds, &cones, settings);
    let mut solver = solver.expect("the oracle's program is well formed");
    solver.solve();
    let solution = &solver.solution;
    let is_solved = matches!(
        solution.status,
        SolverStatus::Solved | SolverStatus::AlmostSolved
    );
    assert!(is_solved, "the oracle stopped with {:?}", solution.status);
    (solution.x.clone(), solution.z.clone(), solution.obj_val)
}

/// The best of all placements whose proportions are multiples of `1 / steps`: no less than the optimum.
pub(super) fn best_on_grid(problem: &Problem, steps: usize) -> f64 {
    let mut x = vec![0.0; problem.choices.len()];
    let mut best_s = f64::INFINITY;
    fill_grid(problem, steps, 0, steps, &mut x, &mut best_s);
    best_s
}

fn fill_grid(
    problem: &Problem,
    steps: usize,
    choice_idx: usize,
    room: usize,
    x: &mut [f64],
    best_s: &mut f64,
) {
    let Some(choice) = problem.choices.get(choice_idx) else {
        let fits = |shelf: usize| problem.kept_on(shelf, x) <= problem.shelves[shelf].budget_bytes;
        if (0..problem.shelves.len()).all(fits) {
            *best_s = best_s.min(problem.total_s(x));
        }
        return;
    };
    let is_first = problem.items[choice.item_idx].choices.start == choice_idx;
    let room = if is_first { steps } else { room };
    for part in 0..=room {
        x[choice_idx] = part as f64 / steps as f64;
        fill_grid(problem, steps, choice_idx + 1, room - part, x, best_s);
    }
    x[choice_idx] = 0.0;
}
