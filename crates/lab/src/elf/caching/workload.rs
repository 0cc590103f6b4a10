//! The papers' queries: points and boxes around tuples that are drawn by a Zipf distribution.

use fastrand::Rng;
use hotshelf_elf::keys::{CodeTable, QueryBox, Restriction};

/// Ranks beyond this are summed up by an integral.
const EXACT_RANKS: usize = 10_000;

/// Draws ranks below `count` with a probability of `1 / (rank + 1)^theta` each (Gray et al. 1994).
#[derive(Debug, Clone, Copy)]
pub struct Zipf {
    count: f64,
    theta: f64,
    total: f64,
    eta: f64,
}

/// The sum of `1 / rank^theta` over the first ranks.
fn harmonic(count: usize, theta: f64) -> f64 {
    let exact = count.min(EXACT_RANKS);
    let sum: f64 = (1..=exact).map(|rank| (rank as f64).powf(-theta)).sum();
    let power = 1.0 - theta;
    // The middle of the first and the last interval.
    let (first, last) = (exact as f64 + 0.5, count as f64 + 0.5);
    sum + (last.powf(power) - first.powf(power)) / power
}

impl Zipf {
    /// For this many ranks, at least two; `theta` below 1.
    pub fn new(count: usize, theta: f64) -> Self {
        let count = count.max(2);
        let total = harmonic(count, theta);
        let two = 1.0 + 0.5f64.powf(theta);
        let share = 2.0 / count as f64;
        Self {
            count: count as f64,
            theta,
            total,
            eta: (1.0 - share.powf(1.0 - theta)) / (1.0 - two / total),
        }
    }

    /// A rank.
    pub fn draw(&self, random: &mut Rng) -> usize {
        if self.theta == 0.0 {
            return random.usize(..self.count as usize);
        }
        let part = random.f64();
        let place = part * self.total;
        if place < 1.0 {
            return 0;
        }
        if place < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let power = 1.0 / (1.0 - self.theta);
        let rank = self.count * (self.eta * (part - 1.0) + 1.0).powf(power);
        (rank as usize).min(self.count as usize - 1)
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Query {
    /// All dimensions equal those of a row.
    Exact,
    /// The same, but no row has the last code.
    Miss,
    /// A part of every dimension's codes, from a row's code upwards.
    Range(f64),
    /// The same on every second dimension, the first among them; anything on the others.
    Partial(f64),
}

impl Query {
    /// A short name.
    pub fn name(self) -> String {
        match self {
            Self::Exact => "exact".to_owned(),
            Self::Miss => "exact, miss".to_owned(),
            Self::Range(part) => format!("range {} %", part * 100.0),
            Self::Partial(part) => format!("partial {} %", part * 100.0),
        }
    }
}

/// Queries to be answered one after the other.
#[derive(Debug, Clone)]
pub enum Queries {
    /// Keys, one after the other.
    Keys(Vec<u32>),
    /// Boxes.
    Boxes(Vec<QueryBox>),
}

impl Queries {
    /// How many there are.
    pub fn count(&self, dimension_count: usize) -> usize {
        match self {
            Self::Keys(keys) => keys.len() / dimension_count,
            Self::Boxes(boxes) => boxes.len(),
        }
    }
}

/// Draws rows of a table, and makes queries of them.
#[derive(Debug)]
pub struct Source<'a> {
    table: &'a CodeTable,
    maxima: Vec<u32>,
    /// Rows that are drawn from: the first ones.
    row_count: usize,
    zipf: Zipf,
    random: Rng,
}

/// A large prime: multiplying by it scatters the popular ranks over the table.
const SCATTER: u64 = 1_000_000_007;

impl<'a> Source<'a> {
    /// The same queries for the same seed.
    pub fn new(table: &'a CodeTable, theta: f64, seed: u64) -> Self {
        Self {
            table,
            maxima: table.columns().iter().map(|column| column.max()).collect(),
            row_count: table.row_count(),
            zipf: Zipf::new(table.row_count(), theta),
            random: Rng::with_seed(seed),
        }
    }

    /// Draws from the first rows only, this part of all.
    pub fn within(mut self, part: f64) -> Self {
        self.row_count = ((self.row_count as f64 * part) as usize).max(1);
        self
    }

    fn row(&mut self) -> usize {
        let rank = self.zipf.draw(&mut self.random) as u64;
        (rank * SCATTER % self.row_count as u64) as usize
    }

    fn code_box(&mut self, part: f64, is_restricted: impl Fn(usize) -> bool) -> QueryBox {
        let row = self.row();
        let columns = self.table.columns().iter().zip(&self.maxima).enumerate();
        let restrictions = columns.map(|(dimension, (column, &max))| {
            if !is_restricted(dimension) {
                return Restriction::Any;
            }
            let width = ((f64::from(max) + 1.0) * part).ceil().max(1.0) as u32;
            let lo = column.get(row);
            Restriction::Range {
                lo,
                hi: lo.saturating_add(width - 1),
            }
        });
        QueryBox::new(restrictions.collect())
    }

    /// The next queries.
    pub fn queries(&mut self, query: Query, count: usize) -> Queries {
        match query {
            Query::Exact | Query::Miss => {
                let mut keys = Vec::with_capacity(count * self.maxima.len());
                for _ in 0..count {
                    let row = self.row();
                    keys.extend(self.table.columns().iter().map(|column| column.get(row)));
                    if query == Query::Miss
                        && let (Some(last), Some(&max)) = (keys.last_mut(), self.maxima.last())
                    {
                        *last = (*last + 1) % (max + 1);
                    }
                }
                Queries::Keys(keys)
            }
            Query::Range(part) => {
                Queries::Boxes((0..count).map(|_| self.code_box(part, |_| true)).collect())
            }
            Query::Partial(part) => {
                let every_second = |dimension: usize| dimension.is_multiple_of(2);
                Queries::Boxes(
                    (0..count)
                        .map(|_| self.code_box(part, every_second))
                        .collect(),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shares that the hottest parts of 10^8 tuples have, by the formula of the distribution.
    #[test]
    fn the_hottest_tuples_get_their_share() {
        for (theta, part, share) in [(0.5, 0.038, 0.195), (0.75, 0.01, 0.31), (0.99, 0.01, 0.74)] {
            let zipf = Zipf::new(100_000_000, theta);
            let mut random = Rng::with_seed(3);
            let hot = (part * 1e8) as usize;
            let hits = (0..50_000).filter(|_| zipf.draw(&mut random) < hot).count();
            let found = hits as f64 / 50_000.0;
            assert!((found - share).abs() < 0.015, "{theta}: {found}");
        }
    }
}
