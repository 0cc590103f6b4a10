//! The dual side of [`super::descent`]: the prices at which shelves are just full, and the bound that follows from them.

use super::descent::Descent;
use crate::model::Item;

/// Halvings until a price is known well enough.
const PRICE_STEPS: usize = 14;

impl Descent<'_> {
    /// Nothing saves more than this, by the present slopes and prices: a term takes at least the weighted sum of its
    /// loads, each of which is linear.
    pub(super) fn bound(&self) -> f64 {
        let nothing = vec![0.0; self.x.len()];
        let least_s = self
            .problem
            .terms
            .iter()
            .zip(&self.slopes)
            .map(|(term, slopes)| {
                let load = self.problem.load(term, &nothing);
                let shelves = slopes.shelf.iter().zip(&load.shelf_s);
                let of_shelves: f64 = shelves.map(|(slope, load_s)| slope * load_s).sum();
                of_shelves + slopes.processing * load.processing_s
            });
        let of_items: f64 = {
            let terms = self.problem.terms.iter();
            let of_terms: f64 = terms
                .map(|term| term.weight * self.problem.term_s(term, &nothing))
                .sum();
            self.nothing_s - of_terms
        };
        let of_budgets = self.problem.shelves.iter().zip(&self.prices);
        let of_budgets = of_budgets.map(|(shelf, price)| match *price > 0.0 {
            true => price * shelf.budget_bytes,
            false => 0.0,
        });
        let gains = self.gains();
        let rents = self.problem.items.iter().map(|item| {
            let nets = item.choices.clone().map(|choice_idx| {
                let choice = &self.problem.choices[choice_idx];
                gains[choice_idx] - self.prices[choice.shelf] * choice.bytes
            });
            nets.fold(0.0, f64::max)
        });
        self.nothing_s - of_items - least_s.sum::<f64>()
            + of_budgets.sum::<f64>()
            + rents.sum::<f64>()
    }

    /// Sets prices at which as many bytes are wanted as there are, by the present slopes: from nothing, or near the
    /// present ones.
    pub(super) fn clear_prices(&mut self, anew: bool) {
        let gains = self.gains();
        let rounds = if anew { 3 } else { 1 };
        for _ in 0..rounds {
            for shelf in 0..self.problem.shelves.len() {
                self.clear_price(shelf, &gains, anew);
            }
        }
    }

    fn clear_price(&mut self, shelf: usize, gains: &[f64], anew: bool) {
        let budget_bytes = self.problem.shelves[shelf].budget_bytes;
        if !budget_bytes.is_finite() {
            return;
        }
        let choices = self.problem.choices.iter().zip(gains);
        let there = choices.filter(|(choice, _)| choice.shelf == shelf);
        let densest = there.map(|(choice, gain)| gain / choice.bytes);
        let (mut low, mut high) = match anew {
            true => (0.0, densest.fold(0.0, f64::max)),
            false => (0.7 * self.prices[shelf], 1.4 * self.prices[shelf]),
        };
        for _ in 0..PRICE_STEPS {
            self.prices[shelf] = 0.5 * (low + high);
            match self.wanted_bytes(shelf, gains) > budget_bytes {
                true => low = self.prices[shelf],
                false => high = self.prices[shelf],
            }
        }
        self.prices[shelf] = 0.5 * (low + high);
    }

    /// Bytes of a shelf that items want at the present prices.
    fn wanted_bytes(&self, shelf: usize, gains: &[f64]) -> f64 {
        let of_item = |item: &Item| {
            let mut best = (0.0, 0.0);
            for choice_idx in item.choices.clone() {
                let choice = &self.problem.choices[choice_idx];
                let net = gains[choice_idx] - self.prices[choice.shelf] * choice.bytes;
                if net > best.0 {
                    best = (
                        net,
                        if choice.shelf == shelf {
                            choice.bytes
                        } else {
                            0.0
                        },
                    );
                }
            }
            best.1
        };
        self.problem.items.iter().map(of_item).sum()
    }
}
