//! Which columns belong into an Elf, and in which order.
//!
//! On a sample of the table the cost of a logged query is estimated as the list entries visited down to
//! where groups begin, plus the rows in the groups reached. The order is built greedily and improved by
//! exchanging pairs.

use crate::error::Result;
use crate::keys::{CodeTable, QueryBox};

use super::Histogram;

/// Rows below which a prefix becomes a group.
const GROUP_ROWS: f64 = 64.0;

/// Cost of a list entry relative to a row tested in a group.
const ENTRY_COST: f64 = 4.0;

/// A query of the past over all candidate columns, and how often it was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedQuery {
    /// The restrictions, one per candidate column.
    pub query: QueryBox,
    /// How much it counts.
    pub weight: f64,
}

/// What the advisor found.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// Column numbers in the order the Elf should have. Columns that no query restricts are omitted.
    pub order: Vec<usize>,
    /// Estimated cost of the log in this order, in rows tested.
    pub cost: f64,
    /// The same in the order the columns were given, without the unrestricted ones.
    pub cost_as_given: f64,
}

/// Distinct prefixes of an order, scaled from a sample to the table.
struct Sample<'a> {
    table: &'a CodeTable,
    /// Rows of the whole table.
    row_count: f64,
}

impl Sample<'_> {
    /// Distinct prefixes of length 1, 2, … of the whole table in some order of columns. From a sample of
    /// the share q: those seen once count sqrt(1 / q) times (Charikar's guaranteed-error estimator).
    fn prefix_counts(&self, order: &[usize]) -> Vec<f64> {
        let sampled = self.table.row_count();
        let scale = (self.row_count / sampled.max(1) as f64).max(1.0).sqrt();
        let mut rows: Vec<usize> = (0..sampled).collect();
        // Rows of one class agree on the prefix; classes stand next to each other.
        let mut starts = vec![0, sampled];
        let mut counts = Vec::with_capacity(order.len());
        for &column in order {
            let codes = &self.table.columns()[column];
            let mut finer = vec![];
            let (mut once, mut more) = (0.0, 0.0);
            for pair in starts.windows(2) {
                let class = &mut rows[pair[0]..pair[1]];
                class.sort_unstable_by_key(|&row| codes.get(row));
                for run in class.chunk_by(|&a, &b| codes.get(a) == codes.get(b)) {
                    finer.push(run.len());
                    if run.len() == 1 {
                        once += 1.0
                    } else {
                        more += 1.0
                    }
                }
            }
            starts = [0]
                .into_iter()
                .chain(finer.into_iter().scan(0, |end, len| {
                    *end += len;
                    Some(*end)
                }))
                .collect();
            counts.push((once * scale + more).min(self.row_count));
        }
        counts
    }

    fn cost(&self, order: &[usize], selectivities: &[(Vec<f64>, f64)]) -> f64 {
        let prefixes = self.prefix_counts(order);
        let mut total = 0.0;
        for (selectivity, weight) in selectivities {
            let (mut reached, mut cost) = (1.0, 0.0);
            for (level, &column) in order.iter().enumerate() {
                let above = if level == 0 { 1.0 } else { prefixes[level - 1] };
                if self.row_count / above <= GROUP_ROWS {
                    break;
                }
                reached *= selectivity[column];
                cost += ENTRY_COST * prefixes[level] * reached;
            }
            total += weight * (cost + self.row_count * reached);
        }
        total
    }
}

/// Advises columns and their order for a log of queries. `sample` holds some rows of the candidate
/// columns, `row_count` is the size of the whole table. Without a log, or when no query restricts
/// anything, the order is by ascending number of distinct codes, as in the papers.
///
/// # Errors
/// When a query has another number of columns.
pub fn advise(sample: &CodeTable, row_count: u64, log: &[LoggedQuery]) -> Result<Advice> {
    let column_count = sample.dimension_count();
    let histograms: Vec<Histogram> = sample
        .columns()
        .iter()
        .map(Histogram::from_column)
        .collect();
    let mut selectivities = Vec::with_capacity(log.len());
    for one in log {
        one.query.check(column_count)?;
        let pairs = histograms.iter().zip(one.query.dimensions());
        selectivities.push((
            pairs.map(|(h, r)| h.selectivity(r)).collect::<Vec<_>>(),
            one.weight,
        ));
    }
    let is_filtered = |column: &usize| {
        log.iter()
            .any(|one| one.weight > 0.0 && !one.query.dimensions()[*column].is_any())
    };
    let mut members: Vec<usize> = (0..column_count).filter(is_filtered).collect();
    if members.is_empty() {
        members = (0..column_count).collect();
    }
    let sample = Sample {
        table: sample,
        row_count: row_count as f64,
    };
    let cost = |order: &[usize]| sample.cost(order, &selectivities);
    let cost_as_given = cost(&members);
    let mut order = members;
    order.sort_by_key(|&column| sample.prefix_counts(&[column])[0] as u64);
    if !selectivities.is_empty() {
        order = greedy(&order, &cost);
        exchange(&mut order, &cost);
    }
    let cost = cost(&order);
    Ok(Advice {
        order,
        cost,
        cost_as_given,
    })
}

/// Takes, again and again, the column whose prefix costs least.
fn greedy(members: &[usize], cost: &impl Fn(&[usize]) -> f64) -> Vec<usize> {
    let (mut order, mut remaining) = (Vec::new(), members.to_vec());
    while !remaining.is_empty() {
        let costs = remaining.iter().map(|&column| {
            let longer: Vec<usize> = order.iter().copied().chain([column]).collect();
            cost(&longer)
        });
        let best = costs.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        order.push(remaining.remove(best.map_or(0, |(at, _)| at)));
    }
    order
}

/// Exchanges pairs of columns as long as that helps.
fn exchange(order: &mut [usize], cost: &impl Fn(&[usize]) -> f64) {
    let mut best = cost(order);
    for _ in 0..order.len() {
        let before = best;
        for a in 0..order.len() {
            for b in a + 1..order.len() {
                order.swap(a, b);
                let swapped = cost(order);
                if swapped < best {
                    best = swapped;
                } else {
                    order.swap(a, b);
                }
            }
        }
        if best >= before {
            break;
        }
    }
}
