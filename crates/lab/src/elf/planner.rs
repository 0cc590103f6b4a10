//! Elf or scan: prices fitted on some queries, choices judged on others.
//!
//! Regret is the time lost by choosing the slower path, as a share of the time of always choosing the faster.

use std::hint::black_box;
use std::time::Instant;

use hotshelf_elf::Result;
use hotshelf_elf::cost::CostModel;
use hotshelf_elf::keys::{CodeTable, QueryBox};
use hotshelf_elf::layout::packed::{PackedElf, PackedOptions};

use super::Figure;
use super::baseline::scan::ColumnScan;
use super::baseline::{Calibration, Path, calibrate, choose, sample_queries};

const CALIBRATION_COUNT: usize = 120;
const JUDGED_COUNT: usize = 200;

pub(super) fn run(table: &CodeTable, show: &mut dyn FnMut(Figure)) -> Result<()> {
    let elf = PackedElf::build(
        table,
        &PackedOptions {
            thread_count: 2,
            ..Default::default()
        },
    )?;
    let start = Instant::now();
    let now_ns = || start.elapsed().as_nanos() as f64;
    let prices = calibrate(&elf, table, CALIBRATION_COUNT, now_ns)?;
    let mut row = |case: &str, contender: &str, value: f64, unit: &'static str| {
        let (case, contender) = (case.to_owned(), contender.to_owned());
        show(Figure {
            case,
            contender,
            value,
            unit,
            ratio: None,
        });
    };
    row("calibration", "both paths", now_ns() / 1e9, "s");
    for (price, value) in [
        ("node", prices.costs.node_ns),
        ("child", prices.costs.child_ns),
        ("jump", prices.costs.jump_ns),
        ("suffix word", prices.costs.word_ns),
        ("result", prices.costs.result_ns),
        ("query", prices.costs.query_ns),
        ("scanned row and column", prices.scan.row_column_ns),
        ("scanned result", prices.scan.result_ns),
    ] {
        row("price", price, value, "ns");
    }
    Verdict::of(table, &elf, &prices)?.show(&mut row);
    Ok(())
}

/// What the choices cost on queries that they were not calibrated with.
#[derive(Default)]
struct Verdict {
    /// Sums of times.
    chosen_ns: f64,
    best_ns: f64,
    always_elf_ns: f64,
    always_scan_ns: f64,
    /// Choices more than a tenth slower than the other path.
    wrong_count: u32,
    /// Queries behind three wildcards, and those of them that were scanned.
    wildcard_count: u32,
    wildcard_scan_count: u32,
    /// By which factor the predicted time of the Elf was off, smallest first.
    errors: Vec<f64>,
}

impl Verdict {
    fn of(table: &CodeTable, elf: &PackedElf, prices: &Calibration) -> Result<Self> {
        let scan = ColumnScan::new(table);
        let model = CostModel::new(elf, table);
        let mut verdict = Self::default();
        for query in sample_queries(table, JUDGED_COUNT, 2) {
            let choice = choose(&model, elf.row_count(), &query, prices)?;
            let elf_ns = best_ns(&|| elf.select(&query))?;
            let scan_ns = best_ns(&|| scan.select(&query))?;
            let fastest_ns = elf_ns.min(scan_ns);
            let taken_ns = match choice.path {
                Path::Elf => elf_ns,
                Path::Scan => scan_ns,
            };
            verdict.chosen_ns += taken_ns;
            verdict.best_ns += fastest_ns;
            verdict.always_elf_ns += elf_ns;
            verdict.always_scan_ns += scan_ns;
            verdict.wrong_count += u32::from(taken_ns > fastest_ns * 1.1);
            verdict
                .errors
                .push((choice.elf_ns / elf_ns).ln().abs().exp());
            if is_behind_wildcards(&query) {
                verdict.wildcard_count += 1;
                verdict.wildcard_scan_count += u32::from(choice.path == Path::Scan);
            }
        }
        verdict.errors.sort_by(f64::total_cmp);
        Ok(verdict)
    }

    /// Rows of case, contender, value and unit.
    fn show(&self, row: &mut dyn FnMut(&str, &str, f64, &'static str)) {
        let loss = |time_ns: f64| (time_ns / self.best_ns - 1.0) * 100.0;
        let case = "time over the faster path";
        row(case, "planner", loss(self.chosen_ns), "%");
        row(case, "always elf", loss(self.always_elf_ns), "%");
        row(case, "always scan", loss(self.always_scan_ns), "%");
        let wrong = f64::from(self.wrong_count);
        row("choices more than 10 % slower", "planner", wrong, "of 200");
        let case = "queries behind three wildcards";
        row(case, "asked", f64::from(self.wildcard_count), "queries");
        let scanned = f64::from(self.wildcard_scan_count);
        row(case, "sent to the scan", scanned, "queries");
        let (case, count) = ("elf prediction off by", self.errors.len());
        row(case, "median", self.errors[count / 2], "x");
        row(case, "90 %", self.errors[count * 9 / 10], "x");
    }
}

/// The least of three times.
fn best_ns(run: &dyn Fn() -> Result<Vec<u32>>) -> Result<f64> {
    let mut best_ns = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        black_box(run()?);
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64);
    }
    Ok(best_ns)
}

/// Whether the first three dimensions are unrestricted.
fn is_behind_wildcards(query: &QueryBox) -> bool {
    query.dimensions().iter().take(3).all(|one| one.is_any())
}
