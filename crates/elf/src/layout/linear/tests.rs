//! The linear layout against the naive scan, the size oracle, and damaged bytes.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::cases;
use crate::keys::{CodeColumn, CodeTable, QueryBox, Restriction};
use crate::scan::naive;

const CODE_MAX: u32 = 5_000;

fn file() -> &'static Path {
    Path::new("test.elf")
}

fn check_answers<O: Offset>(elf: &LinearElf<O>, table: &CodeTable, query: &QueryBox) {
    let expected = naive(table, query).unwrap();
    assert_eq!(elf.select(query).unwrap(), expected);
    assert_eq!(elf.count(query).unwrap(), expected.len() as u64);
    assert_eq!(elf.exists(query).unwrap(), !expected.is_empty());
    let some = elf.limit(query, 3).unwrap();
    assert_eq!(some.len(), expected.len().min(3));
    assert!(some.iter().all(|tid| expected.binary_search(tid).is_ok()));
    let key: Option<Vec<u32>> = query
        .dimensions()
        .iter()
        .map(|one| {
            Some(one.hull())
                .filter(|(lo, hi)| lo == hi)
                .map(|(lo, _)| lo)
        })
        .collect();
    if let Some(key) = key {
        let mut tids = Vec::new();
        elf.exact(&key, &mut tids).unwrap();
        assert_eq!(tids, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn answers_equal_a_scan(table in cases::table(300, CODE_MAX), seed in any::<u64>()) {
        let narrow = LinearElf::<Narrow>::build(&table, 1).unwrap();
        let wide = LinearElf::<Wide>::build(&table, 2).unwrap();
        narrow.verify(file()).unwrap();
        wide.verify(file()).unwrap();
        prop_assert_eq!(&wide, &LinearElf::<Wide>::build(&table, 1).unwrap());
        for query in cases::queries(&table, seed, 10) {
            check_answers(&narrow, &table, &query);
            check_answers(&wide, &table, &query);
            let expected = wide.select(&query).unwrap();
            prop_assert_eq!(wide.select_by_subtrees(&query, 3).unwrap(), expected);
        }
        let read = LinearElf::<Wide>::from_bytes(file(), &wide.to_bytes()).unwrap();
        prop_assert_eq!(read, wide);
    }

    #[test]
    fn damaged_files_are_refused(
        table in cases::table(40, 300),
        at in any::<prop::sample::Index>(),
        mask in 1u8..,
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = LinearElf::<Narrow>::build(&table, 1).unwrap().to_bytes();
        let mut flipped = bytes.clone();
        flipped[at.index(bytes.len())] ^= mask;
        prop_assert!(LinearElf::<Narrow>::from_bytes(file(), &flipped).is_err());
        prop_assert!(LinearElf::<Narrow>::from_bytes(file(), &bytes[..cut.index(bytes.len())]).is_err());
        prop_assert!(LinearElf::<Wide>::from_bytes(file(), &bytes).is_err());
    }

    /// With checksums that match, only the structure checker stands between wrong words and a panic.
    #[test]
    fn wrong_words_never_panic(
        table in cases::table(40, 300),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u32>()), 1..4),
    ) {
        let mut elf = LinearElf::<Wide>::build(&table, 1).unwrap();
        if !elf.words.is_empty() {
            for (at, word) in changes {
                let at = at.index(elf.words.len());
                elf.words[at] = if word & 1 == 0 { word >> 8 } else { elf.words[at] ^ word };
            }
        }
        if let Ok(elf) = LinearElf::<Wide>::from_bytes(file(), &elf.to_bytes()) {
            elf.select(&QueryBox::unrestricted(elf.dimension_count())).unwrap();
        }
    }

    #[test]
    fn reading_random_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(LinearElf::<Wide>::from_bytes(file(), &bytes).is_err());
    }
}

#[test]
fn every_box_over_every_tiny_table_is_answered() {
    for (dimensions, codes, rows) in [(1, 3, 4), (2, 2, 4), (3, 2, 3), (2, 3, 2)] {
        let boxes = cases::all_boxes(dimensions, codes);
        for table in cases::all_tables(dimensions, codes, rows) {
            let elf = LinearElf::<Narrow>::build(&table, 1).unwrap();
            elf.verify(file()).unwrap();
            boxes
                .iter()
                .for_each(|query| check_answers(&elf, &table, query));
        }
    }
}

#[test]
fn all_tids_of_full_duplicates_are_kept() {
    let table = CodeTable::new(vec![CodeColumn::U8(vec![4; 100]); 64]).unwrap();
    let elf = LinearElf::<Wide>::build(&table, 1).unwrap();
    let mut tids = Vec::new();
    elf.exact(&[4; 64], &mut tids).unwrap();
    assert_eq!(tids, (0..100).collect::<Vec<_>>());
    // Links of codes 0-4, 63 codes, 100 TIDs.
    assert_eq!(elf.words().len(), 5 * 2 + 63 + 100);
}

#[test]
fn codes_beyond_31_bits_are_refused() {
    let table = CodeTable::new(vec![CodeColumn::U32(vec![LAST])]).unwrap();
    assert!(LinearElf::<Wide>::build(&table, 1).is_err());
    let later = vec![CodeColumn::U8(vec![0]), CodeColumn::U32(vec![LAST])];
    assert!(LinearElf::<Wide>::build(&CodeTable::new(later).unwrap(), 1).is_err());
}

#[test]
fn a_sparse_first_level_is_refused_and_sparse_deeper_levels_are_not() {
    let far = || CodeColumn::U32(vec![3, LAST - 1]);
    let near = || CodeColumn::U8(vec![0, 0]);
    let table = CodeTable::new(vec![far(), near()]).unwrap();
    assert!(LinearElf::<Wide>::build(&table, 1).is_err());
    let table = CodeTable::new(vec![near(), far()]).unwrap();
    let elf = LinearElf::<Wide>::build(&table, 1).unwrap();
    check_answers(&elf, &table, &QueryBox::exactly(&[0, LAST - 1]));
}

#[test]
fn codes_between_and_beyond_those_of_the_first_level_are_absent() {
    let table = CodeTable::new(vec![CodeColumn::U8(vec![2, 5])]).unwrap();
    let elf = LinearElf::<Narrow>::build(&table, 1).unwrap();
    for code in [0, 1, 3, 4, 6, u32::MAX] {
        let mut tids = Vec::new();
        elf.exact(&[code], &mut tids).unwrap();
        assert!(tids.is_empty());
    }
    let all = QueryBox::new(vec![Restriction::Range {
        lo: 1,
        hi: u32::MAX,
    }]);
    assert_eq!(elf.select(&all).unwrap(), [0, 1]);
}

#[test]
fn uniform_data_has_the_expected_lists_and_size() {
    let (rows, dimensions, codes) = (200_000, 6, 20);
    let table = cases::uniform(rows, dimensions, codes, 7);
    let elf = LinearElf::<Wide>::build(&table, 2).unwrap();
    let estimate = UniformEstimate::new(rows as u64, dimensions, codes);
    let counts = elf.level_counts();
    for (found, expected) in counts.iter().zip(&estimate.levels) {
        let close = |found: u64, expected: f64| {
            (found as f64 - expected).abs() <= expected * 1e-3 + 4.0 * expected.sqrt()
        };
        assert!(
            close(found.list_count, expected.lists),
            "{found:?} {expected:?}"
        );
        assert!(
            close(found.entry_count, expected.entries),
            "{found:?} {expected:?}"
        );
        assert!(
            close(found.mono_count, expected.monos),
            "{found:?} {expected:?}"
        );
    }
    let ratio = elf.size_bytes() as f64 / estimate.size_bytes(2);
    assert!((0.99..1.01).contains(&ratio), "{ratio}");
}
