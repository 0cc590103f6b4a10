//! Casts that lose nothing: a value that does not fit the wanted type is found and named.
//!
//! Between approximate types (floats) rounding is accepted and only overflow is not.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{CastOptions, can_cast_types, cast, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::written::{
    digits_behind_point, digits_of_decimals, is_whole_day, plain_numbers, second_digits,
};
use crate::error::Error;
use crate::error::hint::NOT_NULL;

/// Why a column cannot be cast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// A value has no equal in the wanted type.
    Value {
        /// Its row in the array.
        row: usize,
        /// The value as text.
        value: String,
    },
    /// No cast leads from the one type to the other.
    Type,
}

impl Misfit {
    /// The misfit as an error of a file's column; `rows_before` are the rows of the file before the array.
    pub fn in_file(
        self,
        path: &Path,
        column: &str,
        want: &DataType,
        rows_before: Option<u64>,
    ) -> Error {
        let (row, value) = match self {
            Self::Value { row, value } => (
                rows_before.map(|before| before + row as u64 + 1),
                Some(value),
            ),
            Self::Type => (None, None),
        };
        Error::Misfit {
            input: path.display().to_string(),
            column: column.to_owned(),
            row,
            value,
            data_type: want.to_string(),
        }
    }

    /// The misfit as an error of a statement; the column is one of its table, or a parameter.
    pub fn in_statement(self, input: String, column: &str, want: &DataType) -> Error {
        Error::Misfit {
            input,
            column: column.to_owned(),
            row: None,
            value: match self {
                Self::Value { value, .. } => Some(value),
                Self::Type => None,
            },
            data_type: want.to_string(),
        }
    }
}

/// A NULL of an INSERT for a column that has none.
pub(crate) fn null_in_insert(table: &str, column: &str, want: &DataType) -> Error {
    Error::Misfit {
        input: format!("INSERT INTO {table}"),
        column: column.to_owned(),
        row: None,
        value: Some("NULL".into()),
        data_type: format!("{want}{NOT_NULL}"),
    }
}

/// Casts an array; fails with the first value that the wanted type cannot hold.
pub(crate) fn exact_cast(array: &ArrayRef, want: &DataType) -> Result<ArrayRef, Misfit> {
    if array.data_type() == want {
        return Ok(array.clone());
    }
    if let DataType::Dictionary(_, values) = array.data_type() {
        let plain = cast(array, values).map_err(|_| Misfit::Type)?;
        return exact_cast(&plain, want);
    }
    if !can_cast_types(array.data_type(), want) {
        return Err(Misfit::Type);
    }
    let with_types = with_types_of_nulls(array.data_type(), want);
    if with_types != *array.data_type() {
        let typed = cast(array, &with_types).map_err(|_| Misfit::Type)?;
        return exact_cast(&typed, want);
    }
    let plain = plain_numbers(array, want).or_else(|| digits_of_decimals(array, want));
    let source = plain.as_ref().unwrap_or(array);
    let done = lenient(source, want)?;
    let lost = first_lost(source, &done).or_else(|| match loss_of(source.data_type(), want) {
        Loss::None => None,
        Loss::Visible => first_changed(source, &done),
        Loss::Overflow => first_infinite(source, &done),
        Loss::Digits(scale) => {
            first_text(source, |text| digits_behind_point(text) > i64::from(scale))
        }
        Loss::Seconds(digits) => first_text(source, |text| second_digits(text) > digits),
        Loss::Time => first_text(source, |text| !is_whole_day(text)),
    });
    match lost {
        None => Ok(done),
        Some(row) => Err(Misfit::Value {
            row,
            value: text_of(array, row),
        }),
    }
}

/// The type with those that are wanted in place of NULLs inside it, which have none: casting back would fail.
fn with_types_of_nulls(have: &DataType, want: &DataType) -> DataType {
    let inside = |have: &FieldRef, want: &FieldRef| {
        let field = have.as_ref().clone();
        Arc::new(field.with_data_type(match have.data_type() {
            DataType::Null => want.data_type().clone(),
            other => with_types_of_nulls(other, want.data_type()),
        }))
    };
    match (have, want) {
        (DataType::Struct(fields), DataType::Struct(wanted)) => {
            let typed = fields.iter().map(|field| {
                let same = wanted.iter().find(|other| other.name() == field.name());
                same.map_or_else(|| Arc::clone(field), |other| inside(field, other))
            });
            DataType::Struct(typed.collect())
        }
        (DataType::List(item), DataType::List(wanted)) => DataType::List(inside(item, wanted)),
        (DataType::Map(entry, sorted), DataType::Map(wanted, _)) => {
            DataType::Map(inside(entry, wanted), *sorted)
        }
        _ => have.clone(),
    }
}

/// What a cast may lose that does not show as a NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    None,
    /// Casting back gives another value.
    Visible,
    /// A finite number becomes infinite.
    Overflow,
    /// A text has more digits behind the point than this many.
    Digits(i8),
    /// A text has more digits behind its seconds than this many.
    Seconds(usize),
    /// A text has a time behind its day.
    Time,
}

fn loss_of(have: &DataType, want: &DataType) -> Loss {
    let is_text = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        )
    };
    let is_number = |data_type: &DataType| data_type.is_numeric() && !data_type.is_floating();
    if have.is_nested() || want.is_nested() {
        return Loss::Visible;
    }
    if is_text(have) {
        return match want {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => Loss::Digits(*scale),
            DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => {
                Loss::Seconds(digits_of(*unit))
            }
            DataType::Date64 => Loss::Seconds(digits_of(TimeUnit::Millisecond)),
            DataType::Date32 => Loss::Time,
            float if float.is_floating() => Loss::Overflow,
            _ => Loss::None,
        };
    }
    if is_text(want) || have.is_null() {
        return Loss::None;
    }
    if want.is_floating() {
        return match have.is_integer() {
            true => Loss::Visible,
            false => Loss::Overflow,
        };
    }
    if have.is_integer() && is_number(want) {
        return Loss::None;
    }
    if have.is_numeric() || have.is_temporal() {
        return Loss::Visible;
    }
    Loss::None
}

/// Digits behind the seconds that a unit has.
fn digits_of(unit: TimeUnit) -> usize {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

fn lenient(array: &ArrayRef, want: &DataType) -> Result<ArrayRef, Misfit> {
    let options = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    match cast_with_options(array, want, &options) {
        Ok(done) => Ok(done),
        // Some casts fail as a whole instead of giving NULLs: find the row.
        Err(_) => {
            let fails =
                |row: &usize| cast_with_options(&array.slice(*row, 1), want, &options).is_err();
            let row = (0..array.len()).find(fails).ok_or(Misfit::Type)?;
            Err(Misfit::Value {
                row,
                value: text_of(array, row),
            })
        }
    }
}

/// The first row whose value became NULL.
fn first_lost(array: &ArrayRef, done: &ArrayRef) -> Option<usize> {
    if done.logical_null_count() == array.logical_null_count() {
        return None;
    }
    let (before, after) = (array.logical_nulls(), done.logical_nulls());
    let is_null = |nulls: &Option<arrow::buffer::NullBuffer>, row| {
        nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    };
    (0..array.len()).find(|row| !is_null(&before, *row) && is_null(&after, *row))
}

/// The first row that is another value after casting back.
fn first_changed(array: &ArrayRef, done: &ArrayRef) -> Option<usize> {
    let Ok(back) = lenient(done, array.data_type()) else {
        return (!array.is_empty()).then_some(0);
    };
    if array.data_type().is_nested() {
        return (0..array.len())
            .find(|row| array.slice(*row, 1).as_ref() != back.slice(*row, 1).as_ref());
    }
    let changed = distinct(&array.as_ref(), &back.as_ref()).ok()?;
    first_true(&changed).and_then(|first| {
        let differs = |row: &usize| changed.value(*row) && !is_negative_zero(array, *row);
        (first..array.len()).find(differs)
    })
}

fn first_true(flags: &BooleanArray) -> Option<usize> {
    flags.values().set_indices().next()
}

fn is_negative_zero(array: &ArrayRef, row: usize) -> bool {
    use arrow::datatypes::{Float32Type, Float64Type};
    let double = array
        .as_primitive_opt::<Float64Type>()
        .map(|values| values.value(row));
    let single = array
        .as_primitive_opt::<Float32Type>()
        .map(|values| f64::from(values.value(row)));
    double.or(single).is_some_and(|value| value == 0.0)
}

fn first_infinite(array: &ArrayRef, done: &ArrayRef) -> Option<usize> {
    use arrow::datatypes::Float64Type;
    let wide = |array: &ArrayRef| cast(array, &DataType::Float64).ok();
    let (before, after) = (wide(array)?, wide(done)?);
    let (before, after) = (
        before.as_primitive::<Float64Type>(),
        after.as_primitive::<Float64Type>(),
    );
    let overflows = |row: &usize| {
        after.is_valid(*row) && after.value(*row).is_infinite() && before.value(*row).is_finite()
    };
    (0..after.len()).find(overflows)
}

/// The first row whose text says more than a cast keeps.
fn first_text(array: &ArrayRef, says_more: impl Fn(&str) -> bool) -> Option<usize> {
    let texts = cast(array, &DataType::Utf8View).ok()?;
    let texts = texts.as_string_view();
    (0..texts.len()).find(|row| texts.is_valid(*row) && says_more(texts.value(*row)))
}

fn text_of(array: &ArrayRef, row: usize) -> String {
    let options = FormatOptions::default().with_display_error(true);
    let text = ArrayFormatter::try_new(array.as_ref(), &options)
        .map(|formatter| formatter.value(row).to_string())
        .unwrap_or_default();
    let mut shortened: String = text.chars().take(60).collect();
    if shortened.len() < text.len() {
        shortened.push('…');
    }
    shortened
}

/// A column of NULLs.
pub(crate) fn nulls(data_type: &DataType, row_count: usize) -> ArrayRef {
    arrow::array::new_null_array(data_type, row_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    use arrow::array::{
        Date32Array, Decimal128Array, Float32Array, Float64Array, Int64Array, StringArray,
        TimestampNanosecondArray,
    };

    fn cast_of(array: impl Array + 'static, want: DataType) -> Result<ArrayRef, Misfit> {
        exact_cast(&(Arc::new(array) as ArrayRef), &want)
    }

    fn lost(row: usize, value: &str) -> Option<Misfit> {
        Some(Misfit::Value {
            row,
            value: value.into(),
        })
    }

    #[test]
    fn whole_floats_become_integers_and_others_are_named() {
        let floats = |values: &[f64]| Float64Array::from(values.to_vec());
        assert!(cast_of(floats(&[2.0, -0.0, 1e9]), DataType::Int32).is_ok());
        assert_eq!(
            cast_of(floats(&[2.0, 0.5]), DataType::Int32).err(),
            lost(1, "0.5")
        );
        assert_eq!(
            cast_of(floats(&[1e10]), DataType::Int32).err(),
            lost(0, "10000000000.0")
        );
        assert_eq!(
            cast_of(floats(&[f64::NAN]), DataType::Int64).err(),
            lost(0, "NaN")
        );
        assert!(cast_of(floats(&[0.1]), DataType::Float32).is_ok());
        assert_eq!(
            cast_of(floats(&[1.0, 1e300]), DataType::Float32).err(),
            lost(1, "1e300")
        );
    }

    #[test]
    fn integers_that_overflow_or_round_are_named() {
        let ints = |value: i64| Int64Array::from(vec![Some(1), None, Some(value)]);
        assert_eq!(
            cast_of(ints(1 << 40), DataType::Int32).err(),
            lost(2, "1099511627776")
        );
        assert_eq!(
            cast_of(ints((1 << 53) + 1), DataType::Float64).err(),
            lost(2, "9007199254740993")
        );
        assert!(cast_of(ints(1 << 53), DataType::Float64).is_ok());
        assert_eq!(cast_of(ints(5), DataType::Boolean).err(), lost(2, "5"));
    }

    #[test]
    fn decimals_keep_their_digits() {
        let decimal = Decimal128Array::from(vec![1250, 1255])
            .with_precision_and_scale(10, 3)
            .unwrap();
        assert_eq!(
            cast_of(decimal, DataType::Decimal128(10, 2)).err(),
            lost(1, "1.255")
        );
        let texts = StringArray::from(vec!["1.50", "-0.2", "0.0100", "7"]);
        assert!(cast_of(texts, DataType::Decimal128(10, 2)).is_ok());
        assert_eq!(
            cast_of(
                StringArray::from(vec!["1.505"]),
                DataType::Decimal128(10, 2)
            )
            .err(),
            lost(0, "1.505")
        );
        assert_eq!(
            cast_of(
                Float64Array::from(vec![0.25, 0.125]),
                DataType::Decimal128(10, 2)
            )
            .err(),
            lost(1, "0.125")
        );
    }

    #[test]
    fn floats_become_the_decimals_that_they_are_shown_as() {
        let shown = |array: ArrayRef, precision, scale| {
            let decimal = exact_cast(&array, &DataType::Decimal128(precision, scale));
            decimal.map(|decimal| text_of(&decimal, 0))
        };
        let double = |value: f64| -> ArrayRef { Arc::new(Float64Array::from(vec![value])) };
        for (value, precision, scale, expected) in [
            (4294967295.0, 38, 10, "4294967295.0000000000"),
            (9007199254740994.0, 18, 1, "9007199254740994.0"),
            (-0.0, 5, 2, "0.00"),
            (1e-5, 10, 5, "0.00001"),
            (1e37, 38, 0, "10000000000000000000000000000000000000"),
        ] {
            let decimal = shown(double(value), precision, scale);
            assert_eq!(decimal.as_deref(), Ok(expected), "{value}");
        }
        let single: ArrayRef = Arc::new(Float32Array::from(vec![999.99]));
        assert_eq!(shown(single, 15, 5).as_deref(), Ok("999.99000"));
        for value in [1e38, 1e-6, 0.1 + 0.2, f64::NAN, f64::INFINITY, 5e-324] {
            assert!(shown(double(value), 38, 5).is_err(), "{value}");
        }
    }

    #[test]
    fn texts_with_exponents_become_decimals_that_are_exact() {
        let cast = |text: &str| {
            let cast = cast_of(StringArray::from(vec![text]), DataType::Decimal128(12, 2));
            cast.map(|decimal| text_of(&decimal, 0))
        };
        assert_eq!(cast("1e9").as_deref(), Ok("1000000000.00"));
        assert_eq!(cast("-125e-2").as_deref(), Ok("-1.25"));
        for text in ["125e-3", "1e10", "e1", "hello"] {
            assert_eq!(cast(text).err(), lost(0, text), "{text}");
        }
    }

    #[test]
    fn texts_of_times_are_not_cut() {
        let cast =
            |text: &str, want: &DataType| cast_of(StringArray::from(vec![text]), want.clone());
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let time = DataType::Time64(TimeUnit::Nanosecond);
        for (text, want) in [
            ("2020-01-01 12:00:00", &DataType::Date32),
            ("2020-01-01 00:00:00.1234567891", &nanos),
            ("10:00:00.1234567891", &time),
        ] {
            assert_eq!(cast(text, want).err(), lost(0, text), "{text}");
        }
        for (text, want) in [
            ("2020-01-01 00:00:00", &DataType::Date32),
            ("2020-01-01 00:00:00.1234567890", &nanos),
            ("10:00:00.1234567890", &time),
        ] {
            assert!(cast(text, want).is_ok(), "{text}");
        }
    }

    #[test]
    fn times_keep_their_precision() {
        let nanos = TimestampNanosecondArray::from(vec![1_000_000_000, 1_000_000_001]);
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        assert!(matches!(
            cast_of(nanos, seconds.clone()),
            Err(Misfit::Value { row: 1, .. })
        ));
        let text = StringArray::from(vec!["2024-01-01T00:00:00.5"]);
        assert!(matches!(
            cast_of(text, seconds.clone()),
            Err(Misfit::Value { row: 0, .. })
        ));
        assert!(cast_of(StringArray::from(vec!["2024-01-01T00:00:05"]), seconds).is_ok());
        assert!(
            cast_of(
                Date32Array::from(vec![1, -5]),
                DataType::Timestamp(TimeUnit::Microsecond, None)
            )
            .is_ok()
        );
        assert_eq!(
            cast_of(
                StringArray::from(vec!["2024-01-01", "soon"]),
                DataType::Date32
            )
            .err(),
            lost(1, "soon")
        );
    }
}
