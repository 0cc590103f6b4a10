//! Compares both layouts and a byte-wise column scan on uniform data, one thread, alternating.
//!
//! `cargo run --release -p hotshelf-elf --example uniform -- [rows] [dimensions] [codes] [rounds] [part]`
//!
//! With `part` only the comparisons whose name contains it are run.
//!
//! For huge pages set `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`; all structures then use them alike.

use std::hint::black_box;
use std::time::Instant;

use hotshelf_elf::keys::{CodeColumn, CodeTable, QueryBox, Restriction};
use hotshelf_elf::layout::linear::{LinearElf, UniformEstimate, Wide};
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

fn table(row_count: usize, dimension_count: usize, code_count: u32) -> CodeTable {
    let mut seed = 42;
    let columns = (0..dimension_count).map(|_| {
        let codes = (0..row_count).map(|_| (next_random(&mut seed) % u64::from(code_count)) as u32);
        CodeColumn::from_codes(codes, code_count - 1)
    });
    CodeTable::new(columns.collect()).expect("a valid shape")
}

/// One contender: queries answered per second over the whole list, and a checksum of the answers.
type Contender<'a> = (&'a str, Box<dyn Fn() -> u64 + 'a>);

/// Runs all contenders in turn, `rounds` times; prints medians and ratios to the first.
fn compare(what: &str, query_count: usize, rounds: usize, contenders: &[Contender<'_>]) {
    if std::env::args()
        .nth(5)
        .is_some_and(|part| !what.contains(&part))
    {
        return;
    }
    let mut seconds = vec![Vec::new(); contenders.len()];
    let mut sums = vec![0; contenders.len()];
    for _ in 0..rounds {
        for (idx, (_, run)) in contenders.iter().enumerate() {
            let start = Instant::now();
            sums[idx] = black_box(run());
            seconds[idx].push(start.elapsed().as_secs_f64());
        }
    }
    assert!(
        sums.iter().all(|sum| *sum == sums[0]),
        "{what}: answers differ: {sums:?}"
    );
    let medians: Vec<f64> = seconds
        .iter_mut()
        .map(|all| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        })
        .collect();
    print!("{what:<28}");
    for ((name, _), median) in contenders.iter().zip(&medians) {
        let per_second = query_count as f64 / median;
        print!(
            " | {name} {per_second:>11.0}/s {:>6.2}x",
            medians[0] / median
        );
    }
    println!(" | checksum {}", sums[0]);
}

fn sum(tids: &[u32]) -> u64 {
    tids.iter().map(|&tid| u64::from(tid) + 1).sum()
}

fn main() {
    let argument = |idx: usize, default: usize| {
        std::env::args()
            .nth(idx)
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let (row_count, dimension_count) = (argument(1, 5_000_000), argument(2, 10));
    let (code_count, rounds) = (argument(3, 100) as u32, argument(4, 5));
    let table = table(row_count, dimension_count, code_count);

    let build = |what: &str, seconds: f64, bytes: u64| {
        println!(
            "{what:<28} {:.2} M rows/s, {:.2} bytes per row",
            row_count as f64 / seconds / 1e6,
            bytes as f64 / row_count as f64
        );
    };
    let start = Instant::now();
    let packed = PackedElf::build(&table, &PackedOptions::default()).expect("built");
    build(
        "build packed, 1 thread",
        start.elapsed().as_secs_f64(),
        packed.size_bytes(),
    );
    let start = Instant::now();
    let two = PackedOptions {
        thread_count: 2,
        ..Default::default()
    };
    let again = PackedElf::build(&table, &two).expect("built");
    build(
        "build packed, 2 threads, wall",
        start.elapsed().as_secs_f64(),
        again.size_bytes(),
    );
    drop(again);
    let start = Instant::now();
    let linear = LinearElf::<Wide>::build(&table, 1).expect("built");
    build(
        "build linear, 1 thread",
        start.elapsed().as_secs_f64(),
        linear.size_bytes(),
    );
    let estimate = UniformEstimate::new(row_count as u64, dimension_count, code_count);
    let expected = estimate.size_bytes(2);
    println!(
        "bytes: linear {} (formula {expected:.0}, {:+.3} %), packed {} = {:.3}x (head {})",
        linear.size_bytes(),
        (linear.size_bytes() as f64 / expected - 1.0) * 100.0,
        packed.size_bytes(),
        packed.size_bytes() as f64 / linear.size_bytes() as f64,
        packed.head_bytes()
    );

    let mut seed = 7;
    let mut any_row = || table.row((next_random(&mut seed) % row_count as u64) as usize);
    let hits: Vec<Vec<u32>> = (0..500_000).map(|_| any_row()).collect();
    let misses: Vec<Vec<u32>> = hits
        .iter()
        .map(|key| {
            let mut key = key.clone();
            key[dimension_count - 1] = (key[dimension_count - 1] + 1) % code_count;
            key
        })
        .collect();
    for (what, keys) in [("exact, hits", &hits), ("exact, near misses", &misses)] {
        let flat = keys.concat();
        let keys = || flat.chunks_exact(dimension_count);
        let linear_exact = || {
            let (mut tids, mut total) = (Vec::new(), 0);
            for key in keys() {
                tids.clear();
                linear.exact(key, &mut tids).expect("dimensions match");
                total += sum(&tids);
            }
            total
        };
        let packed_exact = || {
            let (mut tids, mut total) = (Vec::new(), 0);
            for key in keys() {
                tids.clear();
                packed.exact(key, &mut tids).expect("dimensions match");
                total += sum(&tids);
            }
            total
        };
        let packed_batch = || {
            let mut total = 0;
            packed
                .exact_batch(&flat, |_, tid| total += u64::from(tid) + 1)
                .expect("whole keys");
            total
        };
        compare(
            what,
            keys().len(),
            rounds,
            &[
                ("linear", Box::new(linear_exact)),
                ("packed", Box::new(packed_exact)),
                ("batch", Box::new(packed_batch)),
            ],
        );
    }

    let width = (code_count / 50).max(1);
    let range = |seed: &mut u64| {
        let lo = (next_random(seed) % u64::from(code_count - width + 1)) as u32;
        Restriction::Range {
            lo,
            hi: lo + width - 1,
        }
    };
    let mut seed = 11;
    let ranges: Vec<QueryBox> = (0..50_000)
        .map(|_| QueryBox::new((0..dimension_count).map(|_| range(&mut seed)).collect()))
        .collect();
    let mut partial = |dimensions: std::ops::Range<usize>, count: usize| -> Vec<QueryBox> {
        (0..count)
            .map(|_| {
                let mut query = QueryBox::unrestricted(dimension_count);
                for dimension in dimensions.clone() {
                    let code = (next_random(&mut seed) % u64::from(code_count)) as u32;
                    query
                        .restrict(dimension, &Restriction::exactly(code))
                        .expect("known dimension");
                }
                query
            })
            .collect()
    };
    let first = partial(0..3, 50_000);
    let fourth = partial(3..6, 5);
    let seventh = partial(6..9, 5);
    let second = partial(1..3, 500);
    let scan = ColumnScan::new(&table);
    for (what, queries, scans) in [
        ("2 % ranges, all dimensions", &ranges, false),
        ("equal on 1-3", &first, false),
        ("equal on 2-3", &second, false),
        ("equal on 4-6", &fourth, true),
        ("equal on 7-9", &seventh, true),
    ] {
        let total = |select: &dyn Fn(&QueryBox) -> Vec<u32>| {
            queries.iter().map(|query| sum(&select(query))).sum::<u64>()
        };
        let mut contenders: Vec<Contender<'_>> = vec![
            (
                "linear",
                Box::new(|| total(&|query| linear.select(query).expect("dimensions match"))),
            ),
            (
                "packed",
                Box::new(|| total(&|query| packed.select(query).expect("dimensions match"))),
            ),
        ];
        if scans {
            contenders.push((
                "scan",
                Box::new(|| total(&|query| scan.select(query).expect("dimensions match"))),
            ));
        }
        compare(what, queries.len(), rounds, &contenders);
    }
    let counts: Vec<QueryBox> = (0..2_000)
        .map(|_| {
            let mut query = QueryBox::unrestricted(dimension_count);
            for dimension in 0..2 {
                query
                    .restrict(dimension, &range(&mut seed))
                    .expect("known dimension");
            }
            query
        })
        .collect();
    let linear_count = || {
        counts
            .iter()
            .map(|query| linear.count(query).expect("dimensions"))
            .sum()
    };
    let packed_count = || {
        counts
            .iter()
            .map(|query| packed.count(query).expect("dimensions"))
            .sum()
    };
    compare(
        "count, 2 % ranges on 1-2",
        counts.len(),
        rounds,
        &[
            ("linear", Box::new(linear_count)),
            ("packed", Box::new(packed_count)),
        ],
    );
}
