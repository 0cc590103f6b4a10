//! One thread against several, from point queries to most of the table.

use fastrand::Rng;
use hotshelf_elf::Result;
use hotshelf_elf::keys::{CodeTable, QueryBox, Restriction};
use hotshelf_elf::layout::packed::{PackedElf, PackedOptions, ParallelOptions};

use super::compare::{checksum, compare, maxima};
use super::{ElfOptions, Figure};

/// Share of the codes of each restricted dimension, and how many queries.
const CASES: [(&str, &[f64], usize); 9] = [
    ("all dimensions 2 %", &[0.02; 64], 20_000),
    ("1-3 equal", &[0.0; 3], 20_000),
    ("1-2 at 5 %", &[0.05; 2], 2_000),
    ("1-3 at 10 %", &[0.1; 3], 2_000),
    ("2-3 at 5 %", &[1.0, 0.05, 0.05], 500),
    ("1-3 at 30 %", &[0.3; 3], 100),
    ("1-4 at 50 %", &[0.5; 4], 10),
    ("4-6 at 20 %", &[1.0, 1.0, 1.0, 0.2, 0.2, 0.2], 5),
    ("1-2 at 70 %", &[0.7; 2], 5),
];

pub(super) fn run(
    table: &CodeTable,
    options: &ElfOptions,
    show: &mut dyn FnMut(Figure),
) -> Result<()> {
    let thread_count = options.thread_count;
    let elf = PackedElf::build(
        table,
        &PackedOptions {
            thread_count,
            ..Default::default()
        },
    )?;
    let parallel = ParallelOptions {
        thread_count,
        ..Default::default()
    };
    let (mut random, maxima) = (Rng::with_seed(3), maxima(table));
    let name = format!("{thread_count} threads");
    for (case, shares, query_count) in CASES {
        let queries: Vec<QueryBox> = (0..query_count)
            .map(|_| range_box(table, &maxima, shares, &mut random))
            .collect();
        let total = |answer: &dyn Fn(&QueryBox) -> Result<u64>| {
            queries.iter().map(answer).sum::<Result<u64>>()
        };
        let select_one = || total(&|query| Ok(checksum(&elf.select(query)?)));
        let select_all = || total(&|query| Ok(checksum(&elf.select_parallel(query, &parallel)?)));
        let case = format!("select, {case}");
        let contenders: [(&str, &dyn Fn() -> Result<u64>); 2] =
            [("1 thread", &select_one), (&name, &select_all)];
        compare(&case, query_count, options.round_count, &contenders, show)?;
        let count_one = || total(&|query| elf.count(query));
        let count_all = || total(&|query| elf.count_parallel(query, &parallel));
        let case = case.replace("select", "count");
        let contenders: [(&str, &dyn Fn() -> Result<u64>); 2] =
            [("1 thread", &count_one), (&name, &count_all)];
        compare(&case, query_count, options.round_count, &contenders, show)?;
    }
    Ok(())
}

/// Ranges with a share of the codes of the first dimensions, around a row's codes.
pub(super) fn range_box(
    table: &CodeTable,
    maxima: &[u32],
    shares: &[f64],
    random: &mut Rng,
) -> QueryBox {
    let row = random.usize(..table.row_count().max(1));
    let ranges = table
        .columns()
        .iter()
        .enumerate()
        .map(|(dimension, column)| {
            let share = shares.get(dimension).copied().unwrap_or(1.0);
            if share >= 1.0 {
                return Restriction::Any;
            }
            let width = ((f64::from(maxima[dimension]) + 1.0) * share)
                .round()
                .max(1.0) as u32;
            let last = maxima[dimension] + 1 - width.min(maxima[dimension] + 1);
            let lo = column
                .get(row)
                .saturating_sub(random.u32(..width.max(1)))
                .min(last);
            Restriction::Range {
                lo,
                hi: lo + width - 1,
            }
        });
    QueryBox::new(ranges.collect())
}
