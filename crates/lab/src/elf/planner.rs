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
use super::baseline::{Path, calibrate, choose, sample_queries};

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
    let scan = ColumnScan::new(table);
    let start = Instant::now();
    let now_ns = || start.elapsed().as_nanos() as f64;
    let found = calibrate(&elf, table, CALIBRATION_COUNT, now_ns)?;
    let mut tell = |case: &str, contender: &str, value: f64, unit: &'static str| {
        let (case, contender) = (case.to_owned(), contender.to_owned());
        show(Figure {
            case,
            contender,
            value,
            unit,
            ratio: None,
        });
    };
    tell("calibration", "both paths", now_ns() / 1e9, "s");
    for (price, value) in [
        ("node", found.costs.node_ns),
        ("child", found.costs.child_ns),
        ("jump", found.costs.jump_ns),
        ("suffix word", found.costs.word_ns),
        ("result", found.costs.result_ns),
        ("query", found.costs.query_ns),
        ("scanned row and column", found.scan.row_column_ns),
        ("scanned result", found.scan.result_ns),
    ] {
        tell("price", price, value, "ns");
    }
    let model = CostModel::new(&elf, table, found.costs);
    let best_of = |run: &dyn Fn() -> Result<Vec<u32>>| -> Result<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            let start = Instant::now();
            black_box(run()?);
            best = best.min(start.elapsed().as_nanos() as f64);
        }
        Ok(best)
    };
    let (mut chosen, mut best, mut always_elf, mut always_scan) = (0.0, 0.0, 0.0, 0.0);
    let (mut wrong, mut wildcard, mut wildcard_scans, mut errors) = (0, 0, 0, Vec::new());
    for query in sample_queries(table, JUDGED_COUNT, 2) {
        let choice = choose(&model, elf.row_count(), &query, &found.scan)?;
        let elf_ns = best_of(&|| elf.select(&query))?;
        let scan_ns = best_of(&|| scan.select(&query))?;
        let (taken, fastest) = match choice.path {
            Path::Elf => (elf_ns, elf_ns.min(scan_ns)),
            Path::Scan => (scan_ns, elf_ns.min(scan_ns)),
        };
        (chosen, best) = (chosen + taken, best + fastest);
        (always_elf, always_scan) = (always_elf + elf_ns, always_scan + scan_ns);
        wrong += usize::from(taken > fastest * 1.1);
        errors.push((choice.elf_ns / elf_ns).ln().abs().exp());
        if is_behind_wildcards(&query) {
            wildcard += 1;
            wildcard_scans += usize::from(choice.path == Path::Scan);
        }
    }
    errors.sort_by(f64::total_cmp);
    let loss = |time: f64| (time / best - 1.0) * 100.0;
    tell("time over the faster path", "planner", loss(chosen), "%");
    tell(
        "time over the faster path",
        "always elf",
        loss(always_elf),
        "%",
    );
    tell(
        "time over the faster path",
        "always scan",
        loss(always_scan),
        "%",
    );
    tell(
        "choices more than 10 % slower",
        "planner",
        wrong as f64,
        "of 200",
    );
    tell(
        "queries behind three wildcards",
        "asked",
        f64::from(wildcard),
        "queries",
    );
    tell(
        "queries behind three wildcards",
        "sent to the scan",
        wildcard_scans as f64,
        "queries",
    );
    tell(
        "elf prediction off by",
        "median",
        errors[errors.len() / 2],
        "x",
    );
    tell(
        "elf prediction off by",
        "90 %",
        errors[errors.len() * 9 / 10],
        "x",
    );
    Ok(())
}

/// Whether the first three dimensions are unrestricted.
fn is_behind_wildcards(query: &QueryBox) -> bool {
    query.dimensions().iter().take(3).all(|one| one.is_any())
}
