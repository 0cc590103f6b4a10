//! What a moment's decisions share: the machine, the columns, the budget and the options.

use crate::key::ColumnId;
use crate::model::{ModelForm, Problem, TemplateTerm, Tiers};
use crate::placement::Placement;
use crate::tune::{Goal, Solution, TuneError, TuneOptions, solve};
use std::collections::BTreeMap;

pub(super) struct Bench<'a> {
    pub(super) sizes: &'a BTreeMap<ColumnId, u64>,
    pub(super) capacity_bytes: u64,
    pub(super) tiers: Tiers,
    pub(super) overlap_loss: f64,
    pub(super) options: TuneOptions,
    /// See [`TunerOptions`](super::TunerOptions).
    pub(super) skip_below: f64,
    pub(super) stay_below: f64,
}

impl Bench<'_> {
    /// The problem of some terms.
    pub(super) fn problem(&self, terms: &[TemplateTerm]) -> Problem {
        let shelves = self.tiers.shelves(self.capacity_bytes as f64);
        let form = self.options.form;
        let mut problem = Problem::new(terms, self.sizes, shelves, form);
        if form == ModelForm::Shared {
            problem.overlap_loss = self.overlap_loss;
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
        let mut solution = solve(problem, &self.options)?;
        if self.options.form == ModelForm::Shared && self.options.goal == Goal::Total {
            let columns = || {
                let items = problem.items.iter();
                items.filter_map(|item| Some((item.id.as_column()?, item.bytes)))
            };
            let placed = last.map(|last| columns().map(|(c, _)| last.proportion(c)).collect());
            let held = columns().map(|(c, bytes)| (held_bytes(c) / bytes).min(1.0));
            for x in [placed, Some(held.collect())].into_iter().flatten() {
                if self.stay(problem, x, &mut solution) {
                    break;
                }
            }
        }
        Ok(solution)
    }

    fn stay(&self, problem: &Problem, mut x: Vec<f64>, solution: &mut Solution) -> bool {
        let excess = problem.kept_bytes(&x) / problem.budget_bytes();
        if excess > 1.0 {
            x.iter_mut().for_each(|x| *x /= excess);
        }
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
