//! The packed layout against the naive scan.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::cases;
use crate::cases::naive;
use crate::keys::{CodeColumn, CodeTable, QueryBox};

/// Options that make tiny tables have nodes, buckets and all.
fn small(options: PackedOptions) -> PackedOptions {
    PackedOptions {
        group_rows_max: 4,
        bucket_rows_max: 2,
        ..options
    }
}

/// Every combination of what changes the structure.
fn variants() -> Vec<PackedOptions> {
    let mut all = Vec::new();
    for clustered in [false, true] {
        for zones in [false, true] {
            let options = PackedOptions {
                clustered,
                zones,
                ..Default::default()
            };
            all.extend([small(options.clone()), options]);
        }
    }
    all
}

/// The table a clustered Elf answers for: rows in Elf order, TIDs their numbers.
fn reordered(table: &CodeTable, order: &[u32]) -> Vec<u32> {
    let mut new_tids = std::collections::HashMap::new();
    for (row, tid) in order.iter().enumerate() {
        new_tids.insert(*tid, row as u32);
    }
    (0..table.row_count())
        .map(|row| new_tids[&table.tid(row)])
        .collect()
}

fn build(table: &CodeTable, options: &PackedOptions) -> (PackedElf, CodeTable) {
    let (elf, order) = PackedElf::build_with_order(table, options).unwrap();
    let table = if options.clustered {
        table.clone().with_tids(reordered(table, &order)).unwrap()
    } else {
        table.clone()
    };
    (elf, table)
}

fn check_answers(elf: &PackedElf, order: &[u32], table: &CodeTable, query: &QueryBox) {
    let expected = naive(table, query).unwrap();
    assert_eq!(elf.select(query).unwrap(), expected);
    assert_eq!(elf.count(query).unwrap(), expected.len() as u64);
    assert_eq!(elf.exists(query).unwrap(), !expected.is_empty());
    let some = elf.limit(query, 3).unwrap();
    assert_eq!(some.len(), expected.len().min(3));
    assert!(some.iter().all(|tid| expected.binary_search(tid).is_ok()));
    let ranges = elf.select_rows(query).unwrap();
    assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
    let mut tids: Vec<u32> = ranges
        .into_iter()
        .flatten()
        .map(|row| order[row as usize])
        .collect();
    tids.sort_unstable();
    assert_eq!(tids, expected);
    let hulls = query.dimensions().iter().map(|one| one.hull());
    if hulls.clone().all(|(lo, hi)| lo == hi) {
        let key: Vec<u32> = hulls.map(|(lo, _)| lo).collect();
        let mut tids = Vec::new();
        elf.exact(&key, &mut tids).unwrap();
        assert_eq!(tids, expected);
    }
}

/// Keys of all rows and some near misses, looked up together.
fn check_batch(elf: &PackedElf, table: &CodeTable) {
    let mut keys: Vec<Vec<u32>> = (0..table.row_count()).map(|row| table.row(row)).collect();
    let mut misses = keys.clone();
    for (idx, key) in misses.iter_mut().enumerate() {
        let at = idx % key.len();
        key[at] = key[at].wrapping_add(1);
    }
    keys.extend(misses);
    let mut found = vec![Vec::new(); keys.len()];
    elf.exact_batch(&keys.concat(), |key, tid| found[key].push(tid))
        .unwrap();
    // Few keys are taken as they come, many in an order of their own.
    let mut few = Vec::new();
    let first = keys[..keys.len().min(1)].concat();
    elf.exact_batch(&first, |_, tid| few.push(tid)).unwrap();
    assert_eq!(found.first().cloned().unwrap_or_default(), few);
    for (key, found) in keys.iter().zip(&found) {
        let mut one_at_a_time = Vec::new();
        elf.exact(key, &mut one_at_a_time).unwrap();
        assert_eq!(&one_at_a_time, found);
        assert_eq!(found, &naive(table, &QueryBox::exactly(key)).unwrap());
    }
}

fn order_of(elf: &PackedElf, table: &CodeTable) -> Vec<u32> {
    if elf.is_clustered() {
        return (0..elf.row_count() as u32).collect();
    }
    PackedElf::build_with_order(table, &PackedOptions::default())
        .unwrap()
        .1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn answers_equal_a_scan(table in cases::table(400, u32::MAX), seed in any::<u64>()) {
        for options in variants() {
            let (elf, table) = build(&table, &options);
            let order = order_of(&elf, &table);
            let threaded = PackedOptions { thread_count: 3, ..options };
            prop_assert_eq!(&build(&table, &threaded).0, &elf);
            elf.verify(Path::new("test.elf")).unwrap();
            check_batch(&elf, &table);
            let mut elf = elf;
            for backend in Backend::available() {
                elf = elf.with_backend(backend);
                for query in cases::queries(&table, seed, 6) {
                    check_answers(&elf, &order, &table, &query);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn long_runs_are_answered_while_their_blocks_are_on_their_way(
        table in cases::table(4_000, 300),
        seed in any::<u64>(),
    ) {
        for clustered in [false, true] {
            // One group: every query reads one run, most of them more than it looks ahead.
            let options = PackedOptions { clustered, group_rows_max: 5_000, ..Default::default() };
            let (elf, table) = build(&table, &options);
            let order = order_of(&elf, &table);
            for query in cases::queries(&table, seed, 8) {
                check_answers(&elf, &order, &table, &query);
            }
        }
    }
}

#[test]
fn groups_are_joined_only_where_their_rows_stay_as_short() {
    // The codes of all columns need two words, those from the second on only one.
    let maxima = [200, u32::MAX, 1 << 29];
    let bucketed_rows = |rows_per_code: u32| {
        let row_count = 150 * rows_per_code;
        let code = move |level: usize| {
            let codes = (0..row_count).map(move |row| match level {
                0 => row / rows_per_code,
                _ if row + 1 == row_count => maxima[level],
                _ => row % maxima[level],
            });
            CodeColumn::from_codes(codes, maxima[level])
        };
        let table = CodeTable::new((0..3).map(code).collect()).unwrap();
        let elf = PackedElf::build(&table, &PackedOptions::default()).unwrap();
        elf.verify(Path::new("t")).unwrap();
        elf.level_shapes()[0].rows
    };
    assert_eq!(bucketed_rows(3), 0.0);
    assert_eq!(bucketed_rows(1), 150.0);
}

#[test]
fn every_box_over_every_tiny_table_is_answered() {
    for (dimensions, codes, rows) in [(1, 3, 4), (2, 2, 4), (3, 2, 3), (2, 3, 2)] {
        let boxes = cases::all_boxes(dimensions, codes);
        for table in cases::all_tables(dimensions, codes, rows) {
            let options = PackedOptions {
                group_rows_max: 1,
                bucket_rows_max: 1,
                ..Default::default()
            };
            let (elf, table) = build(&table, &options);
            let order = order_of(&elf, &table);
            boxes
                .iter()
                .for_each(|query| check_answers(&elf, &order, &table, query));
        }
    }
}
