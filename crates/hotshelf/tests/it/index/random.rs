//! Random tables and questions: the same answers with an index and without.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use fastrand::Rng;
use hotshelf::{ExistingTable, ImportProgress};

use super::both;
use crate::Fixture;

/// Columns of every indexable kind, with a literal for each of their values.
const COLUMNS: &[&str] = &[
    "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "bool", "date", "ts",
    "dec", "text", "bin", "wide",
];

/// A small number or NULL: few values, so that predicates meet rows.
fn numbers(chance: &mut Rng, count: usize) -> Vec<Option<i64>> {
    let span = 1 + chance.i64(0..40);
    let nulls = chance.i64(0..3) * 10;
    (0..count)
        .map(|_| (chance.i64(0..100) >= nulls).then(|| chance.i64(0..span) - 5))
        .collect()
}

fn column(name: &str, chance: &mut Rng, count: usize) -> ArrayRef {
    let numbers = numbers(chance, count);
    let positive = || numbers.iter().map(|n| n.map(|n| (n + 5) as u64));
    let signed = || numbers.iter().copied();
    let float = |n: i64| match n {
        -5 => f64::NAN,
        -4 => f64::NEG_INFINITY,
        -3 => -0.0,
        n => n as f64 / 4.0,
    };
    match name {
        "i8" => Arc::new(Int8Array::from_iter(signed().map(|n| n.map(|n| n as i8)))),
        "i16" => Arc::new(Int16Array::from_iter(
            signed().map(|n| n.map(|n| n as i16 * 900)),
        )),
        "i32" => Arc::new(Int32Array::from_iter(
            signed().map(|n| n.map(|n| n as i32 * 70_000)),
        )),
        "i64" => Arc::new(Int64Array::from_iter(signed().map(|n| n.map(|n| n << 40)))),
        "u8" => Arc::new(UInt8Array::from_iter(
            positive().map(|n| n.map(|n| n as u8)),
        )),
        "u16" => Arc::new(UInt16Array::from_iter(
            positive().map(|n| n.map(|n| n as u16 * 1000)),
        )),
        "u32" => Arc::new(UInt32Array::from_iter(
            positive().map(|n| n.map(|n| n as u32 * 90_000_000)),
        )),
        "u64" => Arc::new(UInt64Array::from_iter(
            positive().map(|n| n.map(|n| u64::MAX - n)),
        )),
        "f32" => Arc::new(Float32Array::from_iter(
            signed().map(|n| n.map(|n| float(n) as f32)),
        )),
        "f64" => Arc::new(Float64Array::from_iter(signed().map(|n| n.map(float)))),
        "bool" => Arc::new(BooleanArray::from_iter(
            signed().map(|n| n.map(|n| n % 2 == 0)),
        )),
        "date" => Arc::new(Date32Array::from_iter(
            signed().map(|n| n.map(|n| n as i32 * 30)),
        )),
        "ts" => Arc::new(TimestampMillisecondArray::from_iter(
            signed().map(|n| n.map(|n| n * 3_600_000_000)),
        )),
        "dec" => Arc::new(
            Decimal128Array::from_iter(signed().map(|n| n.map(|n| i128::from(n) * 25)))
                .with_precision_and_scale(12, 2)
                .unwrap(),
        ),
        "text" => Arc::new(StringArray::from_iter(signed().map(|n| {
            n.map(|n| "xyz".repeat(n.unsigned_abs() as usize % 4) + &n.to_string())
        }))),
        "bin" => Arc::new(BinaryArray::from_iter(
            signed().map(|n| n.map(|n| vec![0xff, n as u8])),
        )),
        _ => {
            Arc::new(Int64Array::from_iter(signed().map(|n| {
                n.map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64))
            })))
        }
    }
}

fn batch(chance: &mut Rng, count: usize) -> RecordBatch {
    let columns = COLUMNS
        .iter()
        .map(|name| (*name, column(name, chance, count), true));
    let key: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count as i64));
    RecordBatch::try_from_iter_with_nullable(columns.chain([("row", key, true)])).unwrap()
}

/// A literal of the column's kind, often one of its values.
fn literal(name: &str, chance: &mut Rng) -> String {
    let n = chance.i64(0..46) - 8;
    match name {
        "i8" => n.to_string(),
        "i16" => (n * 900).to_string(),
        "i32" => (n * 70_000).to_string(),
        "i64" => (n << 40).to_string(),
        "u8" => (n + 8).to_string(),
        "u16" => ((n + 8) * 1000).to_string(),
        "u32" => ((n + 8) * 90_000_000).to_string(),
        "u64" => format!("{}::BIGINT UNSIGNED", u64::MAX - (n + 8) as u64),
        "f32" | "f64" => {
            let cast = if name == "f32" { "FLOAT" } else { "DOUBLE" };
            match n {
                -5 => format!("'NaN'::{cast}"),
                -4 => format!("'-inf'::{cast}"),
                -3 => format!("'-0.0'::{cast}"),
                n => format!("{}::{cast}", n as f64 / 4.0),
            }
        }
        "bool" => (n % 2 == 0).to_string(),
        "date" => format!("DATE '1970-01-01' + INTERVAL '{}' DAY", n * 30),
        "ts" => format!("to_timestamp_millis({})", n * 3_600_000_000),
        "dec" => format!("{}::DECIMAL(12,2)", n as f64 / 4.0),
        "text" => format!("'{}{n}'", "xyz".repeat(n.unsigned_abs() as usize % 4)),
        "bin" => format!("X'ff{:02x}'", n as u8),
        _ => n.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64).to_string(),
    }
}

fn predicate(chance: &mut Rng) -> String {
    predicate_on(COLUMNS, chance)
}

fn predicate_on(columns: &[&str], chance: &mut Rng) -> String {
    let name = columns[chance.usize(..columns.len())];
    let value = |chance: &mut Rng| literal(name, chance);
    match chance.i64(0..9) {
        0 => format!("{name} = {}", value(chance)),
        1 => format!("{name} <> {}", value(chance)),
        2 => format!("{name} < {}", value(chance)),
        3 => format!("{} <= {name}", value(chance)),
        4 => format!("{name} BETWEEN {} AND {}", value(chance), value(chance)),
        5 => format!(
            "{name} IN ({}, {}, {})",
            value(chance),
            value(chance),
            value(chance)
        ),
        6 => format!("{name} IS NULL"),
        7 => format!("{name} IS NOT NULL"),
        _ => format!("({name} = {} OR row % 3 = 0)", value(chance)),
    }
}

fn import(db: &Fixture, batches: Vec<RecordBatch>) {
    let schema = batches[0].schema();
    let inputs = vec![Box::new(batches.into_iter()) as _];
    let database = db.database();
    let progress = ImportProgress::default();
    let import = database.import_batches("t", schema, inputs, ExistingTable::Append, &progress);
    database.block_on(import).unwrap();
}

fn random_columns(chance: &mut Rng) -> Vec<&'static str> {
    let mut columns = COLUMNS.to_vec();
    for i in (1..columns.len()).rev() {
        columns.swap(i, chance.usize(..=i));
    }
    columns.truncate(1 + chance.usize(..5));
    columns
}

#[test]
fn answers_are_the_same_with_and_without_an_index_on_random_tables() {
    let questions = if cfg!(debug_assertions) { 40 } else { 200 };
    for seed in 0..6 {
        let mut chance = Rng::with_seed(seed);
        let mut db = Fixture::new();
        let rows = [1, 50, 700, 5000][chance.usize(..4)];
        import(
            &db,
            vec![batch(&mut chance, rows), batch(&mut chance, rows)],
        );
        let clustered = seed % 2 == 1;
        for (i, clustered) in [false, clustered].into_iter().enumerate() {
            let columns = random_columns(&mut chance).join(", ");
            db.run(&format!(
                "CREATE INDEX i{i} ON t USING elf ({columns}) WITH (clustered = {clustered})"
            ))
            .unwrap();
        }
        import(&db, vec![batch(&mut chance, 300)]);
        for step in 0..3 {
            for _ in 0..questions {
                let count = 1 + chance.i64(0..3);
                let predicates: Vec<_> = (0..count).map(|_| predicate(&mut chance)).collect();
                let question = format!(
                    "SELECT count(*), sum(row), min(text), max(date) FROM t WHERE {}",
                    predicates.join(" AND ")
                );
                let (with, without) = both(&db, &question);
                assert_eq!(with, without, "seed {seed}, step {step}: {question}");
            }
            match step {
                0 => db.run("OPTIMIZE TABLE t").map(|_| ()).unwrap(),
                _ => drop(db.reopen()),
            }
        }
        assert!(db.database().verify(|_, _| {}).unwrap().damage.is_empty());
    }
}

/// Tables whose Elfs hold all columns that random questions ask for.
#[test]
fn covering_queries_give_the_same_rows_with_and_without_on_random_tables() {
    let questions = if cfg!(debug_assertions) { 40 } else { 200 };
    for seed in 0..6 {
        let mut chance = Rng::with_seed(seed);
        let mut db = Fixture::new();
        let rows = [1, 700, 5000][chance.usize(..3)];
        import(&db, vec![batch(&mut chance, rows)]);
        import(&db, vec![batch(&mut chance, rows)]);
        let columns = random_columns(&mut chance);
        let clustered = seed % 2 == 1;
        db.run(&format!(
            "CREATE INDEX i ON t USING elf ({}) WITH (clustered = {clustered})",
            columns.join(", ")
        ))
        .unwrap();
        import(&db, vec![batch(&mut chance, 300)]);
        for step in 0..2 {
            let mut covered = 0;
            for _ in 0..questions {
                let mut chosen: Vec<&str> = columns.clone();
                chosen.sort_by_key(|_| chance.u32(..));
                chosen.truncate(1 + chance.usize(..columns.len()));
                let list = chosen.join(", ");
                let condition = match chance.usize(..4) {
                    0 => "true".to_owned(),
                    count => {
                        let conditions = (0..count).map(|_| predicate_on(&columns, &mut chance));
                        conditions.collect::<Vec<_>>().join(" AND ")
                    }
                };
                let question = match chance.usize(..4) {
                    0 => format!("SELECT {list} FROM t WHERE {condition} ORDER BY {list}"),
                    1 => format!("SELECT DISTINCT {list} FROM t WHERE {condition} ORDER BY {list}"),
                    2 => format!(
                        "SELECT {list}, count(*) FROM t WHERE {condition} GROUP BY {list} ORDER BY {list}"
                    ),
                    _ => format!(
                        "SELECT min({0}), count({0}) FROM t WHERE {condition}",
                        chosen[0]
                    ),
                };
                let (with, without) = both(&db, &question);
                assert_eq!(with, without, "seed {seed}, step {step}: {question}");
                let plan = db.rows(&format!("SET hotshelf.elf = 'always'; EXPLAIN {question}"));
                covered += usize::from(plan.join("\n").contains("access=elf i, covering ("));
            }
            assert!(covered > questions / 4, "seed {seed}: {covered}");
            db.run("OPTIMIZE TABLE t").unwrap();
            db.reopen();
        }
    }
}
