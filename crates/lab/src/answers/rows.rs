//! Rows of an answer, from Arrow or from JSON, and whether two answers are equal.
//!
//! Types are compared loosely: integers of any width, decimals of any scale, dates as midnights. Floating-point
//! numbers may differ by [`TOLERANCE`], relatively; an average that one engine gives as a decimal also by one unit of
//! its last digit.

use std::cmp::Ordering;
use std::fmt;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, Int64Type, TimeUnit, TimestampNanosecondType, UInt64Type,
};
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;
use serde_json::Value as Json;

use crate::answers::schema::{Type, Value};

/// How much floating-point numbers may differ, relatively.
pub const TOLERANCE: f64 = 1e-6;
/// Differences of numbers near zero that come from cancellation.
const TOLERANCE_NEAR_ZERO: f64 = 1e-7;

/// A value of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Null,
    Bool(bool),
    Int(i128),
    /// Unscaled, and its scale.
    Decimal(i128, i8),
    Float(f64),
    Text(String),
    /// Nanoseconds since 1970.
    Time(i128),
}

/// The rows of an answer.
pub type Rows = Vec<Vec<Cell>>;

const DAY_NANOS: i128 = 86_400_000_000_000;

/// The rows of batches.
pub fn from_batches(batches: &[RecordBatch]) -> Result<Rows, ArrowError> {
    let mut rows = Vec::new();
    for batch in batches {
        let start = rows.len();
        rows.resize(
            start + batch.num_rows(),
            Vec::with_capacity(batch.num_columns()),
        );
        for column in batch.columns() {
            for (row, cell) in rows[start..].iter_mut().zip(cells(column)?) {
                row.push(cell);
            }
        }
    }
    Ok(rows)
}

fn cells(column: &ArrayRef) -> Result<Vec<Cell>, ArrowError> {
    let all = 0..column.len();
    Ok(match column.data_type() {
        DataType::Null => vec![Cell::Null; column.len()],
        DataType::Boolean => column
            .as_boolean()
            .iter()
            .map(|v| v.map_or(Cell::Null, Cell::Bool))
            .collect(),
        DataType::UInt64 => {
            let values = column.as_primitive::<UInt64Type>().iter();
            values
                .map(|v| v.map_or(Cell::Null, |v| Cell::Int(v.into())))
                .collect()
        }
        ty if ty.is_integer() => {
            let wide = cast(column, &DataType::Int64)?;
            let values = wide.as_primitive::<Int64Type>().iter();
            values
                .map(|v| v.map_or(Cell::Null, |v| Cell::Int(v.into())))
                .collect()
        }
        ty if ty.is_floating() => {
            let wide = cast(column, &DataType::Float64)?;
            let values = wide.as_primitive::<Float64Type>().iter();
            values.map(|v| v.map_or(Cell::Null, Cell::Float)).collect()
        }
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale) => {
            let scale = *scale;
            let wide = cast(column, &DataType::Decimal128(38, scale))?;
            let values = wide.as_primitive::<Decimal128Type>().iter();
            values
                .map(|v| v.map_or(Cell::Null, |v| Cell::Decimal(v, scale)))
                .collect()
        }
        DataType::Date32 => {
            let wide = cast(column, &DataType::Int32)?;
            let wide = cast(&wide, &DataType::Int64)?;
            let values = wide.as_primitive::<Int64Type>().iter();
            values
                .map(|v| v.map_or(Cell::Null, |v| Cell::Time(i128::from(v) * DAY_NANOS)))
                .collect()
        }
        DataType::Timestamp(..) => {
            let wide = cast(column, &DataType::Timestamp(TimeUnit::Nanosecond, None))?;
            let values = wide.as_primitive::<TimestampNanosecondType>().iter();
            values
                .map(|v| v.map_or(Cell::Null, |v| Cell::Time(v.into())))
                .collect()
        }
        _ => {
            let text = |idx| match column.is_null(idx) {
                true => Ok(Cell::Null),
                false => array_value_to_string(column, idx).map(Cell::Text),
            };
            all.map(text).collect::<Result<_, _>>()?
        }
    })
}

/// The rows of an oracle's answer; `None` if it is not a list of rows.
pub fn from_json(rows: &Json) -> Option<Rows> {
    let row = |row: &Json| {
        row.as_array()?
            .iter()
            .map(json_cell)
            .collect::<Option<Vec<_>>>()
    };
    rows.as_array()?.iter().map(row).collect()
}

/// Numbers that JSON does not have come as an object with one member: `i`, `d`, `f` or `t`.
fn json_cell(json: &Json) -> Option<Cell> {
    Some(match json {
        Json::Null => Cell::Null,
        Json::Bool(value) => Cell::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(value) => Cell::Int(value.into()),
            None => Cell::Float(number.as_f64()?),
        },
        Json::String(text) => Cell::Text(text.clone()),
        Json::Object(members) => {
            let (name, value) = members.iter().next()?;
            let text = value.as_str();
            match name.as_str() {
                "i" => Cell::Int(text?.parse().ok()?),
                "d" => parse_decimal(text?)?,
                "f" => Cell::Float(text?.parse().ok()?),
                "t" => Cell::Time(text?.parse::<i128>().ok()? * 1_000),
                _ => return None,
            }
        }
        Json::Array(_) => return None,
    })
}

fn parse_decimal(text: &str) -> Option<Cell> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let unscaled = format!("{whole}{fraction}").parse().ok()?;
    Some(Cell::Decimal(unscaled, i8::try_from(fraction.len()).ok()?))
}

impl Cell {
    /// The stored value of a column's type.
    pub fn to_value(&self, ty: Type) -> Value {
        match (self, ty) {
            (Self::Bool(value), _) => Value::Bool(*value),
            (Self::Int(value), _) => Value::Int(*value),
            (Self::Decimal(value, _), _) => Value::Decimal(*value),
            (Self::Float(value), _) => Value::Float(*value),
            (Self::Text(value), _) => Value::Text(value.clone()),
            (Self::Time(nanos), Type::Date) => Value::Date(nanos.div_euclid(DAY_NANOS) as i32),
            (Self::Time(nanos), _) => Value::Timestamp(nanos.div_euclid(1_000) as i64),
            (Self::Null, _) => Value::Null,
        }
    }

    /// Two numbers added; what are not numbers stays the first.
    pub fn sum(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Int(a), Self::Int(b)) => Self::Int(a + b),
            (Self::Decimal(a, scale), Self::Decimal(b, other)) if scale == other => {
                Self::Decimal(a.saturating_add(*b), *scale)
            }
            _ => match (self.number(), other.number()) {
                (Some(a), Some(b)) => Self::Float(a + b),
                _ => self,
            },
        }
    }

    /// Whether this comes first in the order of SQL.
    pub fn is_before(&self, other: &Self) -> bool {
        self.order(other).is_lt()
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Decimal(value, scale) => Some(*value as f64 / 10f64.powi(i32::from(*scale))),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Int(_) | Self::Decimal(..) | Self::Float(_) => 2,
            Self::Text(_) => 3,
            Self::Time(_) => 4,
        }
    }

    /// An order in which equal cells are neighbours, unless they are approximate.
    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Time(a), Self::Time(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            _ => match (self.number(), other.number()) {
                // NaN last, both zeros one.
                (Some(a), Some(b)) => (a + 0.0).total_cmp(&(b + 0.0)).then_with(|| {
                    exact(self)
                        .zip(exact(other))
                        .map_or(Ordering::Equal, |(a, b)| a.cmp(&b))
                }),
                _ => self.rank().cmp(&other.rank()),
            },
        }
    }
}

/// A decimal without its trailing zeros: unscaled, and the scale.
fn exact(cell: &Cell) -> Option<(i128, i8)> {
    let (mut value, mut scale) = match cell {
        Cell::Int(value) => (*value, 0),
        Cell::Decimal(value, scale) => (*value, *scale),
        _ => return None,
    };
    while scale > 0 && value % 10 == 0 {
        value /= 10;
        scale -= 1;
    }
    Some((value, scale))
}

/// Whether two cells stand for one value.
pub fn same_cell(a: &Cell, b: &Cell) -> bool {
    match (a, b) {
        (Cell::Float(_), other) | (other, Cell::Float(_)) => {
            other.number().is_some() && close(a, b)
        }
        _ => match (exact(a), exact(b)) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        },
    }
}

fn close(a: &Cell, b: &Cell) -> bool {
    let (Some(x), Some(y)) = (a.number(), b.number()) else {
        return false;
    };
    if x == y || (x.is_nan() && y.is_nan()) {
        return true;
    }
    let unit = match (a, b) {
        (Cell::Decimal(_, scale), _) | (_, Cell::Decimal(_, scale)) => {
            10f64.powi(-i32::from(*scale))
        }
        _ => 0.0,
    };
    (x - y).abs() <= TOLERANCE * x.abs().max(y.abs()) + TOLERANCE_NEAR_ZERO + unit
}

/// Whether two rows are equal.
pub fn same_row(a: &[Cell], b: &[Cell]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_cell(a, b))
}

/// Whether two answers hold equal rows, in the same order or in any.
pub fn same_rows(a: &Rows, b: &Rows, is_ordered: bool) -> bool {
    if a.len() != b.len() {
        return false;
    }
    if a.iter().zip(b).all(|(a, b)| same_row(a, b)) {
        return true;
    }
    !is_ordered && same_sets(a, b)
}

fn same_sets(a: &Rows, b: &Rows) -> bool {
    let approximate = approximate_columns(a, b);
    let sort = |rows: &Rows| {
        let mut rows: Vec<Vec<Cell>> = rows.clone();
        rows.sort_by(|a, b| order_rows(a, b, &approximate));
        rows
    };
    let (a, b) = (sort(a), sort(b));
    if a.iter().zip(&b).all(|(a, b)| same_row(a, b)) {
        return true;
    }
    // Rows that are equal in their exact columns may come in another order.
    approximate.contains(&true) && matched(&a, b)
}

/// Rows in pairs, by trying; too many rows count as different.
fn matched(a: &Rows, mut b: Rows) -> bool {
    const ROWS_MAX: usize = 3_000;
    a.len() <= ROWS_MAX
        && a.iter().all(|row| {
            let partner = b.iter().position(|other| same_row(row, other));
            partner.map(|idx| b.swap_remove(idx)).is_some()
        })
}

fn approximate_columns(a: &Rows, b: &Rows) -> Vec<bool> {
    let width = a.first().map_or(0, Vec::len);
    let is_float = |rows: &Rows, idx: usize| {
        rows.iter()
            .any(|row| matches!(row.get(idx), Some(Cell::Float(_))))
    };
    (0..width)
        .map(|idx| is_float(a, idx) || is_float(b, idx))
        .collect()
}

fn order_rows(a: &[Cell], b: &[Cell], approximate: &[bool]) -> Ordering {
    let cells = || a.iter().zip(b).zip(approximate);
    let by = |is_approximate: bool| {
        let mut orders = cells()
            .filter(|(_, approximate)| **approximate == is_approximate)
            .map(|((a, b), _)| a.order(b));
        orders
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    };
    by(false).then_with(|| by(true))
}

/// Each row once.
pub fn distinct(mut rows: Rows) -> Rows {
    let approximate = approximate_columns(&rows, &Vec::new());
    rows.sort_by(|a, b| order_rows(a, b, &approximate));
    rows.dedup_by(|a, b| order_rows(a, b, &approximate).is_eq());
    rows
}

/// Rows that only one side has: the first few of each, as text.
pub fn difference(a: &Rows, b: &Rows, count_max: usize) -> (Vec<String>, Vec<String>) {
    let approximate = approximate_columns(a, b);
    let sorted = |rows: &Rows| {
        let mut rows = rows.clone();
        rows.sort_by(|a, b| order_rows(a, b, &approximate));
        rows
    };
    let (a, b) = (sorted(a), sorted(b));
    let (mut only_a, mut only_b) = (Vec::new(), Vec::new());
    let (mut i, mut j) = (0, 0);
    while (i < a.len() || j < b.len()) && only_a.len() + only_b.len() < 2 * count_max {
        let order = match (a.get(i), b.get(j)) {
            (Some(x), Some(y)) if same_row(x, y) => Ordering::Equal,
            (Some(x), Some(y)) => order_rows(x, y, &approximate).then(Ordering::Less),
            (Some(_), None) => Ordering::Less,
            _ => Ordering::Greater,
        };
        if order.is_lt() {
            only_a.push(text(&a[i]));
        } else if order.is_gt() {
            only_b.push(text(&b[j]));
        }
        i += usize::from(order.is_le());
        j += usize::from(order.is_ge());
    }
    only_a.truncate(count_max);
    only_b.truncate(count_max);
    (only_a, only_b)
}

/// A row as text.
pub fn text(row: &[Cell]) -> String {
    let cells: Vec<String> = row.iter().map(Cell::to_string).collect();
    format!("({})", cells.join(", "))
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Decimal(value, scale) => f.write_str(&crate::answers::render::decimal(
                *value,
                (*scale).max(0) as u8,
            )),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(value) => write!(f, "'{}'", value.escape_debug()),
            Self::Time(nanos) => {
                f.write_str(&crate::answers::render::timestamp((nanos / 1_000) as i64))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_across_types() {
        assert!(same_cell(&Cell::Int(5), &Cell::Decimal(500, 2)));
        assert!(!same_cell(&Cell::Int(5), &Cell::Decimal(501, 2)));
        assert!(same_cell(&Cell::Float(0.1 + 0.2), &Cell::Float(0.3)));
        assert!(same_cell(
            &Cell::Decimal(333_333, 6),
            &Cell::Float(1.0 / 3.0)
        ));
        assert!(!same_cell(&Cell::Float(1.0), &Cell::Float(1.001)));
        assert!(!same_cell(
            &Cell::Int(i64::MAX.into()),
            &Cell::Int(i128::from(i64::MAX) - 1)
        ));
    }

    #[test]
    fn order_counts_only_where_it_is_asked_for() {
        let row = |n| vec![Cell::Int(n), Cell::Float(n as f64 / 3.0)];
        let (one, other) = (vec![row(1), row(2), row(2)], vec![row(2), row(1), row(2)]);
        assert!(same_rows(&one, &other, false));
        assert!(!same_rows(&one, &other, true));
        assert!(!same_rows(&one, &vec![row(1), row(1), row(2)], false));
    }

    #[test]
    fn rows_that_differ_within_the_tolerance_find_their_partners() {
        let row = |x: f64, y: f64| vec![Cell::Float(x), Cell::Float(y)];
        let one = vec![row(1.0, 7.0), row(1.000_000_1, 5.0)];
        let other = vec![row(1.000_000_1, 7.0), row(1.0, 5.0)];
        assert!(same_rows(&one, &other, false));
    }

    #[test]
    fn a_difference_names_rows_of_one_side() {
        let row = |n| vec![Cell::Int(n)];
        let (only_a, only_b) = difference(&vec![row(1), row(2)], &vec![row(2), row(3)], 5);
        assert_eq!(
            (only_a, only_b),
            (vec!["(1)".to_owned()], vec!["(3)".to_owned()])
        );
    }

    #[test]
    fn json_numbers_keep_their_types() {
        let (integer, decimal) = ("18446744073709551616", "-0.05");
        let json =
            serde_json::json!([[1, 1.0, {"i": integer}, {"d": decimal}, {"t": "1"}, {"f": "nan"}]]);
        let rows = from_json(&json).unwrap();
        assert_eq!(
            rows[0][..3],
            [Cell::Int(1), Cell::Float(1.0), Cell::Int(1 << 64)]
        );
        assert_eq!(rows[0][3..5], [Cell::Decimal(-5, 2), Cell::Time(1_000)]);
        assert!(matches!(rows[0][5], Cell::Float(value) if value.is_nan()));
    }
}
