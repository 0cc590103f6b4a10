//! After the greedy rise: move bytes from one column to another as long as that wins.
//!
//! The rise never lowers a proportion, so it can overshoot: a term that one column had saturated gains nothing
//! when a later column, raised for another term, brings it more bytes. Exchanges of two columns repair that. For
//! columns with a common reader the rate of an exchange is not the sum of the two rates (what one takes from the
//! reader the other brings), so those pairs are looked at one by one.

use super::greedy::PartialPlacement;

/// An exchange must win this part of the average savings per byte to be worthwhile.
const WORTHWHILE: f64 = 1e-6;

/// At most this many exchanges; each usually ends at a kink, and few kinks are wrong after the rise.
const EXCHANGES_MAX: usize = 40;

/// Bytes to move from one column to another.
struct Exchange {
    lowered_idx: usize,
    raised_idx: usize,
    /// Seconds won per byte.
    rate: f64,
}

/// By term, how its cached bytes change per byte exchanged.
struct Drift {
    by_term: Vec<f64>,
    touched: Vec<usize>,
}

impl PartialPlacement<'_> {
    /// Exchanges until none wins enough.
    pub(super) fn improve(&mut self) {
        let mut drift = Drift {
            by_term: vec![0.0; self.cached.len()],
            touched: Vec::new(),
        };
        let budget_bytes = self.problem.budget_bytes().max(1.0);
        let rate_min = WORTHWHILE * self.saved_s() / budget_bytes;
        for _ in 0..EXCHANGES_MAX {
            let Some(exchange) = self.best_exchange(&mut drift) else {
                return;
            };
            let bytes = self.exchange_bytes(&exchange, &mut drift);
            if exchange.rate <= rate_min || bytes <= 1e-9 * budget_bytes {
                return;
            }
            let from = bytes / self.problem.items[exchange.lowered_idx].bytes;
            let to = bytes / self.problem.items[exchange.raised_idx].bytes;
            self.shift(exchange.lowered_idx, -from);
            self.shift(exchange.raised_idx, to);
        }
    }

    fn saved_s(&self) -> f64 {
        let zeros = vec![0.0; self.x.len()];
        self.problem.total_s(&zeros) - self.problem.total_s(&self.x)
    }

    fn best_exchange(&self, drift: &mut Drift) -> Option<Exchange> {
        let density = |item_idx: usize| self.gains[item_idx] / self.problem.items[item_idx].bytes;
        let open = |item_idx: &usize| self.x[*item_idx] < 1.0;
        let densest = (0..self.x.len())
            .filter(open)
            .max_by(|a, b| density(*a).total_cmp(&density(*b)));
        let mut best: Option<Exchange> = None;
        for lowered_idx in (0..self.x.len()).filter(|item_idx| self.x[*item_idx] > 0.0) {
            let readers = self.readers[lowered_idx].iter();
            let related = readers
                .flat_map(|(term_idx, _)| &self.problem.terms[*term_idx].reads)
                .map(|column| column.item_idx);
            for raised_idx in related.chain(densest).filter(open) {
                if raised_idx == lowered_idx {
                    continue;
                }
                let rate = self.exchange_rate(lowered_idx, raised_idx, drift);
                if best.as_ref().is_none_or(|best| rate > best.rate) {
                    best = Some(Exchange {
                        lowered_idx,
                        raised_idx,
                        rate,
                    });
                }
            }
        }
        best
    }

    fn set_drift(&self, lowered_idx: usize, raised_idx: usize, drift: &mut Drift) {
        for term_idx in drift.touched.drain(..) {
            drift.by_term[term_idx] = 0.0;
        }
        for (item_idx, sign) in [(lowered_idx, -1.0), (raised_idx, 1.0)] {
            let size = self.problem.items[item_idx].bytes;
            for (term_idx, bytes) in &self.readers[item_idx] {
                if drift.by_term[*term_idx] == 0.0 {
                    drift.touched.push(*term_idx);
                }
                drift.by_term[*term_idx] += sign * bytes / size;
            }
        }
    }

    /// Seconds won per byte exchanged.
    fn exchange_rate(&self, lowered_idx: usize, raised_idx: usize, drift: &mut Drift) -> f64 {
        self.set_drift(lowered_idx, raised_idx, drift);
        let won = drift.touched.iter().map(|term_idx| {
            let change = drift.by_term[*term_idx];
            let slope = match change < 0.0 {
                true => self.slope_below(*term_idx),
                false => self.slopes[*term_idx],
            };
            slope * change
        });
        let besides =
            |idx: usize| self.problem.choices[idx].saved_s / self.problem.items[idx].bytes;
        won.sum::<f64>() + besides(raised_idx) - besides(lowered_idx)
    }

    /// How many bytes can be exchanged at the same rate.
    fn exchange_bytes(&self, exchange: &Exchange, drift: &mut Drift) -> f64 {
        let lowered = &self.problem.items[exchange.lowered_idx];
        let raised = &self.problem.items[exchange.raised_idx];
        let there_is = self.x[exchange.lowered_idx] * lowered.bytes;
        let there_fits = (1.0 - self.x[exchange.raised_idx]) * raised.bytes;
        self.set_drift(exchange.lowered_idx, exchange.raised_idx, drift);
        let mut bytes = there_is.min(there_fits);
        for term_idx in &drift.touched {
            let savings = &self.savings[*term_idx];
            let cached = self.cached[*term_idx];
            let change = drift.by_term[*term_idx];
            for kink in [savings.grows_to, savings.shrinks_from] {
                let until = (kink - cached) / change;
                if kink.is_finite() && (kink - cached).abs() > 1e-9 * cached && until > 0.0 {
                    bytes = bytes.min(until);
                }
            }
        }
        bytes
    }
}
