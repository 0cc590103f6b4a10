//! The linear layout: its shape, its limits, the size oracle.

use super::super::tests::uniform;
use super::*;
use hotshelf_elf::keys::{CodeColumn, CodeTable, QueryBox, Restriction};

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
    let far = QueryBox::exactly(&[0, LAST - 1]);
    assert_eq!(elf.select(&far).unwrap(), [1]);
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
    let table = uniform(rows, dimensions, codes, 7);
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
