//! Random tables and queries for tests: columns of many shapes, queries that hit, just miss and overlap.

use fastrand::Rng;
use proptest::prelude::*;

use crate::error::Result;
use crate::keys::{CodeColumn, CodeSet, CodeTable, QueryBox, Restriction};

/// How the codes of one column are distributed.
#[derive(Debug, Clone)]
enum Shape {
    Uniform(u32),
    Constant(u32),
    Ascending,
    Descending(u32),
    Skewed(u32),
    CopyOfFirst,
}

fn shape(code_max: u32) -> impl Strategy<Value = Shape> {
    let edges = prop_oneof![
        Just(0u32),
        Just(1),
        Just(2),
        Just(7),
        Just(8),
        Just(99),
        Just(255),
        Just(256),
        Just(u32::MAX)
    ];
    let edges = edges.prop_map(move |max| max.min(code_max));
    prop_oneof![
        4 => edges.clone().prop_map(Shape::Uniform),
        1 => edges.clone().prop_map(Shape::Constant),
        1 => Just(Shape::Ascending),
        1 => edges.clone().prop_map(Shape::Descending),
        2 => edges.prop_map(Shape::Skewed),
        1 => Just(Shape::CopyOfFirst),
    ]
}

fn column(shape: &Shape, seeds: &[u64], first: &[u32]) -> Vec<u32> {
    let below = |seed: &u64, max: u32| (seed % (u64::from(max) + 1)) as u32;
    let rows = 0..seeds.len() as u32;
    match *shape {
        Shape::Uniform(max) => seeds.iter().map(|seed| below(seed, max)).collect(),
        Shape::Constant(code) => vec![code; seeds.len()],
        Shape::Ascending => rows.collect(),
        Shape::Descending(max) => rows.map(|row| max.saturating_sub(row / 2)).collect(),
        Shape::Skewed(max) => {
            let skewed = |seed: &u64| below(seed, if seed % 8 < 6 { max.min(1) } else { max });
            seeds.iter().map(skewed).collect()
        }
        Shape::CopyOfFirst if first.is_empty() => seeds.iter().map(|seed| below(seed, 2)).collect(),
        Shape::CopyOfFirst => first.to_vec(),
    }
}

/// A table with up to `row_count_max` rows, TIDs that are not the row numbers, codes up to `code_max`.
pub(crate) fn table(row_count_max: usize, code_max: u32) -> impl Strategy<Value = CodeTable> {
    let row_count = prop_oneof![
        1 => 0..3usize,
        2 => 20..30usize.min(row_count_max),
        4 => 0..row_count_max,
    ];
    let dimension_count = prop_oneof![6 => 1..6usize, 1 => 10..16usize];
    (
        row_count,
        dimension_count,
        any::<u64>(),
        proptest::collection::vec(shape(code_max), 16),
    )
        .prop_map(|(row_count, dimension_count, seed, shapes)| {
            let mut random = Rng::with_seed(seed);
            let mut seeds = || -> Vec<u64> { (0..row_count).map(|_| random.u64(..)).collect() };
            let mut columns: Vec<Vec<u32>> = Vec::new();
            for shape in shapes.iter().take(dimension_count) {
                let first = columns.first().cloned().unwrap_or_default();
                columns.push(column(shape, &seeds(), &first));
            }
            let columns = columns.into_iter().map(|codes| {
                let max = codes.iter().copied().max().unwrap_or(0);
                CodeColumn::from_codes(codes.into_iter(), max)
            });
            let tids = (0..row_count as u32).rev().map(|row| row * 3 + 1).collect();
            CodeTable::new(columns.collect())
                .unwrap()
                .with_tids(tids)
                .unwrap()
        })
}

/// Queries for a table: everything, exact hits and near misses, boxes around rows, sets, empty ranges.
pub(crate) fn queries(table: &CodeTable, seed: u64, count: usize) -> Vec<QueryBox> {
    let mut random = Rng::with_seed(seed);
    let mut queries = vec![QueryBox::unrestricted(table.dimension_count())];
    for _ in 0..count {
        let style = random.u32(..8);
        let restrictions = table.columns().iter().map(|column| {
            let mut pick = || match column.len() {
                0 => random.u32(..4),
                len => column.get(random.usize(..len)),
            };
            let (a, b, c) = (pick(), pick(), pick());
            match (style, random.u32(..8)) {
                (0, 0) => Restriction::exactly(a.wrapping_add(1)),
                (0, _) => Restriction::exactly(a),
                (1, 0) => Restriction::Range {
                    lo: a.max(b),
                    hi: a.min(b),
                },
                (_, 0..=2) => Restriction::Any,
                (_, 3) => Restriction::exactly(a),
                (_, 4) => Restriction::Set(CodeSet::from_codes([a, b, c, c.wrapping_add(1)])),
                (_, 5) => Restriction::Range {
                    lo: a,
                    hi: u32::MAX,
                },
                _ => Restriction::Range {
                    lo: a.min(b),
                    hi: a.max(b),
                },
            }
        });
        queries.push(QueryBox::new(restrictions.collect()));
    }
    if table.row_count() > 0 {
        let row = random.usize(..table.row_count());
        queries.push(QueryBox::exactly(&table.row(row)));
    }
    queries
}

/// Every table of `row_count` rows and `dimension_count` columns with codes below `code_count`.
pub(crate) fn all_tables(
    dimension_count: usize,
    code_count: u32,
    row_count: usize,
) -> impl Iterator<Item = CodeTable> {
    let cells = dimension_count * row_count;
    (0..u64::from(code_count).pow(cells as u32)).map(move |mut number| {
        let columns = (0..dimension_count).map(|_| {
            let codes = (0..row_count).map(|_| {
                let code = (number % u64::from(code_count)) as u8;
                number /= u64::from(code_count);
                code
            });
            CodeColumn::U8(codes.collect())
        });
        CodeTable::new(columns.collect()).unwrap()
    })
}

/// Every box over codes below `code_count`.
pub(crate) fn all_boxes(dimension_count: usize, code_count: u32) -> Vec<QueryBox> {
    let mut boxes = vec![vec![]];
    for _ in 0..dimension_count {
        let mut longer = Vec::new();
        for prefix in &boxes {
            for lo in 0..code_count {
                for hi in lo..code_count {
                    let mut one: Vec<Restriction> = prefix.clone();
                    one.push(Restriction::Range { lo, hi });
                    longer.push(one);
                }
            }
        }
        boxes = longer;
    }
    boxes.into_iter().map(QueryBox::new).collect()
}

/// Uniform columns with codes below `code_count`, the same for the same seed.
pub(crate) fn uniform(
    row_count: usize,
    dimension_count: usize,
    code_count: u32,
    seed: u64,
) -> CodeTable {
    let mut random = Rng::with_seed(seed);
    let columns = (0..dimension_count).map(|_| {
        let codes = (0..row_count).map(|_| random.u32(..code_count));
        CodeColumn::from_codes(codes, code_count - 1)
    });
    CodeTable::new(columns.collect()).unwrap()
}

/// The TIDs of all rows that `query` accepts, ascending, found by looking at every row: what all answers are compared
/// with.
pub(crate) fn naive(table: &CodeTable, query: &QueryBox) -> Result<Vec<u32>> {
    query.check(table.dimension_count())?;
    let is_accepted = |row: &usize| query.contains(&table.row(*row));
    let rows = (0..table.row_count()).filter(is_accepted);
    let mut tids: Vec<u32> = rows.map(|row| table.tid(row)).collect();
    tids.sort_unstable();
    Ok(tids)
}
