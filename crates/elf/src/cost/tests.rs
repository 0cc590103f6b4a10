//! Estimates against what really happens, and the decisions drawn from them.

use super::*;
use crate::cases;
use crate::keys::{CodeColumn, CodeSet, CodeTable, QueryBox, Restriction};
use crate::layout::packed::{PackedElf, PackedOptions};

const SCAN: ScanCost = ScanCost {
    row_column_ns: 0.1,
    result_ns: 3.0,
};

fn model(table: &CodeTable) -> (PackedElf, CostModel) {
    let elf = PackedElf::build(table, &PackedOptions::default()).unwrap();
    let model = CostModel::new(&elf, table, Costs::default());
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
fn a_prefix_query_takes_the_elf_and_one_without_prefix_the_scan() {
    let table = cases::uniform(200_000, 6, 20, 5);
    let (_, model) = model(&table);
    let prefix = model.choose(&equal_on(6, 0..3), &SCAN, 2).unwrap();
    assert_eq!(
        (prefix.path, prefix.thread_count),
        (Path::Elf, 1),
        "{}",
        prefix.reason
    );
    let suffix = model.choose(&equal_on(6, 3..6), &SCAN, 1).unwrap();
    assert_eq!(suffix.path, Path::Scan, "{}", suffix.reason);
    assert!(suffix.reason.contains("rows expected"));
    assert!(model.choose(&equal_on(5, 0..1), &SCAN, 1).is_err());
}

#[test]
fn fitted_prices_explain_the_measurements() {
    let truth = Costs {
        node_ns: 9.0,
        child_ns: 2.0,
        jump_ns: 80.0,
        word_ns: 0.5,
        ..Costs::default()
    };
    let mut random = fastrand::Rng::with_seed(3);
    let measured: Vec<(Work, f64)> = (0..200)
        .map(|_| {
            let mut up_to = |max: u64| random.u64(..max) as f64;
            let work = Work {
                nodes: up_to(100),
                children: up_to(1000),
                jumps: up_to(50),
                words: up_to(100_000),
                results: up_to(1000),
            };
            (work, truth.predict_ns(&work))
        })
        .collect();
    let fitted = Costs::default().fit(&measured);
    for (work, ns) in &measured {
        assert!((fitted.predict_ns(work) / ns - 1.0).abs() < 0.05);
    }
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
fn calibration_finds_prices_with_any_clock() {
    let table = cases::uniform(20_000, 4, 20, 9);
    let (elf, _) = model(&table);
    let mut ticks = 0.0;
    let found = calibrate(&elf, &table, 20, || {
        ticks += 500.0;
        ticks
    })
    .unwrap();
    let (costs, scan) = (found.costs, found.scan);
    for price in [
        costs.node_ns,
        costs.word_ns,
        costs.query_ns,
        scan.row_column_ns,
        scan.result_ns,
    ] {
        assert!(price.is_finite() && price >= 0.0);
    }
    assert!(costs.query_ns > 0.0);
}

#[test]
fn a_model_reads_back_and_its_damages_are_noticed() {
    let table = cases::uniform(5_000, 3, 10, 5);
    let (_, model) = model(&table);
    let bytes = model.to_bytes();
    let file = std::path::Path::new("model");
    let read = CostModel::from_bytes(file, &bytes, Costs::default()).unwrap();
    let query = equal_on(3, 0..2);
    assert_eq!(read.work(&query).unwrap(), model.work(&query).unwrap());
    for len in 0..bytes.len() {
        assert!(CostModel::from_bytes(file, &bytes[..len], Costs::default()).is_err());
    }
}
