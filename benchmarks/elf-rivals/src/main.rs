//! Other in-memory indexes on the queries of `hotshelf-lab elf`, one thread: an R*-tree, a kd-tree, and roaring
//! bitmaps per value. Every contender gives the sum of the TIDs of the rows in a box; over a table stored in the Elf's
//! order, where answers are ranges of rows, two give their number.
//!
//! `cargo run --release -- DIR rows values` writes the table (`c<number>.u32`) and the queries
//! (`queries.csv`) to DIR for `../elf_rivals.py`, and its own results to standard output as lines of JSON.

use std::cmp::Ordering;
use std::fs::File;
use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use hotshelf_elf::keys::{CodeColumn, CodeTable, QueryBox, Restriction};
use hotshelf_elf::layout::packed::{PackedElf, PackedOptions};
use hotshelf_elf::scan::{ColumnScan, ZoneScan};
use kd_tree::KdTreeN;
use roaring::RoaringBitmap;
use rstar::primitives::GeomWithData;
use rstar::{AABB, RTree};

const DIMENSIONS: usize = 10;
const ROUNDS: usize = 3;
const QUERY_COUNT: usize = 5;
const PERCENTS: [f64; 11] = [
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 50.0,
];
const CASES: [(usize, usize); 4] = [(0, 3), (0, DIMENSIONS), (1, 4), (3, 6)];

type Box10 = [(u32, u32); DIMENSIONS];

/// Something to check an answer by.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Check {
    /// The sum of the TIDs.
    Tids(u64),
    /// How many rows there are in the ranges.
    Rows(u64),
}

/// A question and its answer.
type Rival<'a> = (&'a str, Box<dyn Fn(&Box10) -> Check + 'a>);

/// A splitmix step.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn query_box(ranges: &Box10, value_count: u32) -> QueryBox {
    let restriction = |&(lo, hi): &(u32, u32)| match (lo, hi) {
        (0, hi) if hi == value_count - 1 => Restriction::Any,
        _ => Restriction::Range { lo, hi },
    };
    QueryBox::new(ranges.iter().map(restriction).collect())
}

fn queries(percent: f64, case: (usize, usize), value_count: u32) -> Vec<Box10> {
    let mut seed = percent.to_bits();
    let share = (percent / 100.0).powf(1.0 / (case.1 - case.0) as f64);
    let width = (f64::from(value_count) * share).round().max(1.0) as u32;
    let mut query = || {
        let mut ranges = [(0, value_count - 1); DIMENSIONS];
        for range in &mut ranges[case.0..case.1] {
            let lo = (next_random(&mut seed) % u64::from(value_count - width + 1)) as u32;
            *range = (lo, lo + width - 1);
        }
        ranges
    };
    (0..QUERY_COUNT).map(|_| query()).collect()
}

fn sum(tids: impl IntoIterator<Item = u32>) -> Check {
    Check::Tids(tids.into_iter().map(u64::from).sum())
}

fn rows(ranges: &[Range<u32>]) -> Check {
    Check::Rows(ranges.iter().map(|range| range.len() as u64).sum())
}

impl std::ops::Add for Check {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        match (self, other) {
            (Self::Tids(a), Self::Tids(b)) => Self::Tids(a + b),
            (Self::Rows(a), Self::Rows(b)) => Self::Rows(a + b),
            _ => panic!("one contender answers in one way"),
        }
    }
}

fn built<T>(name: &str, build: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let structure = build();
    println!(
        "{{\"contender\": \"{name}\", \"build_s\": {:.2}}}",
        start.elapsed().as_secs_f64()
    );
    structure
}

fn main() {
    let argument = |idx: usize| std::env::args().nth(idx).expect("DIR rows values");
    let number = |idx: usize| argument(idx).parse::<usize>().expect("a number");
    let (folder, row_count, value_count) = (argument(1), number(2), number(3) as u32);
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder).expect("a folder");
    let mut seed = 42;
    let columns: Vec<Vec<u32>> = (0..DIMENSIONS)
        .map(|_| {
            let code = |_| (next_random(&mut seed) % u64::from(value_count)) as u32;
            (0..row_count).map(code).collect()
        })
        .collect();
    for (idx, column) in columns.iter().enumerate() {
        let mut file =
            BufWriter::new(File::create(folder.join(format!("c{idx}.u32"))).expect("a file"));
        column
            .iter()
            .for_each(|code| file.write_all(&code.to_le_bytes()).expect("written"));
    }
    let row = |row: usize| -> [i32; DIMENSIONS] {
        std::array::from_fn(|column| columns[column][row] as i32)
    };

    let codes = columns
        .iter()
        .map(|codes| CodeColumn::from_codes(codes.iter().copied(), value_count - 1));
    let table = CodeTable::new(codes.collect()).expect("columns of one length");
    let (elf, order) = built("elf", || {
        PackedElf::build_with_order(&table, &PackedOptions::default()).expect("built")
    });
    let clustered = built("elf, clustered: rows", || {
        let options = PackedOptions {
            clustered: true,
            ..PackedOptions::default()
        };
        PackedElf::build(&table, &options).expect("built")
    });
    let zones = built("bit-packed scan, sorted", || ZoneScan::new(&table, &order));
    let bytes = ColumnScan::new(&table);
    let rtree = built("R*-tree (rstar)", || {
        let points = (0..row_count).map(|at| GeomWithData::new(row(at), at as u32));
        RTree::bulk_load(points.collect())
    });
    let kd = built("kd-tree (kd-tree)", || {
        let points: Vec<([u8; DIMENSIONS], u32)> = (0..row_count)
            .map(|at| (row(at).map(|code| code as u8), at as u32))
            .collect();
        KdTreeN::<_, typenum::U10>::build_by_key(points, |point, k| point.0[k])
    });
    let bitmaps = built("roaring bitmaps", || {
        let of_column = |column: &Vec<u32>| {
            let mut lists = vec![Vec::new(); value_count as usize];
            column
                .iter()
                .zip(0u32..)
                .for_each(|(&code, tid)| lists[code as usize].push(tid));
            let bitmap = |tids: Vec<u32>| RoaringBitmap::from_sorted_iter(tids).expect("ascending");
            lists.into_iter().map(bitmap).collect::<Vec<_>>()
        };
        columns.iter().map(of_column).collect::<Vec<_>>()
    });
    let rivals: Vec<Rival<'_>> = vec![
        (
            "elf",
            Box::new(|ranges| {
                sum(elf
                    .select(&query_box(ranges, value_count))
                    .expect("ten dimensions"))
            }),
        ),
        (
            "bit-packed scan, sorted",
            Box::new(|ranges| {
                let rows = zones
                    .select_rows(&query_box(ranges, value_count))
                    .expect("ten dimensions");
                sum(rows.into_iter().flatten().map(|row| order[row as usize]))
            }),
        ),
        (
            "elf, clustered: rows",
            Box::new(|ranges| {
                let query = query_box(ranges, value_count);
                rows(&clustered.select_rows(&query).expect("ten dimensions"))
            }),
        ),
        (
            "bit-packed scan, sorted: rows",
            Box::new(|ranges| {
                let query = query_box(ranges, value_count);
                rows(&zones.select_rows(&query).expect("ten dimensions"))
            }),
        ),
        (
            "byte-wise scan",
            Box::new(|ranges| {
                sum(bytes
                    .select(&query_box(ranges, value_count))
                    .expect("ten dimensions"))
            }),
        ),
        (
            "R*-tree (rstar)",
            Box::new(|ranges| {
                let envelope = AABB::from_corners(
                    ranges.map(|(lo, _)| lo as i32),
                    ranges.map(|(_, hi)| hi as i32),
                );
                sum(rtree.locate_in_envelope(&envelope).map(|point| point.data))
            }),
        ),
        (
            "kd-tree (kd-tree)",
            Box::new(|ranges| {
                let side = |point: &([u8; DIMENSIONS], u32), k: usize| {
                    let (code, (lo, hi)) = (u32::from(point.0[k]), ranges[k]);
                    if code < lo {
                        Ordering::Less
                    } else if code > hi {
                        Ordering::Greater
                    } else {
                        Ordering::Equal
                    }
                };
                sum(kd.within_by_cmp(side).into_iter().map(|point| point.1))
            }),
        ),
        (
            "roaring bitmaps",
            Box::new(|ranges| {
                let mut found: Option<RoaringBitmap> = None;
                for (column, &(lo, hi)) in bitmaps.iter().zip(ranges) {
                    if (lo, hi) == (0, value_count - 1) {
                        continue;
                    }
                    let mut any = RoaringBitmap::new();
                    column[lo as usize..=hi as usize]
                        .iter()
                        .for_each(|one| any |= one);
                    found = Some(match found {
                        Some(found) => found & any,
                        None => any,
                    });
                }
                sum(found.unwrap_or_default())
            }),
        ),
    ];
    let mut list = BufWriter::new(File::create(folder.join("queries.csv")).expect("a file"));
    for case in CASES {
        for percent in PERCENTS {
            let queries = queries(percent, case, value_count);
            let mut medians = Vec::new();
            for (name, answer) in &rivals {
                let mut times = Vec::new();
                let mut total = None;
                for _ in 0..ROUNDS {
                    let start = Instant::now();
                    total = queries
                        .iter()
                        .map(|query| black_box(answer(query)))
                        .reduce(|a, b| a + b);
                    times.push(start.elapsed().as_secs_f64());
                }
                times.sort_by(f64::total_cmp);
                medians.push((name, times[ROUNDS / 2], total.expect("some queries")));
            }
            let total: u64 = match medians[0].2 {
                Check::Tids(total) => total,
                Check::Rows(_) => panic!("the first contender answers with TIDs"),
            };
            let count = |query| {
                elf.count(&query_box(query, value_count))
                    .expect("ten dimensions")
            };
            let row_count: u64 = queries.iter().map(count).sum();
            for query in &queries {
                let bounds: Vec<String> =
                    query.iter().map(|(lo, hi)| format!("{lo},{hi}")).collect();
                writeln!(
                    list,
                    "{}-{},{percent},{total},{}",
                    case.0 + 1,
                    case.1,
                    bounds.join(",")
                )
                .expect("written");
            }
            for (name, seconds, found) in medians {
                let expected = match found {
                    Check::Tids(_) => Check::Tids(total),
                    Check::Rows(_) => Check::Rows(row_count),
                };
                assert_eq!(found, expected, "{name} finds other rows");
                println!(
                    "{{\"case\": \"{}-{}\", \"percent\": {percent}, \"contender\": \"{name}\", \"us\": {:.3}}}",
                    case.0 + 1,
                    case.1,
                    seconds * 1e6 / QUERY_COUNT as f64
                );
            }
        }
    }
}
