//! Elf or scan, by prices that are fitted to measured times.

use hotshelf_elf::Result;
use hotshelf_elf::cost::{CostModel, Costs, Work};
use hotshelf_elf::keys::QueryBox;

use super::calibrate::Calibration;

/// Where fitting begins: figures of a server of the 2020s.
pub const START: Costs = Costs {
    node_ns: 20.0,
    child_ns: 4.0,
    jump_ns: 60.0,
    word_ns: 0.7,
    result_ns: 3.0,
    query_ns: 200.0,
};

/// The prices that explain measured times best: least squares of the relative error, no price
/// negative. Terms that never occur keep their price.
pub fn fit(start: &Costs, measured: &[(Work, f64)]) -> Costs {
    let measured: Vec<_> = measured.iter().filter(|(_, ns)| *ns > 0.0).collect();
    let mut prices = [
        start.node_ns,
        start.child_ns,
        start.jump_ns,
        start.word_ns,
        start.result_ns,
        start.query_ns,
    ];
    let rows: Vec<[f64; 6]> = measured
        .iter()
        .map(|(work, ns)| {
            let [a, b, c, d, e] = work.terms();
            [a / ns, b / ns, c / ns, d / ns, e / ns, 1.0 / ns]
        })
        .collect();
    // Coordinate descent: each price in turn takes its best value while the others keep theirs.
    for _ in 0..2_000 {
        for at in 0..prices.len() {
            let (mut top, mut bottom) = (0.0, 0.0);
            for row in &rows {
                let others: f64 = (0..prices.len())
                    .filter(|&i| i != at)
                    .map(|i| row[i] * prices[i])
                    .sum();
                top += row[at] * (1.0 - others);
                bottom += row[at] * row[at];
            }
            if bottom > 0.0 {
                prices[at] = (top / bottom).max(0.0);
            }
        }
    }
    let [node_ns, child_ns, jump_ns, word_ns, result_ns, query_ns] = prices;
    Costs {
        node_ns,
        child_ns,
        jump_ns,
        word_ns,
        result_ns,
        query_ns,
    }
}

/// What a scan of the same columns costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScanCost {
    /// Nanoseconds per row and restricted column.
    pub row_column_ns: f64,
    /// Nanoseconds per result.
    pub result_ns: f64,
}

impl ScanCost {
    /// The prices that explain measured times best, given rows times restricted columns and results of each
    /// query: least squares of the relative error, no price negative.
    pub fn fit(measured: &[([f64; 2], f64)]) -> Self {
        let mut prices = [0.0; 2];
        for _ in 0..200 {
            for at in 0..2 {
                let (mut top, mut bottom) = (0.0, 0.0);
                for (terms, ns) in measured.iter().filter(|(_, ns)| *ns > 0.0) {
                    let (own, other) = (terms[at] / ns, terms[1 - at] / ns);
                    top += own * (1.0 - other * prices[1 - at]);
                    bottom += own * own;
                }
                if bottom > 0.0 {
                    prices[at] = (top / bottom).max(0.0);
                }
            }
        }
        Self {
            row_column_ns: prices[0],
            result_ns: prices[1],
        }
    }
}

/// Which way to answer a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Through the Elf.
    Elf,
    /// By scanning the restricted columns.
    Scan,
}

/// A decision and the figures behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The cheaper path.
    pub path: Path,
    /// Rows the query is expected to return.
    pub rows: f64,
    /// Predicted time through the Elf.
    pub elf_ns: f64,
    /// Predicted time of the scan.
    pub scan_ns: f64,
    /// Why, in a few words.
    pub reason: String,
}

/// Elf or scan over that many rows, on one thread, at these prices.
///
/// # Errors
/// When the query has another number of dimensions.
pub fn choose(
    model: &CostModel,
    row_count: usize,
    query: &QueryBox,
    prices: &Calibration,
) -> Result<Choice> {
    let (work, scan) = (model.work(query)?, &prices.scan);
    let elf_ns = prices.costs.predict_ns(&work);
    let restricted = query
        .dimensions()
        .iter()
        .filter(|one| !one.is_any())
        .count();
    let tested = row_count as f64 * restricted as f64 * scan.row_column_ns;
    let scan_ns = tested + work.results * scan.result_ns;
    let path = if elf_ns <= scan_ns {
        Path::Elf
    } else {
        Path::Scan
    };
    let reason = format!(
        "{} rows expected; elf {} for {} nodes and {} suffix words, scan {} for {restricted} columns",
        work.results.round(),
        show_ns(elf_ns),
        work.nodes.ceil(),
        work.words.ceil(),
        show_ns(scan_ns),
    );
    Ok(Choice {
        path,
        rows: work.results,
        elf_ns,
        scan_ns,
        reason,
    })
}

/// A time in the largest unit that keeps it above one.
fn show_ns(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns if ns >= 1e3 => format!("{:.2} us", ns / 1e3),
        ns => format!("{ns:.0} ns"),
    }
}
