//! Estimates against what really happens, and the advice drawn from them.

use super::*;
use crate::cases;
use crate::keys::{CodeColumn, CodeSet, CodeTable, QueryBox, Restriction};
use crate::layout::packed::{PackedElf, PackedOptions};

fn model(table: &CodeTable) -> (PackedElf, CostModel) {
    let elf = PackedElf::build(table, &PackedOptions::default()).unwrap();
    let model = CostModel::new(&elf, table);
    (elf, model)
}

fn equal_on(dimension_count: usize, dimensions: std::ops::Range<usize>) -> QueryBox {
    let mut query = QueryBox::unrestricted(dimension_count);
    for dimension in dimensions {
        query.restrict(dimension, &Restriction::exactly(1)).unwrap();
    }
    query
}

#[test]
fn histograms_give_the_share_of_accepted_rows() {
    let codes: Vec<u32> = (0..10_000).map(|row| row % 100).collect();
    let histogram = Histogram::from_column(&CodeColumn::from_codes(codes.into_iter(), 99));
    let share = |restriction: Restriction| histogram.selectivity(&restriction);
    assert_eq!(share(Restriction::exactly(5)), 0.01);
    assert_eq!(
        share(Restriction::Range {
            lo: 90,
            hi: u32::MAX
        }),
        0.1
    );
    assert_eq!(share(Restriction::Range { lo: 100, hi: 200 }), 0.0);
    assert_eq!(share(Restriction::Set(CodeSet::from_codes([1, 7]))), 0.02);
    assert_eq!(share(Restriction::Any), 1.0);
    let wide = CodeColumn::U32((0..4096).map(|row| row << 20).collect());
    let half = Histogram::from_column(&wide).selectivity(&Restriction::Range {
        lo: 0,
        hi: (1 << 31) - 1,
    });
    assert!((half - 0.5).abs() < 0.01);
}

#[test]
fn expected_rows_of_independent_columns_are_close() {
    let table = cases::uniform(50_000, 4, 10, 5);
    let (elf, model) = model(&table);
    for dimensions in [0..1, 0..2, 1..3, 3..4] {
        let query = equal_on(4, dimensions);
        let found = elf.count(&query).unwrap() as f64;
        let expected = model.work(&query).unwrap().results;
        assert!((expected / found - 1.0).abs() < 0.2, "{expected} {found}");
    }
}

#[test]
fn keys_of_a_first_column_with_many_codes_are_expected_to_read_little() {
    let keys = CodeColumn::from_codes((0..200_000u32).map(|row| row * 7919 % 20_000), 20_000);
    let others = CodeColumn::from_codes((0..200_000u32).map(|row| row % 77), 77);
    let (_, model) = model(&CodeTable::new(vec![keys, others]).unwrap());
    let few = Restriction::from_set(CodeSet::from_codes([3, 4_000, 9_000, 19_000]));
    let work = model.work(&QueryBox::new(vec![few, Restriction::Any]));
    let work = work.unwrap();
    assert!(work.leaf_rows < 2_000.0, "{work:?}");
    assert!(work.jumps >= 4.0 && work.jumps < 50.0, "{work:?}");
    let all = model.work(&QueryBox::unrestricted(2)).unwrap();
    assert_eq!((all.leaf_rows, all.results), (200_000.0, 200_000.0));
}

#[test]
fn the_advisor_puts_the_filtered_columns_first_and_drops_the_others() {
    let table = cases::uniform(3_000, 5, 10, 8);
    let log = [
        LoggedQuery {
            query: equal_on(5, 3..5),
            weight: 10.0,
        },
        LoggedQuery {
            query: equal_on(5, 1..2),
            weight: 0.1,
        },
    ];
    let advice = advise(&table, 3_000_000, &log).unwrap();
    assert_eq!(advice.order.len(), 3);
    assert_eq!(advice.order[2], 1);
    assert!(advice.cost < advice.cost_as_given);
}

#[test]
fn without_a_log_columns_ascend_by_distinct_codes() {
    let column =
        |modulus: u32| CodeColumn::from_codes((0..500u32).map(move |row| row % modulus), modulus);
    let table = CodeTable::new(vec![column(50), column(2), column(9)]).unwrap();
    assert_eq!(advise(&table, 500, &[]).unwrap().order, [1, 2, 0]);
    let empty = CodeTable::new(vec![CodeColumn::U8(vec![]); 3]).unwrap();
    assert_eq!(advise(&empty, 0, &[]).unwrap().order.len(), 3);
}

#[test]
fn a_model_reads_back_and_damage_is_noticed() {
    let table = cases::uniform(5_000, 3, 10, 5);
    let (_, model) = model(&table);
    let bytes = model.to_bytes();
    let file = std::path::Path::new("model");
    let read = CostModel::from_bytes(file, &bytes).unwrap();
    let query = equal_on(3, 0..2);
    assert_eq!(read.work(&query).unwrap(), model.work(&query).unwrap());
    for len in 0..bytes.len() {
        assert!(CostModel::from_bytes(file, &bytes[..len]).is_err());
    }
}
