//! Calibrates the cost model on this machine and shows how good its choices between Elf and scan are.
//!
//! `cargo run --release -p hotshelf-elf --example planner -- [rows] [dimensions] [codes]`
//!
//! Half of the queries calibrate, the other half is judged. Regret is the time lost by choosing the slower
//! path, as a share of the time of always choosing the faster one.

use std::hint::black_box;
use std::time::Instant;

use hotshelf_elf::Result;
use hotshelf_elf::cost::{CostModel, Costs, Path, ScanCost};
use hotshelf_elf::keys::{CodeColumn, CodeTable, QueryBox, Restriction};
use hotshelf_elf::layout::packed::{PackedElf, PackedOptions};
use hotshelf_elf::scan::ColumnScan;

/// A splitmix step.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Nanoseconds of the fastest of a few runs.
fn best_ns(mut run: impl FnMut() -> Result<Vec<u32>>) -> f64 {
    let times = (0..5).map(|_| {
        let start = Instant::now();
        black_box(run().expect("dimensions match"));
        start.elapsed().as_nanos() as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

/// One to four restricted dimensions, from equality to most of the domain.
fn random_query(dimension_count: usize, code_count: u32, seed: &mut u64) -> QueryBox {
    let mut query = QueryBox::unrestricted(dimension_count);
    for _ in 0..=next_random(seed) % 4 {
        let dimension = next_random(seed) as usize % dimension_count;
        let exponent = (next_random(seed) % 1000) as f64 / 1000.0;
        let width = f64::from(code_count).powf(exponent) as u32;
        let lo = (next_random(seed) % u64::from(code_count - width + 1)) as u32;
        let range = Restriction::Range {
            lo,
            hi: lo + width - 1,
        };
        query.restrict(dimension, &range).expect("known dimension");
    }
    query
}

fn main() -> Result<()> {
    let argument = |idx: usize, default: usize| {
        std::env::args()
            .nth(idx)
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let (row_count, dimension_count) = (argument(1, 2_000_000), argument(2, 8));
    let code_count = argument(3, 50) as u32;
    let mut seed = 5;
    let columns = (0..dimension_count).map(|_| {
        let codes = (0..row_count).map(|_| (next_random(&mut seed) % u64::from(code_count)) as u32);
        CodeColumn::from_codes(codes, code_count - 1)
    });
    let table = CodeTable::new(columns.collect())?;
    let elf = PackedElf::build(&table, &PackedOptions::default())?;
    let scan = ColumnScan::new(&table);
    let mut model = CostModel::new(&elf, &table, Costs::default());
    let (mut elf_times, mut scan_times, mut queries) = (vec![], vec![], vec![]);
    while queries.len() < 200 {
        let query = random_query(dimension_count, code_count, &mut seed);
        if !query.is_none() {
            elf_times.push(best_ns(|| elf.select(&query)));
            scan_times.push(best_ns(|| scan.select(&query)));
            queries.push(query);
        }
    }
    let half = queries.len() / 2;
    let mut measured = Vec::new();
    let (mut tested, mut scanned, mut results) = (0.0, 0.0, 0.0);
    for at in 0..half {
        let work = model.work(&queries[at])?;
        measured.push((work, elf_times[at]));
        let restricted = queries[at]
            .dimensions()
            .iter()
            .filter(|one| !one.is_any())
            .count();
        // Selective queries tell the price of testing, the others that of results.
        if work.results * 100.0 < row_count as f64 {
            tested += row_count as f64 * restricted as f64;
            scanned += scan_times[at];
        } else {
            results += work.results;
        }
    }
    let row_column_ns = scanned / f64::max(tested, 1.0);
    let mut result_time = 0.0;
    for at in 0..half {
        if model.work(&queries[at])?.results * 100.0 >= row_count as f64 {
            let restricted = queries[at]
                .dimensions()
                .iter()
                .filter(|one| !one.is_any())
                .count();
            result_time += scan_times[at] - row_count as f64 * restricted as f64 * row_column_ns;
        }
    }
    let scan_cost = ScanCost {
        row_column_ns,
        result_ns: (result_time / f64::max(results, 1.0)).max(0.0),
    };
    model.costs = model.costs.fit(&measured);
    println!("{:?}\n{scan_cost:?}", model.costs);

    let (mut chosen_ns, mut best, mut wrong) = (0.0, 0.0, 0);
    let (mut always_elf, mut always_scan, mut error) = (0.0, 0.0, Vec::new());
    for at in half..queries.len() {
        let choice = model.choose(&queries[at], &scan_cost, 1)?;
        let taken = if choice.path == Path::Elf {
            elf_times[at]
        } else {
            scan_times[at]
        };
        let fastest = elf_times[at].min(scan_times[at]);
        (chosen_ns, best) = (chosen_ns + taken, best + fastest);
        (always_elf, always_scan) = (always_elf + elf_times[at], always_scan + scan_times[at]);
        wrong += usize::from(taken > fastest * 1.1);
        error.push((choice.elf_ns / elf_times[at]).ln().abs().exp());
    }
    error.sort_by(f64::total_cmp);
    println!(
        "{} queries: regret {:.1} %, {wrong} choices more than 10 % slower; always elf +{:.0} %, always scan +{:.0} %; \
         elf prediction off by {:.2}x (median), {:.2}x (90 %)",
        queries.len() - half,
        (chosen_ns / best - 1.0) * 100.0,
        (always_elf / best - 1.0) * 100.0,
        (always_scan / best - 1.0) * 100.0,
        error[error.len() / 2],
        error[error.len() * 9 / 10],
    );
    Ok(())
}
