//! One price, and what runs said about it.

/// Runs are gathered until this much work was expected of them: shorter ones are mostly noise.
const LESSON_NS: f64 = 10e6;
/// A lesson moves the price by this part of the way.
const WEIGHT: f64 = 0.25;
/// What is further off says that something else took the time: it counts as this many times more, or less.
const SURPRISE_MAX: f64 = 4.0;
/// Machines differ by less than this many times from where a price begins.
const CHANGE_MAX: f64 = 32.0;

/// A price in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account {
    start_ns: f64,
    price_ns: f64,
    lesson_count: u64,
    /// Of the work since the last lesson: the time by the price, and the time it took.
    expected_ns: f64,
    took_ns: f64,
}

impl Account {
    pub fn new(start_ns: f64) -> Self {
        Self {
            start_ns,
            price_ns: start_ns,
            lesson_count: 0,
            expected_ns: 0.0,
            took_ns: 0.0,
        }
    }

    pub fn price_ns(&self) -> f64 {
        self.price_ns
    }

    /// How often the price was corrected.
    pub fn lesson_count(&self) -> u64 {
        self.lesson_count
    }

    /// Notes what some work took.
    pub fn add(&mut self, expected_ns: f64, took_ns: f64) {
        let says_something = |ns: f64| ns.is_finite() && ns > 0.0;
        if !(says_something(expected_ns) && says_something(took_ns)) {
            return;
        }
        self.expected_ns += expected_ns;
        self.took_ns += took_ns;
        if self.expected_ns < LESSON_NS {
            return;
        }
        let ratio = self.took_ns / self.expected_ns;
        let ratio = ratio.clamp(1.0 / SURPRISE_MAX, SURPRISE_MAX);
        let price_ns = self.price_ns * (1.0 + WEIGHT * (ratio - 1.0));
        let (least, most) = (self.start_ns / CHANGE_MAX, self.start_ns * CHANGE_MAX);
        *self = Self {
            price_ns: price_ns.clamp(least, most),
            lesson_count: self.lesson_count + 1,
            ..Self::new(self.start_ns)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The price after work was measured this often, each time with this many times what it was expected to take.
    fn after(runs: usize, ratio: f64) -> f64 {
        let mut account = Account::new(2.0);
        for _ in 0..runs {
            account.add(LESSON_NS, LESSON_NS * ratio);
        }
        account.price_ns()
    }

    #[test]
    fn a_price_moves_towards_what_was_measured() {
        let mut account = Account::new(2.0);
        // A million units that take 3 ns each, a tenth of a second at a time.
        for _ in 0..40 {
            account.add(1e8 * account.price_ns() / 3.0, 1e8);
        }
        assert!((account.price_ns() - 3.0).abs() < 0.01, "{account:?}");
        assert_eq!(account.lesson_count(), 40);
        assert_eq!(after(1, 3.0), 3.0);
        assert_eq!(after(1, 0.5), 1.75);
    }

    #[test]
    fn short_runs_count_together() {
        let mut account = Account::new(2.0);
        for _ in 0..9 {
            account.add(LESSON_NS / 10.0, LESSON_NS / 5.0);
        }
        assert_eq!((account.price_ns(), account.lesson_count()), (2.0, 0));
        account.add(LESSON_NS / 8.0, LESSON_NS / 4.0);
        assert_eq!((account.price_ns(), account.lesson_count()), (2.5, 1));
    }

    #[test]
    fn a_run_that_says_nothing_changes_nothing() {
        let mut account = Account::new(2.0);
        for ns in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            account.add(ns, 1e9);
            account.add(1e9, ns);
        }
        assert_eq!((account.price_ns(), account.lesson_count()), (2.0, 0));
    }

    #[test]
    fn neither_one_run_nor_many_go_beyond_bounds() {
        assert_eq!(after(1, 1e9), after(1, SURPRISE_MAX));
        assert_eq!(after(1, 1e-9), after(1, 1.0 / SURPRISE_MAX));
        assert_eq!(after(1000, 1e9), 2.0 * CHANGE_MAX);
        assert_eq!(after(1000, 1e-9), 2.0 / CHANGE_MAX);
    }
}
