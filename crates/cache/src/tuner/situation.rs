//! What a moment's decisions share: the machine, the columns, the budget and the options.

use crate::key::ColumnId;
use crate::model::{Item, ItemGroup, ItemUse, Problem, Shelf, TemplateTerm, Tiers};
use crate::placement::Placement;
use crate::tune::{Goal, Solution, Start, TuneError, TuneOptions, into_range, solve_from};
use std::collections::BTreeMap;

/// Steps on the way from one placement to another.
const WAY_STEPS: u32 = 8;

/// What all decisions of one step depend on.
pub(super) struct Situation<'a> {
    pub(super) sizes: &'a BTreeMap<ColumnId, u64>,
    pub(super) capacity_bytes: u64,
    pub(super) tiers: Tiers,
    pub(super) overlap_loss: f64,
    pub(super) options: TuneOptions,
    /// See [`TunerOptions`](super::TunerOptions).
    pub(super) skip_below: f64,
    pub(super) stay_below: f64,
    /// Shelves between memory and the storage, fastest first.
    pub(super) between: &'a [Shelf],
}

impl Situation<'_> {
    /// Bytes of a column; none if there is no such column.
    pub(super) fn size(&self, column: ColumnId) -> f64 {
        self.sizes.get(&column).copied().unwrap_or(0) as f64
    }

    /// Bytes that fit on each shelf but the last.
    pub(super) fn capacities(&self) -> impl Iterator<Item = f64> {
        let between = self.between.iter().map(|shelf| shelf.budget_bytes);
        std::iter::once(self.capacity_bytes as f64).chain(between)
    }

    /// The problem of some terms, with columns alone.
    pub(super) fn problem(&self, terms: &[TemplateTerm]) -> Problem {
        self.problem_with(terms, &[], 1.0)
    }

    /// The problem of some terms and of items other than columns.
    pub(super) fn problem_with(
        &self,
        terms: &[TemplateTerm],
        uses: &[ItemUse],
        span_s: f64,
    ) -> Problem {
        let method = self.options.method;
        let mut shelves = self.tiers.shelves(self.capacity_bytes as f64);
        if method.is_none() {
            shelves.splice(1..1, self.between.iter().copied());
        }
        let mut problem = Problem::new(terms, self.sizes, shelves);
        problem.term_time = method.map(|method| method.time);
        problem.span_s = span_s;
        if method.is_none() {
            problem.overlap_loss = self.overlap_loss;
            for group in ItemGroup::all(uses) {
                problem.add_group(&group);
            }
        }
        problem
    }

    /// Whether a problem should be solved again.
    pub(super) fn has_moved(&self, problem: &Problem, last: &Problem) -> bool {
        problem.differs(last, self.skip_below)
    }

    /// The best placement, or one that is hardly worse and changes less: the last, or what is held anyway.
    pub(super) fn solve(
        &self,
        problem: &Problem,
        last: Option<&Placement>,
        held_bytes: impl Fn(ColumnId) -> f64,
    ) -> Result<Solution, TuneError> {
        let mut solution = solve_from(problem, &self.options, None)?;
        if self.may_stay() && problem.is_two_shelves() {
            let part = |item: &Item, of_column: &dyn Fn(ColumnId) -> f64| {
                item.id.as_column().map_or(0.0, of_column)
            };
            let items = || problem.items.iter();
            let placed = last.map(|last| {
                let proportion = |item| part(item, &|column| last.proportion(column));
                items().map(proportion).collect()
            });
            let held = items().map(|item| (part(item, &held_bytes) / item.bytes).min(1.0));
            for x in [placed, Some(held.collect())].into_iter().flatten() {
                if self.stay(problem, x, &mut solution) {
                    break;
                }
            }
        }
        Ok(solution)
    }

    /// The same for problems with more than two shelves: the best, or the last solution if that is hardly worse.
    pub(super) fn solve_again(
        &self,
        problem: &Problem,
        last: Option<(&Problem, &Solution)>,
    ) -> Result<Solution, TuneError> {
        let last = last.filter(|(last, _)| last.shelves.len() == problem.shelves.len());
        let carried = last.map(|(last, solution)| problem.carried(last, &solution.x));
        let start = last.zip(carried.as_ref()).map(|((_, solution), x)| Start {
            x,
            prices: &solution.prices,
        });
        let mut solution = solve_from(problem, &self.options, start)?;
        if let Some(x) = carried.filter(|_| self.may_stay()) {
            self.move_little(problem, x, &mut solution);
        }
        Ok(solution)
    }

    /// Goes from the last proportions towards the best ones only as far as it must, to be hardly worse.
    fn move_little(&self, problem: &Problem, mut last: Vec<f64>, solution: &mut Solution) {
        into_range(problem, &mut last);
        let best = solution.x.clone();
        for step in 0..WAY_STEPS {
            let part = f64::from(step) / f64::from(WAY_STEPS);
            let between = last.iter().zip(&best);
            let x = between.map(|(last, best)| last + part * (best - last));
            if self.stay(problem, x.collect(), solution) {
                return;
            }
        }
    }

    fn may_stay(&self) -> bool {
        self.options.method.is_none() && self.options.goal == Goal::Total
    }

    fn stay(&self, problem: &Problem, mut x: Vec<f64>, solution: &mut Solution) -> bool {
        into_range(problem, &mut x);
        let total_s = problem.total_s(&x);
        let stays = total_s <= solution.total_s * (1.0 + self.stay_below);
        if stays {
            solution.saved_s += solution.total_s - total_s;
            solution.total_s = total_s;
            solution.x = x;
        }
        stays
    }
}
