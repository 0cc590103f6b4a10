//! Every way to answer a query agrees with looking at every value: all types, instructions and numbers of threads.

use fastrand::Rng;
use hotshelf_elf::keys::{
    CodeTable, ColumnEncoding, Coverage, Predicate, QueryBox, Value, Values, ValuesRef,
};
use hotshelf_elf::layout::packed::{PackedElf, PackedOptions};
use hotshelf_tier::simd::Backend;

#[path = "../src/keys/typed.rs"]
mod typed;

use typed::{Column, holds};

const TABLE_COUNT: u64 = 1_400;
const QUERIES_PER_TABLE: u64 = 8;

const TYPE_COUNT: usize = 13;

/// A column of a kind with few or many different values, as `spread` says.
fn random_column(kind: usize, row_count: usize, spread: usize, random: &mut Rng) -> Column {
    let mut numbers = || -> Vec<i64> {
        let wide = if spread > 20 { 1 << 40 } else { 1 };
        let number = |_| (random.usize(..spread) as i64 - spread as i64 / 3) * wide;
        (0..row_count).map(number).collect()
    };
    let floats = |numbers: Vec<i64>| {
        numbers.into_iter().map(|n| match n {
            -1 => f64::NAN,
            -2 => -0.0,
            -3 => f64::NEG_INFINITY,
            n => n as f64 / 8.0,
        })
    };
    match kind {
        0 => Column::Bool(numbers().iter().map(|n| n % 2 == 0).collect()),
        1 => Column::I8(numbers().iter().map(|&n| n as i8).collect()),
        2 => Column::I16(numbers().iter().map(|&n| n as i16).collect()),
        3 => Column::I32(numbers().iter().map(|&n| n as i32).collect()),
        4 => Column::I64(numbers()),
        5 => Column::I128(numbers().iter().map(|&n| i128::from(n) << 60).collect()),
        6 => Column::U8(numbers().iter().map(|&n| n as u8).collect()),
        7 => Column::U16(numbers().iter().map(|&n| n as u16).collect()),
        8 => Column::U32(numbers().iter().map(|&n| n as u32).collect()),
        9 => Column::U64(numbers().iter().map(|&n| n as u64).collect()),
        10 => Column::F32(floats(numbers()).map(|x| x as f32).collect()),
        11 => Column::F64(floats(numbers()).collect()),
        _ => {
            let letters = |n: i64| vec![b'a' + (n & 3) as u8; n.rem_euclid(11) as usize];
            Column::Bytes(numbers().into_iter().map(letters).collect())
        }
    }
}

/// A table of typed columns, its codes and encodings.
struct Table {
    columns: Vec<Column>,
    validities: Vec<Option<Vec<bool>>>,
    encodings: Vec<ColumnEncoding>,
    codes: CodeTable,
}

impl Table {
    fn random(random: &mut Rng) -> Self {
        let row_count = [0, 1, 2, 30, 64, 65, 300][random.usize(..7)] + random.usize(..3);
        let spread = [1, 2, 5, 17, 100, 5_000][random.usize(..6)];
        let columns: Vec<Column> = (0..1 + random.usize(..5))
            .map(|_| random_column(random.usize(..TYPE_COUNT), row_count, spread, random))
            .collect();
        let validities: Vec<_> = columns
            .iter()
            .map(|_| {
                let nulls = random.usize(..3);
                (nulls > 0).then(|| (0..row_count).map(|_| random.usize(..4) >= nulls).collect())
            })
            .collect();
        let mut encodings = Vec::new();
        let mut codes = Vec::new();
        for (column, validity) in columns.iter().zip(&validities) {
            column.with(validity.as_deref(), |values: &Values<'_>| {
                let encoding = ColumnEncoding::learn(values).unwrap();
                codes.push(encoding.encode(values).unwrap());
                encodings.push(encoding);
            });
        }
        let codes = CodeTable::new(codes).unwrap();
        Self {
            columns,
            validities,
            encodings,
            codes,
        }
    }

    fn value(&self, column: usize, row: usize) -> Value {
        match &self.validities[column] {
            Some(validity) if !validity[row] => Value::Null,
            _ => self.columns[column].value(row),
        }
    }

    fn predicate(&self, column: usize, random: &mut Rng) -> Predicate {
        let row_count = self.codes.row_count();
        let mut literal = || match (row_count, random.usize(..12)) {
            (0, _) | (_, 0) => Value::Null,
            (_, choice) => match self.columns[column].value(random.usize(..row_count)) {
                Value::Integer(n) if choice == 1 => Value::Integer(n + 1),
                Value::Bytes(mut bytes) if choice == 1 => {
                    bytes.push(b'b');
                    Value::Bytes(bytes)
                }
                value => value,
            },
        };
        let (a, b, c) = (literal(), literal(), literal());
        match random.usize(..10) {
            0 => Predicate::Eq(a),
            1 => Predicate::NotEq(a),
            2 => Predicate::Lt(a),
            3 => Predicate::Le(a),
            4 => Predicate::Gt(a),
            5 => Predicate::Ge(a),
            6 => Predicate::Between(a, b),
            7 => Predicate::In(vec![a, b, c]),
            8 => Predicate::IsNull,
            _ => Predicate::IsNotNull,
        }
    }
}

/// All structures over one table.
struct Structures {
    elfs: Vec<(String, PackedElf)>,
}

impl Structures {
    fn build(codes: &CodeTable) -> Self {
        let mut elfs = Vec::new();
        let small = PackedOptions {
            group_rows_max: 4,
            bucket_rows_max: 2,
            ..Default::default()
        };
        let large = PackedOptions {
            thread_count: 2,
            ..Default::default()
        };
        for (name, options) in [("small groups", small), ("large groups", large)] {
            let elf = PackedElf::build(codes, &options).unwrap();
            for backend in Backend::available() {
                let elf = elf.clone().with_backend(backend);
                elfs.push((format!("{name}, {}", backend.name()), elf));
            }
        }
        Self { elfs }
    }

    fn check(&self, query: &QueryBox, expected: &[u32]) {
        for (name, elf) in &self.elfs {
            assert_eq!(elf.select(query).unwrap(), expected, "{name}: {query:?}");
            assert_eq!(
                elf.count(query).unwrap(),
                expected.len() as u64,
                "{name}: {query:?}"
            );
        }
    }
}

/// The TIDs of all rows whose codes `query` accepts.
fn naive(codes: &CodeTable, query: &QueryBox) -> Vec<u32> {
    let is_accepted = |row: &u32| query.contains(&codes.row(*row as usize));
    (0..codes.row_count() as u32).filter(is_accepted).collect()
}

#[test]
fn all_structures_agree_with_a_look_at_every_value() {
    let mut random = Rng::with_seed(2_024);
    let (mut pair_count, mut row_count, mut superset_count) = (0, 0, 0);
    for _ in 0..TABLE_COUNT {
        let table = Table::random(&mut random);
        let structures = Structures::build(&table.codes);
        for _ in 0..QUERIES_PER_TABLE {
            let column_count = table.columns.len();
            let mut query = QueryBox::unrestricted(column_count);
            let (mut predicates, mut is_exact) = (Vec::new(), true);
            for _ in 0..random.usize(..4) {
                let column = random.usize(..column_count);
                let predicate = table.predicate(column, &mut random);
                let (restriction, coverage) =
                    table.encodings[column].restriction(&predicate).unwrap();
                query.restrict(column, &restriction).unwrap();
                is_exact &= coverage == Coverage::Exact;
                predicates.push((column, predicate));
            }
            let is_accepted = |row: &u32| {
                let value = |column: usize| table.value(column, *row as usize);
                predicates
                    .iter()
                    .all(|(column, predicate)| holds(predicate, &value(*column)))
            };
            let accepted: Vec<u32> = (0..table.codes.row_count() as u32)
                .filter(is_accepted)
                .collect();
            let expected = if is_exact {
                accepted
            } else {
                // Codes say less than values: every accepted row must still be among the answers.
                let by_code = naive(&table.codes, &query);
                assert!(
                    accepted.iter().all(|row| by_code.contains(row)),
                    "{predicates:?}"
                );
                superset_count += 1;
                by_code
            };
            structures.check(&query, &expected);
            pair_count += 1;
            row_count += expected.len();
        }
    }
    println!(
        "{pair_count} pairs of table and query over {TYPE_COUNT} types, {row_count} rows found, \
         {superset_count} queries that codes answer by a superset"
    );
    assert!(pair_count >= 10_000);
}
