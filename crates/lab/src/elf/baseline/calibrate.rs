//! Finding the prices of a machine by asking queries there.

use std::hint::black_box;

use fastrand::Rng;

use hotshelf_elf::Result;
use hotshelf_elf::cost::{CostModel, Costs, Work};
use hotshelf_elf::keys::{CodeTable, QueryBox, Restriction};
use hotshelf_elf::layout::packed::PackedElf;

use super::scan::ColumnScan;
use super::{START, ScanCost, fit};

/// Each query runs this often; its fastest run counts.
const REPEATS: usize = 3;

/// Prices of an Elf and of a byte-wise scan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// Prices of the Elf.
    pub costs: Costs,
    /// Prices of the scan.
    pub scan: ScanCost,
}

/// Random conjunctions over a table, the same for the same seed: one to four restricted dimensions, each from
/// equality with some row's code to most of the codes. They start anywhere, also behind wildcards.
pub fn sample_queries(table: &CodeTable, count: usize, seed: u64) -> Vec<QueryBox> {
    let mut random = Rng::with_seed(seed);
    let mut below = |end: usize| random.usize(..end.max(1));
    let maxima: Vec<u32> = table.columns().iter().map(|column| column.max()).collect();
    let query = |_| {
        let mut query = vec![Restriction::Any; table.dimension_count()];
        let row = below(table.row_count());
        // Half of the queries restrict neighbouring columns from a random one on, as drill-downs do.
        let (first, is_run) = (below(query.len()), below(2) == 0);
        for nth in 0..=below(4) {
            let dimension = match is_run {
                true => (first + nth).min(query.len() - 1),
                false => below(query.len()),
            };
            let code_count = f64::from(maxima[dimension]) + 1.0;
            let width = code_count.powf(below(1000) as f64 / 1000.0) as u32;
            let code = match table.row_count() {
                0 => 0,
                _ => table.columns()[dimension].get(row),
            };
            let lo = code.saturating_sub(below(width.max(1) as usize) as u32);
            let hi = lo.saturating_add(width.saturating_sub(1));
            query[dimension] = Restriction::Range { lo, hi };
        }
        QueryBox::new(query)
    };
    (0..count).map(query).collect()
}

fn restricted_count(query: &QueryBox) -> f64 {
    let dimensions = query.dimensions().iter();
    dimensions.filter(|one| !one.is_any()).count() as f64
}

/// Asks `query_count` sample queries through the Elf and through a scan, and fits the prices that explain the
/// times. The clock is the caller's: `now_ns` reads it. Takes a few seconds on large tables.
///
/// # Errors
/// None today: the sample queries fit the table.
pub fn calibrate<S: AsRef<[u64]>>(
    elf: &PackedElf<S>,
    table: &CodeTable,
    query_count: usize,
    mut now_ns: impl FnMut() -> f64,
) -> Result<Calibration> {
    let model = CostModel::new(elf, table);
    let scan = ColumnScan::new(table);
    let mut fastest = |run: &dyn Fn() -> Result<Vec<u32>>| -> Result<(f64, usize)> {
        let (mut best, mut len) = (f64::INFINITY, 0);
        for _ in 0..REPEATS {
            let start = now_ns();
            len = black_box(run()?).len();
            best = best.min(now_ns() - start);
        }
        Ok((best, len))
    };
    let mut measured: Vec<(Work, f64)> = Vec::new();
    let mut scanned: Vec<([f64; 2], f64)> = Vec::new();
    for query in sample_queries(table, query_count, 1) {
        // What the model expects of a query, with the rows it really returns.
        let (elf_ns, results) = fastest(&|| elf.select(&query))?;
        let work = Work {
            results: results as f64,
            ..model.work(&query)?
        };
        measured.push((work, elf_ns));
        let tested = elf.row_count() as f64 * restricted_count(&query);
        let (scan_ns, _) = fastest(&|| scan.select(&query))?;
        scanned.push(([tested, results as f64], scan_ns));
    }
    Ok(Calibration {
        costs: fit(&START, &measured),
        scan: ScanCost::fit(&scanned),
    })
}
