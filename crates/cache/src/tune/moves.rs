//! Moves of single items in [`super::descent`]: which one is best, and how far it goes.

use super::descent::{Descent, Reader};
use super::smooth::{Arguments, arguments, moved};
use crate::model::TermLoad;

/// Evaluations of a slope when looking for the end of a move, at most.
const SEARCH_STEPS: usize = 5;

/// A move has come to its end where moving on gains less than this part of what it gained at first.
const SEARCH_ENOUGH: f64 = 0.05;

/// A part of an item on its way from one choice to another; `None` is home.
#[derive(Clone, Copy)]
pub(super) struct Move {
    pub(super) item_idx: usize,
    pub(super) from: Option<usize>,
    pub(super) to: Option<usize>,
    /// Weighted seconds gained by moving all of the item at the present rate, prices included.
    pub(super) rate: f64,
}

impl Descent<'_> {
    /// Makes the best move of an item. Returns about what it gained.
    pub(super) fn improve(&mut self, item_idx: usize) -> f64 {
        let Some(best) = self.best_move(item_idx) else {
            return 0.0;
        };
        let there_is = match best.from {
            Some(choice_idx) => self.x[choice_idx],
            None => self.rest[item_idx],
        };
        self.prepare_move(&best);
        let part = self.search(&best, there_is);
        self.apply(&best, part);
        0.5 * part * best.rate
    }

    fn best_move(&self, item_idx: usize) -> Option<Move> {
        let home = (None, 0.0);
        let (mut worst, mut best) = (home, home);
        if self.rest[item_idx] <= 0.0 {
            worst.1 = f64::INFINITY;
        }
        let sight = self.sight(item_idx);
        for choice_idx in self.problem.items[item_idx].choices.clone() {
            let choice = &self.problem.choices[choice_idx];
            let net =
                self.gain(choice_idx, &sight) - self.price_now(choice.shelf, 0.0) * choice.bytes;
            if net > best.1 {
                best = (Some(choice_idx), net);
            }
            if self.x[choice_idx] > 0.0 && net < worst.1 {
                worst = (Some(choice_idx), net);
            }
        }
        let rate = best.1 - worst.1;
        (best.0 != worst.0 && rate > 1e-12 * self.nothing_s).then_some(Move {
            item_idx,
            from: worst.0,
            to: best.0,
            rate,
        })
    }

    /// How a move of a whole item changes the arguments of a reader's maximum.
    pub(super) fn change(&self, step: &Move, reader: &Reader) -> Arguments {
        let mut change = TermLoad::default();
        for (end, sign) in [(step.from, -1.0), (step.to, 1.0)] {
            let bytes = sign * reader.bytes;
            match end {
                Some(choice_idx) => {
                    let choice = &self.problem.choices[choice_idx];
                    change.shelf_s[choice.shelf] += bytes * self.there_s[choice_idx];
                    let saved_s = choice.processing_saved_s.min(reader.processing_s);
                    change.processing_s -= bytes * saved_s;
                }
                None => {
                    let home = self.problem.items[step.item_idx].home;
                    change.shelf_s[home] += bytes * self.home_s[step.item_idx];
                }
            }
        }
        arguments(&change, self.problem.overlap_loss)
    }

    /// Notes how a move changes the arguments of its readers, for [`search`](Self::search) and [`apply`](Self::apply).
    pub(super) fn prepare_move(&mut self, step: &Move) {
        let mut changes = std::mem::take(&mut self.changes);
        changes.clear();
        let readers = self.readers[step.item_idx].iter();
        changes.extend(readers.map(|reader| (reader.term_idx, self.change(step, reader))));
        self.changes = changes;
    }

    /// The part of an item to move: up to `part_max`, or about to where moving more would lose.
    fn search(&self, step: &Move, part_max: f64) -> f64 {
        let (mut low, mut high) = (0.0, part_max);
        let (mut low_rate, mut high_rate): (f64, Option<f64>) = (step.rate, None);
        let (mut rate, mut bend) = self.along(step, 0.0);
        let mut at = 0.0;
        for _ in 0..SEARCH_STEPS {
            let newton = if bend > 0.0 {
                at + rate / bend
            } else {
                f64::INFINITY
            };
            at = match high_rate {
                None => newton.min(part_max),
                Some(_) if newton > low && newton < high => newton,
                Some(high_rate) => {
                    low + (high - low) * (low_rate / (low_rate - high_rate)).clamp(0.1, 0.9)
                }
            };
            (rate, bend) = self.along(step, at);
            if rate.abs() <= SEARCH_ENOUGH * step.rate || (rate > 0.0 && at >= part_max) {
                return at;
            }
            match rate >= 0.0 {
                true => (low, low_rate) = (at, rate),
                false => (high, high_rate) = (at, Some(rate)),
            }
        }
        low
    }

    /// What moving on would gain after a part has moved, and by how much less per further part.
    fn along(&self, step: &Move, part: f64) -> (f64, f64) {
        let (mut rate, mut bend) = (0.0, 0.0);
        for (term_idx, change) in &self.changes {
            let shares = match part > 0.0 {
                true => {
                    let moved = moved(&self.arguments[*term_idx], change, part);
                    self.shares_of(*term_idx, &moved)
                }
                false => self.shares[*term_idx],
            };
            let (mut first, mut second, mut all) = (0.0, 0.0, 0.0);
            for (share, change_s) in shares.iter().zip(change) {
                all += share;
                first += share * change_s;
                second += share * change_s * change_s;
            }
            rate -= first;
            bend +=
                (second - first * first / all.max(f64::MIN_POSITIVE)) / self.softness[*term_idx];
        }
        for (end, sign) in [(step.from, -1.0), (step.to, 1.0)] {
            if let Some(choice_idx) = end {
                let choice = &self.problem.choices[choice_idx];
                let more_bytes = self.more_bytes(step, choice.shelf, part);
                let price = self.price_now(choice.shelf, more_bytes);
                rate += sign * (choice.saved_s - price * choice.bytes);
                if price > 0.0 {
                    let more_bytes = self.more_bytes(step, choice.shelf, 1.0);
                    bend += sign * self.stiffness[choice.shelf] * more_bytes * choice.bytes;
                }
            }
        }
        (rate, bend)
    }

    /// How many bytes more a shelf holds after a part has moved.
    fn more_bytes(&self, step: &Move, shelf: usize, part: f64) -> f64 {
        let ends = [(step.from, -1.0), (step.to, 1.0)];
        let bytes = ends.iter().map(|(end, sign)| {
            let choice = end.map(|choice_idx| &self.problem.choices[choice_idx]);
            let there = choice.filter(|choice| choice.shelf == shelf);
            sign * part * there.map_or(0.0, |choice| choice.bytes)
        });
        bytes.sum()
    }

    pub(super) fn apply(&mut self, step: &Move, part: f64) {
        if part <= 0.0 {
            return;
        }
        let changes = std::mem::take(&mut self.changes);
        for (term_idx, change) in &changes {
            let arguments = &mut self.arguments[*term_idx];
            *arguments = moved(arguments, change, part);
            self.weigh(*term_idx);
        }
        self.changes = changes;
        for (end, sign) in [(step.from, -1.0), (step.to, 1.0)] {
            match end {
                Some(choice_idx) => {
                    let choice = &self.problem.choices[choice_idx];
                    self.used_bytes[choice.shelf] += sign * part * choice.bytes;
                    self.x[choice_idx] = settled(self.x[choice_idx] + sign * part);
                }
                None => self.rest[step.item_idx] = settled(self.rest[step.item_idx] + sign * part),
            }
        }
    }
}

/// A proportion without the dust of rounding.
pub(super) fn settled(x: f64) -> f64 {
    if x < 1e-12 { 0.0 } else { x.min(1.0) }
}
