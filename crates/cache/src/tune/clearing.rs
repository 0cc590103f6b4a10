//! The dual side of [`super::descent`]: the prices at which shelves are just full, and the bound that follows from
//! them.

use super::Solution;
use super::descent::Descent;
use super::smooth::largest;
use crate::model::Item;

/// Halvings until a price is known well enough.
const PRICE_STEPS: usize = 14;

impl Descent<'_> {
    /// Lowers the bound of a solution to what follows from the present slopes: by the present prices, or by those at
    /// which shelves are just full.
    pub(super) fn certify(&mut self, best: &mut Solution) {
        let gains = self.gains();
        for is_cleared in [false, true] {
            let prices = self.prices;
            if is_cleared {
                self.clear(&gains, 1, false);
            }
            let bound = self.bound(&gains);
            if bound < best.saved_s_max {
                best.saved_s_max = bound;
                best.prices = self.prices[..self.problem.shelves.len()].to_vec();
            }
            self.prices = prices;
        }
    }

    /// Nothing saves more than this, by the present slopes and prices: a term takes at least the weighted sum of its
    /// arguments, each of which is linear.
    fn bound(&self, gains: &[f64]) -> f64 {
        let terms = self.problem.terms.iter().zip(&self.nothing);
        let of_terms = terms.zip(&self.shares).map(|((term, nothing), shares)| {
            let decided_s = shares
                .iter()
                .zip(nothing)
                .map(|(share, argument)| share * argument);
            term.weight * largest(nothing) - decided_s.sum::<f64>()
        });
        let of_budgets = self.problem.shelves.iter().zip(&self.prices);
        let of_budgets = of_budgets.map(|(shelf, price)| match *price > 0.0 {
            true => price * shelf.budget_bytes,
            false => 0.0,
        });
        let rents = self.problem.items.iter().map(|item| {
            let nets = item.choices.clone().map(|choice_idx| {
                let choice = &self.problem.choices[choice_idx];
                gains[choice_idx] - self.prices[choice.shelf] * choice.bytes
            });
            nets.fold(0.0, f64::max)
        });
        of_terms.sum::<f64>() + of_budgets.sum::<f64>() + rents.sum::<f64>()
    }

    /// Sets prices at which as many bytes are wanted as there are, by the present slopes.
    pub(super) fn clear_prices(&mut self) {
        let gains = self.gains();
        self.clear(&gains, 3, true);
    }

    /// From nothing, or near the present prices.
    fn clear(&mut self, gains: &[f64], round_count: usize, anew: bool) {
        for _ in 0..round_count {
            for shelf in 0..self.problem.shelves.len() {
                self.clear_price(shelf, gains, anew);
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
