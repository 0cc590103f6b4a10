//! The greedy rise for the paper's form, where a term only gains when all of its least kept columns rise together.

use hotshelf_cache::model::Problem;
use hotshelf_cache::tune::Solution;

/// Two proportions this close are the same level.
const SAME: f64 = 1e-9;

struct Rise<'a> {
    problem: &'a Problem,
    x: Vec<f64>,
    /// By term: the level of its least kept column at which it gains no more.
    caps: Vec<f64>,
    /// By term: seconds saved by a rise of its level from 0 to 1.
    rates: Vec<f64>,
    remaining_bytes: f64,
}

/// Columns to raise together, and what that is worth.
struct Bundle {
    item_idxs: Vec<usize>,
    bytes: f64,
    gain: f64,
    step_max: f64,
}

pub fn greedy(problem: &Problem) -> Solution {
    let mut rise = Rise::new(problem);
    let mut curve = vec![(0.0, 0.0)];
    let mut saved_s = 0.0;
    let mut density = 0.0;
    while let Some(bundle) = rise.densest() {
        let step = bundle.step_max.min(rise.remaining_bytes / bundle.bytes);
        for item_idx in &bundle.item_idxs {
            rise.x[*item_idx] = (rise.x[*item_idx] + step).min(1.0);
        }
        rise.remaining_bytes -= step * bundle.bytes;
        saved_s += step * bundle.gain;
        density = bundle.gain / bundle.bytes;
        curve.push((problem.budget_bytes() - rise.remaining_bytes, saved_s));
    }
    let budget_is_spent = rise.remaining_bytes <= 1e-6 * problem.budget_bytes();
    let saved_s_max = rise.saved_s_max();
    let mut solution = Solution::new(problem, rise.x);
    solution.saved_s_max = saved_s_max.max(solution.saved_s);
    solution.prices[0] = if budget_is_spent { density } else { 0.0 };
    solution.curve = curve;
    solution
}

impl<'a> Rise<'a> {
    fn new(problem: &'a Problem) -> Self {
        let storage = problem.storage_bandwidth();
        let at_memory = 1.0 / (1.0 + storage / problem.memory_bandwidth());
        let terms = problem.terms.iter();
        let cap = |processing: f64| at_memory.min(1.0 - storage / processing).max(0.0);
        Self {
            problem,
            x: vec![0.0; problem.items.len()],
            caps: terms
                .clone()
                .map(|term| cap(term.processing_bandwidth))
                .collect(),
            rates: terms
                .map(|term| term.weight * term.bytes() / storage)
                .collect(),
            remaining_bytes: problem.budget_bytes(),
        }
    }

    fn level(&self, term_idx: usize) -> f64 {
        let columns = self.problem.terms[term_idx].reads.iter();
        let levels = columns.map(|column| self.x[column.item_idx]);
        levels.fold(1.0, f64::min)
    }

    fn densest(&self) -> Option<Bundle> {
        if self.remaining_bytes <= 1e-9 * self.problem.budget_bytes() {
            return None;
        }
        let levels: Vec<f64> = (0..self.caps.len()).map(|idx| self.level(idx)).collect();
        let open = (0..levels.len()).filter(|idx| levels[*idx] < self.caps[*idx] - SAME);
        let bundles = open.map(|term_idx| self.bundle(term_idx, &levels));
        bundles.max_by(|a, b| (a.gain / a.bytes).total_cmp(&(b.gain / b.bytes)))
    }

    /// The least kept columns of a term, and all that gain when they rise.
    fn bundle(&self, term_idx: usize, levels: &[f64]) -> Bundle {
        let is_least =
            |term_idx: usize, item_idx: usize| self.x[item_idx] <= levels[term_idx] + SAME;
        let columns = self.problem.terms[term_idx].reads.iter();
        let item_idxs: Vec<usize> = columns
            .map(|column| column.item_idx)
            .filter(|item_idx| is_least(term_idx, *item_idx))
            .collect();
        let mut raised = vec![false; self.x.len()];
        item_idxs
            .iter()
            .for_each(|item_idx| raised[*item_idx] = true);
        let mut gain = 0.0;
        let mut step_max = f64::INFINITY;
        for (other_idx, other) in self.problem.terms.iter().enumerate() {
            let mut columns = other.reads.iter().map(|column| column.item_idx);
            let gains = levels[other_idx] < self.caps[other_idx] - SAME
                && columns.all(|item_idx| !is_least(other_idx, item_idx) || raised[item_idx]);
            if gains {
                gain += self.rates[other_idx];
                step_max = step_max.min(self.step_of(other_idx, levels[other_idx], &raised));
            }
        }
        Bundle {
            bytes: item_idxs
                .iter()
                .map(|idx| self.problem.items[*idx].bytes)
                .sum(),
            item_idxs,
            gain,
            step_max,
        }
    }

    /// How far a term's least columns can rise until they meet another column of it, or its cap.
    fn step_of(&self, term_idx: usize, level: f64, raised: &[bool]) -> f64 {
        let columns = self.problem.terms[term_idx].reads.iter();
        let others = columns.filter(|column| !raised[column.item_idx]);
        let next = others.map(|column| self.x[column.item_idx]);
        next.fold(self.caps[term_idx], f64::min) - level
    }

    /// Nothing saves more than every term at its cap.
    fn saved_s_max(&self) -> f64 {
        let caps = self.caps.iter().zip(&self.rates);
        caps.map(|(cap, rate)| cap * rate).sum()
    }
}
