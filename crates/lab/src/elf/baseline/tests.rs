//! Baselines against the product's Elf, and the choice between them.

use super::linear::{LinearElf, Narrow, Offset, Wide};
use super::scan::{ColumnScan, ZoneScan};
use super::*;
use fastrand::Rng;
use hotshelf_elf::cost::{CostModel, Costs, Work};
use hotshelf_elf::keys::{CodeColumn, CodeSet, CodeTable, QueryBox, Restriction};
use hotshelf_elf::layout::packed::{PackedElf, PackedOptions};
use hotshelf_tier::simd::Backend;

const PRICES: Calibration = Calibration {
    costs: START,
    scan: ScanCost {
        row_column_ns: 0.1,
        result_ns: 3.0,
    },
};

/// Uniform columns with codes below `code_count`, the same for the same seed.
pub(super) fn uniform(
    row_count: usize,
    dimension_count: usize,
    code_count: u32,
    seed: u64,
) -> CodeTable {
    let mut random = fastrand::Rng::with_seed(seed);
    let columns = (0..dimension_count).map(|_| {
        let codes = (0..row_count).map(|_| random.u32(..code_count));
        CodeColumn::from_codes(codes, code_count - 1)
    });
    CodeTable::new(columns.collect()).unwrap()
}

fn table(random: &mut Rng) -> CodeTable {
    let row_count = [0, 1, 3, 40, 70, 300, 9_000][random.usize(..7)];
    let columns = (0..1 + random.usize(..5)).map(|_| {
        let max = [0, 1, 5, 30, 99, 300, 5_000][random.usize(..7)];
        let codes: Vec<u32> = (0..row_count).map(|_| random.u32(..=max)).collect();
        CodeColumn::from_codes(codes.into_iter(), max)
    });
    CodeTable::new(columns.collect()).unwrap()
}

fn query(table: &CodeTable, random: &mut Rng) -> QueryBox {
    let restrictions = table.columns().iter().map(|column| {
        let mut code = || match column.len() {
            0 => random.u32(..4),
            len => column.get(random.usize(..len)),
        };
        let (a, b) = (code(), code());
        match random.usize(..4) {
            0 => Restriction::Any,
            1 => Restriction::exactly(a),
            2 => Restriction::Set(CodeSet::from_codes([a, b, b.wrapping_add(1)])),
            _ => Restriction::Range {
                lo: a.min(b),
                hi: a.max(b),
            },
        }
    });
    QueryBox::new(restrictions.collect())
}

fn check_linear<O: Offset>(elf: &LinearElf<O>, query: &QueryBox, expected: &[u32]) {
    assert_eq!(elf.select(query).unwrap(), expected);
    assert_eq!(elf.count(query).unwrap(), expected.len() as u64);
    assert_eq!(elf.limit(query, 3).unwrap().len(), expected.len().min(3));
}

#[test]
fn all_structures_give_the_answers_of_the_products_elf() {
    let mut random = Rng::with_seed(2_024);
    for _ in 0..150 {
        let table = table(&mut random);
        let packed = PackedElf::build(&table, &PackedOptions::default()).unwrap();
        let (_, order) = PackedElf::build_with_order(&table, &PackedOptions::default()).unwrap();
        let narrow = LinearElf::<Narrow>::build(&table, 1).unwrap();
        let wide = LinearElf::<Wide>::build(&table, 2).unwrap();
        assert_eq!(wide, LinearElf::<Wide>::build(&table, 1).unwrap());
        for _ in 0..8 {
            let query = query(&table, &mut random);
            let expected = packed.select(&query).unwrap();
            check_linear(&narrow, &query, &expected);
            check_linear(&wide, &query, &expected);
            for backend in Backend::available() {
                let scan = ColumnScan::with_backend(&table, backend);
                assert_eq!(scan.select(&query).unwrap(), expected);
                let zones = ZoneScan::new(&table, &order).with_backend(backend);
                let rows = zones.select_rows(&query).unwrap().into_iter().flatten();
                let mut tids: Vec<u32> = rows.map(|row| order[row as usize]).collect();
                tids.sort_unstable();
                assert_eq!(tids, expected);
            }
        }
        for row in 0..table.row_count().min(20) {
            let mut tids = Vec::new();
            wide.exact(&table.row(row), &mut tids).unwrap();
            let key = QueryBox::exactly(&table.row(row));
            assert_eq!(tids, packed.select(&key).unwrap());
        }
    }
}

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
fn a_prefix_query_takes_the_elf_and_one_without_prefix_the_scan() {
    let table = uniform(200_000, 6, 20, 5);
    let (_, model) = model(&table);
    let prefix = choose(&model, 200_000, &equal_on(6, 0..3), &PRICES).unwrap();
    assert_eq!(prefix.path, Path::Elf, "{}", prefix.reason);
    let suffix = choose(&model, 200_000, &equal_on(6, 3..6), &PRICES).unwrap();
    assert_eq!(suffix.path, Path::Scan, "{}", suffix.reason);
    assert!(suffix.reason.contains("rows expected"));
    assert!(choose(&model, 200_000, &equal_on(5, 0..1), &PRICES).is_err());
}

#[test]
fn fitted_prices_explain_the_measurements() {
    let truth = Costs {
        node_ns: 9.0,
        child_ns: 2.0,
        jump_ns: 80.0,
        word_ns: 0.5,
        ..START
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
                ..Work::default()
            };
            (work, truth.predict_ns(&work))
        })
        .collect();
    let fitted = fit(&START, &measured);
    for (work, ns) in &measured {
        assert!((fitted.predict_ns(work) / ns - 1.0).abs() < 0.05);
    }
}

#[test]
fn calibration_finds_prices_with_any_clock() {
    let table = uniform(20_000, 4, 20, 9);
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
