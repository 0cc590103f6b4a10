//! What the present content of memory is worth by the last solution.

use super::report::worth;
use super::{Solved, Tuner};
use crate::key::ColumnId;
use crate::model::{Problem, Representation, Shelf};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The tuner's last solution, to look up what things are worth.
#[derive(Debug, Clone)]
pub(crate) struct Appraisal {
    solved: Arc<Solved>,
    /// What makes weighted seconds seconds per second.
    per_s: f64,
}

/// What something in memory saves.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Value {
    /// All its bytes together, in seconds per second.
    pub(crate) saved_s_per_s: f64,
    /// One more byte, in seconds per byte and second.
    pub(crate) next_s_per_byte_s: f64,
}

impl Tuner {
    /// The values of the last solution. `None` before there is one.
    pub(crate) fn appraisal(&self) -> Option<Appraisal> {
        let solved = self.solved.as_ref()?;
        Some(Appraisal {
            per_s: self.per_s(solved),
            solved: Arc::clone(solved),
        })
    }
}

impl Appraisal {
    /// The shelves, fastest first.
    pub(crate) fn shelves(&self) -> &[Shelf] {
        &self.solved.problem.shelves
    }

    /// By what factor the goal makes a template's time matter more:
    /// [`Solution::urgency`](crate::tune::Solution::urgency).
    pub(crate) fn urgency(&self, template: u64) -> f64 {
        self.solved.solution.urgency(&self.solved.problem, template)
    }

    /// How much of a column the solution keeps in memory, in bytes.
    pub(crate) fn wanted_bytes(&self, column: ColumnId) -> u64 {
        let problem = &self.solved.problem;
        let mut items = problem.items.iter();
        let item = items.find(|item| item.id.as_column() == Some(column));
        item.map_or(0, |item| {
            let part = self.solved.solution.proportion(problem, item, 0);
            (part * item.bytes) as u64
        })
    }

    /// All columns together, and each.
    pub(crate) fn columns(
        &self,
        resident: &BTreeMap<ColumnId, u64>,
    ) -> (Value, BTreeMap<ColumnId, Value>) {
        let problem = &self.solved.problem;
        let x = self.held(resident);
        let total_s = problem.total_s(&x);
        let (mut all, mut nothing) = (Value::default(), x.clone());
        let mut columns = BTreeMap::new();
        for item in &problem.items {
            let Some(column) = item.id.as_column() else {
                continue;
            };
            let mut without = x.clone();
            for idx in item.choices.clone().filter(|idx| in_memory(problem, *idx)) {
                (without[idx], nothing[idx]) = (0.0, 0.0);
            }
            let value = Value {
                saved_s_per_s: self.rate(problem.total_s(&without) - total_s),
                next_s_per_byte_s: self.next(item.choices.clone(), &x),
            };
            all.next_s_per_byte_s = all.next_s_per_byte_s.max(value.next_s_per_byte_s);
            columns.insert(column, value);
        }
        all.saved_s_per_s = self.rate(problem.total_s(&nothing) - total_s);
        (all, columns)
    }

    fn rate(&self, saved_s: f64) -> f64 {
        saved_s.max(0.0) * self.per_s
    }

    /// What a further byte of an item saves.
    fn next(&self, choices: std::ops::Range<usize>, x: &[f64]) -> f64 {
        let problem = &self.solved.problem;
        let is_all_there = x[choices.clone()].iter().sum::<f64>() >= 1.0;
        let choices = choices.filter(|idx| in_memory(problem, *idx) && !is_all_there);
        let worths = choices.map(|idx| worth(problem, x, idx, 1.0));
        worths.fold(0.0, f64::max) * self.per_s
    }

    /// The proportions as they are: of columns what is in memory, of everything else what the solution wants.
    fn held(&self, resident: &BTreeMap<ColumnId, u64>) -> Vec<f64> {
        let problem = &self.solved.problem;
        let mut x = self.solved.solution.x.clone();
        for item in &problem.items {
            let Some(column) = item.id.as_column() else {
                continue;
            };
            let held_bytes = resident.get(&column).copied().unwrap_or(0) as f64;
            let mut rest = 1.0;
            for idx in item.choices.clone() {
                let choice = &problem.choices[idx];
                if choice.shelf == 0 {
                    let is_stored = choice.representation == Representation::Stored;
                    x[idx] = match is_stored {
                        true => (held_bytes / item.bytes).min(1.0),
                        false => 0.0,
                    };
                }
                x[idx] = x[idx].min(rest);
                rest -= x[idx];
            }
        }
        x
    }
}

fn in_memory(problem: &Problem, choice_idx: usize) -> bool {
    problem.choices[choice_idx].shelf == 0
}
