//! How many bytes a call would make, from its arguments.

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::ColumnarValue;

/// What points in time are measured in.
const MICROSECONDS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Computes the bytes that a call would make.
pub(super) type Size = fn(&[Argument]) -> u64;

/// The functions that can make much of little.
pub(super) const FUNCTIONS: &[(&str, Size)] = &[
    ("repeat", |args| {
        sum(args, |row| row.text(0).saturating_mul(row.count(1)))
    }),
    ("lpad", |args| sum(args, |row| row.count(1))),
    ("rpad", |args| sum(args, |row| row.count(1))),
    ("replace", |args| {
        sum(args, |row| replaced_bytes(row, row.text(1).max(1)))
    }),
    // A pattern may match between any two characters.
    ("regexp_replace", |args| {
        sum(args, |row| replaced_bytes(row, 0))
    }),
    ("concat", |args| sum(args, |row| row.texts(0))),
    ("concat_ws", |args| {
        sum(args, |row| {
            let separators = row.text(0).saturating_mul(row.args.len() as u64);
            row.texts(1).saturating_add(separators)
        })
    }),
    ("array_repeat", |args| {
        sum(args, |row| {
            row.args[0].element_bytes().saturating_mul(row.count(1))
        })
    }),
    ("array_concat", repeated_bytes),
    ("array_resize", |args| {
        sum(args, |row| row.count(1).saturating_mul(8))
    }),
    ("range", |args| sum(args, series_bytes)),
    ("generate_series", |args| sum(args, series_bytes)),
];

/// An argument of a call, ready to be measured.
pub(super) enum Argument {
    Scalar {
        text: u64,
        count: Option<i64>,
        bytes: u64,
    },
    Array {
        values: ArrayRef,
        counts: Option<Int64Array>,
    },
}

impl Argument {
    pub fn new(value: &ColumnarValue) -> QueryResult<Self> {
        Ok(match value {
            ColumnarValue::Scalar(scalar) => Self::Scalar {
                text: scalar.try_as_str().flatten().map_or(0, str::len) as u64,
                count: count(scalar),
                bytes: scalar.size() as u64,
            },
            ColumnarValue::Array(values) => Self::Array {
                values: values.clone(),
                counts: counts(values)?,
            },
        })
    }

    /// Rows of the argument; a scalar has one.
    pub fn rows(&self) -> usize {
        match self {
            Self::Scalar { .. } => 1,
            Self::Array { values, .. } => values.len(),
        }
    }

    /// Length of the text in a row.
    fn text(&self, row: usize) -> u64 {
        match self {
            Self::Scalar { text, .. } => *text,
            Self::Array { values, .. } => text(values, row).map_or(0, str::len) as u64,
        }
    }

    fn number(&self, row: usize) -> Option<i64> {
        match self {
            Self::Scalar { count, .. } => *count,
            Self::Array { counts, .. } => {
                let counts = counts.as_ref()?;
                (row < counts.len() && counts.is_valid(row)).then(|| counts.value(row))
            }
        }
    }

    /// Bytes of one value, on average.
    fn element_bytes(&self) -> u64 {
        match self {
            Self::Scalar { bytes, .. } => *bytes,
            Self::Array { values, .. } => {
                (values.get_array_memory_size() / values.len().max(1)).max(1) as u64
            }
        }
    }
}

/// The values as numbers, if they are numbers or points in time (then in microseconds).
fn counts(values: &ArrayRef) -> QueryResult<Option<Int64Array>> {
    let data_type = values.data_type();
    let numbers = match data_type {
        integer if integer.is_integer() => cast(values, &DataType::Int64),
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
            cast(values, &MICROSECONDS).and_then(|points| cast(&points, &DataType::Int64))
        }
        _ => return Ok(None),
    };
    // Values beyond the range are not numbers that a size could be computed of.
    let numbers = numbers.ok();
    Ok(numbers.map(|numbers| numbers.as_primitive::<Int64Type>().clone()))
}

/// A scalar as [`counts`] gives it; a length of time counts in microseconds, too.
fn count(scalar: &ScalarValue) -> Option<i64> {
    const DAY: i64 = 86_400_000_000;
    match scalar {
        ScalarValue::IntervalYearMonth(months) => Some(i64::from((*months)?) * 28 * DAY),
        ScalarValue::IntervalDayTime(time) => {
            let time = (*time)?;
            Some(i64::from(time.days) * DAY + i64::from(time.milliseconds) * 1000)
        }
        ScalarValue::IntervalMonthDayNano(time) => {
            let time = (*time)?;
            let days = i64::from(time.months) * 28 + i64::from(time.days);
            Some(
                days.saturating_mul(DAY)
                    .saturating_add(time.nanoseconds / 1000),
            )
        }
        other => {
            let counts = counts(&other.to_array().ok()?).ok()??;
            counts.is_valid(0).then(|| counts.value(0))
        }
    }
}

fn text(values: &ArrayRef, row: usize) -> Option<&str> {
    if row >= values.len() || values.is_null(row) {
        return None;
    }
    Some(match values.data_type() {
        DataType::Utf8 => values.as_string::<i32>().value(row),
        DataType::LargeUtf8 => values.as_string::<i64>().value(row),
        DataType::Utf8View => values.as_string_view().value(row),
        _ => return None,
    })
}

/// One row of the arguments.
struct Row<'a> {
    args: &'a [Argument],
    row: usize,
}

impl Row<'_> {
    fn text(&self, idx: usize) -> u64 {
        self.args.get(idx).map_or(0, |arg| arg.text(self.row))
    }

    /// Bytes of all texts from one argument on.
    fn texts(&self, from: usize) -> u64 {
        (from..self.args.len()).map(|idx| self.text(idx)).sum()
    }

    fn number(&self, idx: usize) -> Option<i64> {
        self.args.get(idx)?.number(self.row)
    }

    fn count(&self, idx: usize) -> u64 {
        self.number(idx).map_or(0, |count| count.max(0) as u64)
    }
}

fn sum(args: &[Argument], bytes: impl Fn(&Row) -> u64) -> u64 {
    let rows = args.iter().map(Argument::rows).max().unwrap_or(0);
    (0..rows).fold(0, |sum: u64, row| {
        sum.saturating_add(bytes(&Row { args, row }))
    })
}

/// Scalars are repeated for every row; what columns add is no more than they have.
fn repeated_bytes(args: &[Argument]) -> u64 {
    let rows = args.iter().map(Argument::rows).max().unwrap_or(0) as u64;
    let scalars = args.iter().map(|arg| match arg {
        Argument::Scalar { bytes, .. } => *bytes,
        Argument::Array { .. } => 0,
    });
    scalars.sum::<u64>().saturating_mul(rows)
}

/// At most: every piece of `from` bytes that could be replaced is.
fn replaced_bytes(row: &Row, from: u64) -> u64 {
    let (text, to) = (row.text(0), row.text(2));
    let pieces = match from {
        0 => text + 1,
        from => text / from,
    };
    text.saturating_add(pieces.saturating_mul(to.saturating_sub(from)))
}

/// `range(stop)`, `range(start, stop)` or `range(start, stop, step)` of numbers or points in time.
fn series_bytes(row: &Row) -> u64 {
    let (start, stop) = match row.args.len() {
        1 => (Some(0), row.number(0)),
        _ => (row.number(0), row.number(1)),
    };
    let step = match row.args.len() {
        0..=2 => Some(1),
        _ => row.number(2),
    };
    match (start, stop, step) {
        (Some(start), Some(stop), Some(step)) => {
            let count = start.abs_diff(stop) / step.unsigned_abs().max(1);
            count.saturating_mul(8)
        }
        _ => 0,
    }
}
