//! What is expected of the values of one column, and of the rows that have it.

use arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue};

/// The share of rows that is assumed where nothing is known: of a comparison, an equality, a pattern that begins with
/// text, another pattern.
pub(crate) const COMPARISON: f64 = 1.0 / 3.0;
pub(crate) const EQUALITY: f64 = 0.1;
pub(crate) const PREFIX: f64 = 0.05;
pub(crate) const PATTERN: f64 = 0.1;
/// Predicates are seldom independent: of those after the strictest, these powers of their shares count.
const POWERS: [f64; 4] = [1.0, 0.75, 0.5, 0.25];

/// A column with at least this share of its table's rows as distinct values is a key; sketches err by 3 %.
const KEY_SHARE: f64 = 0.9;

/// The values of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ColumnEstimate {
    /// How many values it could have: those of its table, less what predicates on the column itself exclude.
    pub domain: f64,
    /// How many it has among the rows.
    pub distinct: f64,
    /// The share of NULLs.
    pub nulls: f64,
    /// The least and greatest value, where values are numbers or dates.
    pub bounds: Option<(f64, f64)>,
    /// Whether all values between the bounds are whole numbers.
    pub is_whole: bool,
    /// Whether a value of its table is known to occur twice.
    pub repeats: bool,
    /// Whether no value occurs twice among the rows, NULL aside, for sure.
    pub is_unique: bool,
    /// Whether bounds and NULLs are those that a table has there, for sure.
    pub is_plain: bool,
}

impl ColumnEstimate {
    /// A column of which nothing is known but its rows.
    pub fn unknown(rows: f64) -> Self {
        Self {
            domain: rows.max(1.0),
            distinct: rows.max(1.0),
            nulls: 0.0,
            bounds: None,
            is_whole: false,
            repeats: false,
            is_unique: false,
            is_plain: false,
        }
    }

    /// The same of values that are computed from it.
    pub fn computed(self) -> Self {
        Self {
            is_unique: false,
            is_plain: false,
            ..self
        }
    }

    /// A column of a table with this many rows.
    pub fn of_table(statistics: &ColumnStatistics, data_type: &DataType, rows: f64) -> Self {
        let nulls = statistics.null_count.get_value().copied().unwrap_or(0) as f64;
        let filled = (rows - nulls).max(1.0);
        let sketched = statistics.distinct_count.get_value().map(|n| *n as f64);
        let low = statistics.min_value.get_value().and_then(number);
        let high = statistics.max_value.get_value().and_then(number);
        let bounds = low.zip(high).filter(|(low, high)| low <= high);
        let is_whole = is_whole(data_type);
        let most = match bounds {
            Some((low, high)) if is_whole => filled.min(high - low + 1.0),
            _ => filled,
        };
        let distinct = match sketched {
            Some(distinct) if distinct < most * KEY_SHARE => distinct.max(1.0),
            _ => most,
        };
        Self {
            domain: distinct,
            distinct,
            nulls: (nulls / rows.max(1.0)).min(1.0),
            bounds,
            is_whole,
            repeats: false,
            is_unique: false,
            is_plain: [&statistics.min_value, &statistics.max_value]
                .iter()
                .all(|bound| matches!(bound, Precision::Exact(_)))
                && matches!(statistics.null_count, Precision::Exact(_)),
        }
    }

    /// The column where its rows are this share of those before, chosen by something else.
    pub fn thinned(self, share: f64, rows_before: f64) -> Self {
        let share = share.clamp(0.0, 1.0);
        let rows_per_value = (rows_before / self.distinct.max(1.0)).max(1.0);
        let kept = 1.0 - (1.0 - share).powf(rows_per_value);
        Self {
            distinct: (self.distinct * kept).max(1.0),
            ..self
        }
    }

    /// The column with this many possible values.
    pub fn with_values(self, values: f64) -> Self {
        Self {
            domain: self.domain.min(values).max(1.0),
            distinct: self.distinct.min(values).max(1.0),
            nulls: 0.0,
            ..self
        }
    }

    /// The column with values of a range alone, and which share of its values that is; `None` where bounds are unknown.
    pub fn within(self, low: f64, high: f64) -> Option<(Self, f64)> {
        let (least, greatest) = self.bounds?;
        let (from, to) = (low.max(least), high.min(greatest));
        let unit = if self.is_whole { 1.0 } else { 0.0 };
        let width = (greatest - least + unit).max(f64::MIN_POSITIVE);
        let share = match from <= to {
            true => ((to - from + unit) / width).clamp(1.0 / self.domain.max(1.0), 1.0),
            false => 0.0,
        };
        let narrowed = Self {
            bounds: Some((from, to.max(from))),
            ..self.with_values(self.domain * share)
        };
        Some((narrowed, share))
    }

    /// Values that it can have in common with another column: whole numbers outside of the other's bounds have no
    /// partner.
    pub fn common_domain(&self, other: &Self) -> f64 {
        let are_whole = self.is_whole && other.is_whole;
        let bounds = self.bounds.zip(other.bounds).filter(|_| are_whole);
        common_values(self.domain, bounds)
    }
}

/// A range of numbers: the least and the greatest.
type Bounds = (f64, f64);

/// How many of this many values are possible where all are whole numbers within both of two ranges.
pub(crate) fn common_values(values: f64, bounds: Option<(Bounds, Bounds)>) -> f64 {
    let within = bounds.map(|(mine, theirs)| mine.1.min(theirs.1) - mine.0.max(theirs.0) + 1.0);
    within.map_or(values, |within| values.min(within.max(1.0)))
}

fn is_whole(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Date32)
}

/// A value as a number, if it is one or a point in time.
pub(crate) fn number(value: &ScalarValue) -> Option<f64> {
    let decimal = |value: f64, scale: i8| value / 10f64.powi(i32::from(scale));
    match value {
        ScalarValue::Int8(value) => value.map(f64::from),
        ScalarValue::Int16(value) => value.map(f64::from),
        ScalarValue::Int32(value) | ScalarValue::Date32(value) => value.map(f64::from),
        ScalarValue::Int64(value) | ScalarValue::Date64(value) => value.map(|value| value as f64),
        ScalarValue::UInt8(value) => value.map(f64::from),
        ScalarValue::UInt16(value) => value.map(f64::from),
        ScalarValue::UInt32(value) => value.map(f64::from),
        ScalarValue::UInt64(value) => value.map(|value| value as f64),
        ScalarValue::Float32(value) => value.map(f64::from),
        ScalarValue::Float64(value) => *value,
        ScalarValue::Decimal32(value, _, scale) => value.map(|value| decimal(value.into(), *scale)),
        ScalarValue::Decimal64(value, _, scale) => value.map(|value| decimal(value as f64, *scale)),
        ScalarValue::Decimal128(value, _, scale) => {
            value.map(|value| decimal(value as f64, *scale))
        }
        ScalarValue::TimestampSecond(value, _)
        | ScalarValue::TimestampMillisecond(value, _)
        | ScalarValue::TimestampMicrosecond(value, _)
        | ScalarValue::TimestampNanosecond(value, _) => value.map(|value| value as f64),
        _ => None,
    }
    .filter(|value| value.is_finite())
}

/// The share of rows that pass all of some predicates.
pub(crate) fn together(mut shares: Vec<f64>) -> f64 {
    shares.sort_by(f64::total_cmp);
    let powers = POWERS.iter().chain(std::iter::repeat(&0.0));
    let shares = shares.iter().zip(powers);
    shares.map(|(share, power)| share.powf(*power)).product()
}
