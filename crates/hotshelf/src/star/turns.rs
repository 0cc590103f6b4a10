//! Whether a star tests the scan's filters before its look-ups or after them: the order that takes less time.
//!
//! A filter such as `l_receiptdate > l_commitdate` decodes two columns of every row; where look-ups leave a few rows of
//! each hundred, these alone are tested, and the other way round. Which is better is seen, not guessed: eddies (Avnur
//! and Hellerstein, SIGMOD 2000) of two steps, by row group.

/// What comes first in a row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    Filters,
    LookUps,
}

/// Row groups for which each order is tried before one is taken.
const TRIED: u32 = 2;

/// What both orders took so far.
#[derive(Debug, Default)]
pub(super) struct Turns {
    filters: Taken,
    look_ups: Taken,
}

#[derive(Debug, Default)]
struct Taken {
    row_groups: u32,
    rows: u64,
    ns: f64,
}

impl Taken {
    fn add(&mut self, rows: usize, ns: f64) {
        self.row_groups += 1;
        self.rows += rows as u64;
        self.ns += ns;
    }

    fn ns_per_row(&self) -> f64 {
        self.ns / self.rows.max(1) as f64
    }
}

impl Turns {
    /// What should come first in the next row group.
    pub fn next(&self) -> First {
        let (filters, look_ups) = (&self.filters, &self.look_ups);
        let after = match filters.row_groups.min(look_ups.row_groups) {
            TRIED.. => look_ups.ns_per_row() < filters.ns_per_row(),
            _ => look_ups.row_groups < filters.row_groups,
        };
        match after {
            true => First::LookUps,
            false => First::Filters,
        }
    }

    /// Notes what a row group took.
    pub fn note(&mut self, first: First, rows: usize, ns: f64) {
        match first {
            First::Filters => self.filters.add(rows, ns),
            First::LookUps => self.look_ups.add(rows, ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes first in this many row groups, of which each order takes so long by row.
    fn run(row_groups: usize, filters_ns: f64, look_ups_ns: f64) -> Vec<First> {
        let mut turns = Turns::default();
        let next = || {
            let first = turns.next();
            let ns = match first {
                First::Filters => filters_ns,
                First::LookUps => look_ups_ns,
            };
            turns.note(first, 100, ns * 100.0);
            first
        };
        std::iter::repeat_with(next).take(row_groups).collect()
    }

    #[test]
    fn both_orders_are_tried_and_the_faster_one_taken() {
        use First::{Filters, LookUps};
        let tried = [Filters, LookUps, Filters, LookUps];
        assert_eq!(run(6, 3.0, 1.0), [&tried[..], &[LookUps; 2]].concat());
        assert_eq!(run(6, 1.0, 3.0), [&tried[..], &[Filters; 2]].concat());
    }
}
