//! The end of [`super::descent`]: from where it has come to a placement within the budgets.

use super::Solution;
use super::descent::{Descent, GAP_MAX};
use super::into_range;
use super::moves::Move;

impl Descent<'_> {
    /// Notes what is reached, brought within the budgets and with nothing remaining empty, and how good it is.
    pub(super) fn settle(&mut self, best: &mut Solution) {
        self.certify(best);
        let state = (self.x.clone(), self.rest.clone(), self.arguments.clone());
        let weights = (self.shares.clone(), self.slopes.clone());
        let used_bytes = self.used_bytes;
        self.trim();
        self.note(best);
        if best.gap() > GAP_MAX {
            // What saves least may end where it saves more: take a little of everything instead.
            self.x.clone_from(&state.0);
            self.note(best);
        }
        best.saved_s_max = best.saved_s_max.max(best.saved_s);
        (self.x, self.rest, self.arguments) = state;
        self.used_bytes = used_bytes;
        (self.shares, self.slopes) = weights;
    }

    /// Brings what is reached within the budgets, fills what remains empty, and notes it if it is the best so far.
    fn note(&mut self, best: &mut Solution) {
        into_range(self.problem, &mut self.x);
        self.reload();
        (0..self.arguments.len()).for_each(|term_idx| self.weigh(term_idx));
        self.fill();
        let total_s = self.now_s();
        if self.nothing_s - total_s >= best.saved_s {
            best.saved_s = self.nothing_s - total_s;
            best.total_s = total_s;
            best.x.clone_from(&self.x);
            best.curve = vec![(0.0, 0.0), (self.used_bytes[0], best.saved_s)];
        }
    }

    /// Takes what saves least off shelves that are too full.
    fn trim(&mut self) {
        let is_over = |shelf: usize| {
            let budget_bytes = self.problem.shelves[shelf].budget_bytes;
            self.used_bytes[shelf] > budget_bytes
        };
        let shelves: Vec<usize> = (0..self.problem.shelves.len())
            .filter(|shelf| is_over(*shelf))
            .collect();
        if shelves.is_empty() {
            return;
        }
        let gains = self.gains();
        for shelf in shelves {
            let density = |idx: usize| gains[idx] / self.problem.choices[idx].bytes;
            let mut there: Vec<(f64, usize)> = (0..self.x.len())
                .filter(|idx| self.problem.choices[*idx].shelf == shelf && self.x[*idx] > 0.0)
                .map(|idx| (density(idx), idx))
                .collect();
            there.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (_, choice_idx) in there {
                let choice = &self.problem.choices[choice_idx];
                let over_bytes = self.used_bytes[shelf] - self.problem.shelves[shelf].budget_bytes;
                if over_bytes <= 0.0 {
                    break;
                }
                let part = self.x[choice_idx].min(over_bytes / choice.bytes);
                self.x[choice_idx] -= part;
                self.used_bytes[shelf] -= part * choice.bytes;
            }
        }
    }

    /// Moves items to where there is room, if that gains.
    fn fill(&mut self) {
        for item_idx in 0..self.problem.items.len() {
            for choice_idx in self.problem.items[item_idx].choices.clone() {
                let choice = &self.problem.choices[choice_idx];
                let budget_bytes = self.problem.shelves[choice.shelf].budget_bytes;
                let room_bytes = budget_bytes - self.used_bytes[choice.shelf];
                let is_worth_it = room_bytes > 1e-6 * budget_bytes && self.rest[item_idx] > 0.0;
                if is_worth_it && self.gain(choice_idx, &self.sight(item_idx)) > 0.0 {
                    let part = self.rest[item_idx].min(room_bytes / choice.bytes);
                    let step = Move {
                        item_idx,
                        from: None,
                        to: Some(choice_idx),
                        rate: 0.0,
                    };
                    self.prepare_move(&step);
                    self.apply(&step, part);
                }
            }
        }
    }
}
