//! Random tables: types, rates of NULL, skew, order, duplicates and extreme values.
//!
//! Equal positions of one kind of value are equal in all tables, so that joins find partners.

use fastrand::Rng;

use crate::answers::features::Features;
use crate::answers::schema::{Column, Table, Type, Value, World};

/// How large random databases are.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub rows_max: usize,
    pub columns_max: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            rows_max: 50_000,
            columns_max: 12,
        }
    }
}

/// Names that several tables share.
const NAMES: &[&str] = &[
    "k", "x", "y", "a", "b", "n", "v", "s", "t", "d", "amount", "flag", "ref", "code", "q", "w",
];

/// A random database of one to five tables.
pub fn world(rng: &mut Rng, sizes: Sizes, features: &Features) -> World {
    let count = 1 + rng.usize(0..5).min(rng.usize(0..6));
    let tables = (0..count).map(|idx| table(rng, &format!("t{idx}"), sizes, features));
    World {
        tables: tables.collect(),
    }
}

fn table(rng: &mut Rng, name: &str, sizes: Sizes, features: &Features) -> Table {
    let row_count = row_count(rng, sizes).min(sizes.rows_max);
    let mut names: Vec<&str> = NAMES.to_vec();
    rng.shuffle(&mut names);
    // The first names are frequent in all tables.
    names.sort_by_key(|name| rng.usize(0..20) + NAMES.iter().position(|n| n == name).unwrap_or(0));
    let column_count = 1 + rng.usize(0..sizes.columns_max);
    let mut columns = Vec::new();
    if rng.u8(0..100) < 80 {
        let ty = *pick(
            rng,
            &[
                INT,
                BIGINT,
                INT,
                Type::Int {
                    bits: 32,
                    signed: false,
                },
            ],
        );
        columns.push(unique_column(rng, ty, row_count));
    }
    let rest = column_count.saturating_sub(columns.len()).max(1);
    for name in names.into_iter().take(rest) {
        let ty = column_type(rng);
        columns.push(column(rng, name, ty, row_count, features));
    }
    Table {
        name: name.to_owned(),
        columns,
        files: split(rng, row_count),
        indexes: Vec::new(),
    }
}

/// One table in three is large where large ones are wanted.
fn row_count(rng: &mut Rng, sizes: Sizes) -> usize {
    let usual = Sizes::default().rows_max;
    if sizes.rows_max > usual && rng.u8(0..3) == 0 {
        return rng.usize(usual..=sizes.rows_max);
    }
    match rng.u8(0..100) {
        0..3 => 0,
        3..6 => 1,
        6..20 => rng.usize(2..60),
        20..75 => rng.usize(60..1_000),
        75..97 => rng.usize(1_000..5_000),
        _ => rng.usize(5_000..50_000),
    }
}

/// Rows of one to four files.
pub fn split(rng: &mut Rng, row_count: usize) -> Vec<usize> {
    let mut remaining = row_count;
    let mut files = Vec::new();
    for _ in 0..rng.usize(0..4) {
        let rows = rng.usize(0..=remaining);
        if rows > 0 {
            files.push(rows);
        }
        remaining -= rows;
    }
    if remaining > 0 {
        files.push(remaining);
    }
    files
}

const INT: Type = Type::Int {
    bits: 32,
    signed: true,
};
use crate::answers::schema::BIGINT;

fn column_type(rng: &mut Rng) -> Type {
    match rng.u8(0..100) {
        0..10 => Type::Boolean,
        10..40 => Type::Int {
            bits: *pick(rng, &[8, 16, 32, 32, 64, 64]),
            signed: rng.u8(0..4) > 0,
        },
        40..46 => Type::Real,
        46..55 => Type::Double,
        55..68 => {
            let (precision, scale) = *pick(
                rng,
                &[
                    (4, 1),
                    (9, 2),
                    (9, 0),
                    (12, 2),
                    (18, 4),
                    (20, 3),
                    (38, 10),
                    (38, 0),
                ],
            );
            Type::Decimal { precision, scale }
        }
        68..84 => Type::Text,
        84..93 => Type::Date,
        _ => Type::Timestamp,
    }
}

fn unique_column(rng: &mut Rng, ty: Type, row_count: usize) -> Column {
    let mut numbers: Vec<i128> = (0..row_count as i128).collect();
    if rng.bool() {
        rng.shuffle(&mut numbers);
    }
    Column::new("id", ty, numbers.into_iter().map(Value::Int).collect())
}

/// How the positions of a column's values follow each other.
enum Shape {
    Constant,
    Uniform,
    /// Small positions are frequent.
    Skewed,
    Sorted,
}

fn column(rng: &mut Rng, name: &str, ty: Type, row_count: usize, features: &Features) -> Column {
    let null_percent = *pick(rng, &[0, 0, 0, 2, 10, 10, 30, 90, 100]);
    let null_percent = if null_percent == 100 && rng.bool() {
        5
    } else {
        null_percent
    };
    let domain = *pick(rng, &[2, 5, 12, 40, 100, 400, 5_000]);
    let shape = match rng.u8(0..20) {
        0 => Shape::Constant,
        1..12 => Shape::Uniform,
        12..16 => Shape::Skewed,
        _ => Shape::Sorted,
    };
    let extreme_percent = *pick(rng, &[0, 0, 0, 0, 1, 10]);
    let constant = rng.i64(0..domain);
    let mut positions: Vec<i64> = (0..row_count)
        .map(|_| match shape {
            Shape::Constant => constant,
            Shape::Uniform | Shape::Sorted => rng.i64(0..domain),
            Shape::Skewed => rng
                .i64(0..domain)
                .min(rng.i64(0..domain))
                .min(rng.i64(0..domain)),
        })
        .collect();
    if matches!(shape, Shape::Sorted) {
        positions.sort_unstable();
    }
    let values = positions.into_iter().map(|position| {
        if rng.u8(0..100) < null_percent {
            Value::Null
        } else if rng.u8(0..100) < extreme_percent {
            extreme(rng, ty, features)
        } else {
            value(ty, position)
        }
    });
    Column::new(name, ty, values.collect())
}

const WORDS: &[&str] = &[
    "",
    "a",
    "A",
    "b",
    "ab",
    "abc",
    "Zürich",
    "naïve",
    "foo bar",
    "NULL",
    "日本語",
    "x'y",
    " lead",
    "trail ",
    "a longer string that is not inlined",
    "0",
    "-1",
    "zzz",
    "ÿ",
    "%x_",
    "née",
    "alpha beta",
];

/// The value at a position; the same in all tables.
fn value(ty: Type, position: i64) -> Value {
    match ty {
        Type::Boolean => Value::Bool(position % 2 == 1),
        Type::Int { .. } => {
            let (low, high) = ty.int_range();
            let wanted = if low < 0 {
                i128::from(position) - 5
            } else {
                i128::from(position)
            };
            Value::Int(low + (wanted - low).rem_euclid(high - low + 1))
        }
        // Multiples of an eighth: sums are exact and REAL equals DOUBLE.
        Type::Real | Type::Double => Value::Float((position - 20) as f64 * 0.375),
        Type::Decimal { precision, scale } => {
            let unit = 10i128.pow(u32::from(scale).min(2));
            let limit = 10i128.pow(u32::from(precision));
            let step = (i128::from(position) - 8) * 25;
            Value::Decimal((step * 10i128.pow(u32::from(scale)) / (unit * 4)) % limit)
        }
        Type::Text => {
            let word = WORDS[position as usize % WORDS.len()];
            let round = position as usize / WORDS.len();
            Value::Text(if round == 0 {
                word.to_owned()
            } else {
                format!("{word}{round}")
            })
        }
        Type::Date => Value::Date(10_950 + (position * 11) as i32),
        Type::Timestamp => Value::Timestamp(946_684_800_000_000 + position * 7_201_000_001),
    }
}

fn extreme(rng: &mut Rng, ty: Type, features: &Features) -> Value {
    match ty {
        Type::Boolean => Value::Bool(rng.bool()),
        Type::Int { .. } => {
            let (low, high) = ty.int_range();
            Value::Int(*pick(rng, &[low, high, low + 1, high - 1, high / 2]))
        }
        Type::Real => Value::Float(*pick(rng, &[f64::from(f32::MAX), f64::from(f32::MIN), 0.0])),
        Type::Double if features.negative_zero && rng.u8(0..3) == 0 => Value::Float(-0.0),
        Type::Double if features.not_a_number && rng.u8(0..4) == 0 => {
            Value::Float(*pick(rng, &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]))
        }
        Type::Double => Value::Float(*pick(rng, &[f64::MAX, f64::MIN, 5e-324, 0.0, 1e15])),
        Type::Decimal { precision, .. } => {
            let limit = 10i128.pow(u32::from(precision)) - 1;
            Value::Decimal(*pick(rng, &[limit, -limit, 0, 1, -1]))
        }
        Type::Text => Value::Text(
            pick(
                rng,
                &[
                    "",
                    "~~~~",
                    "\u{10FFFF}",
                    "a\nb",
                    "  ",
                    "the longest of all the strings of this column, by far",
                ],
            )
            .to_string(),
        ),
        Type::Date => Value::Date(*pick(rng, &[-90_000, 80_000, 0, -1, 11_016])),
        Type::Timestamp => Value::Timestamp(*pick(
            rng,
            &[
                -5_000_000_000_000_000,
                7_000_000_000_000_000,
                0,
                -1,
                951_782_400_000_000,
            ],
        )),
    }
}

/// One of `values`.
pub fn pick<'a, T>(rng: &mut Rng, values: &'a [T]) -> &'a T {
    &values[rng.usize(0..values.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_database() {
        let describe = |seed| {
            format!(
                "{:?}",
                world(&mut Rng::with_seed(seed), Sizes::default(), &Features::ALL)
            )
        };
        assert_eq!(describe(3), describe(3));
        assert_ne!(describe(3), describe(4));
    }

    #[test]
    fn values_fit_their_types() {
        let mut rng = Rng::with_seed(1);
        for _ in 0..30 {
            for table in world(&mut rng, Sizes::default(), &Features::ALL).tables {
                assert_eq!(table.files.iter().sum::<usize>(), table.row_count());
                for column in &table.columns {
                    let (low, high) = column.ty.int_range();
                    let fits = |value: &Value| match value {
                        Value::Int(value) => (low..=high).contains(value),
                        _ => true,
                    };
                    assert!(column.values.iter().all(fits), "{column:?}");
                }
            }
        }
    }
}
