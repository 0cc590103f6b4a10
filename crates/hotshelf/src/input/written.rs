//! Numbers, dates and times as texts: casts cut what their type has no place for, and some casts of numbers are exact
//! only by way of texts.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type};

/// The largest exponent that is written out, of either sign: no decimal has as many digits.
const EXPONENT_MAX: i32 = 400;

/// Whole numbers of this many digits are doubles.
const DOUBLE_DIGITS: u8 = 15;

/// The texts to cast to a decimal in the place of an array: each float's shortest one, and texts without exponents.
/// None if the array can be cast as it is.
///
/// The cast of floats computes in floats (999.99 becomes 999.98999), that of texts knows no exponents.
pub(super) fn plain_numbers(array: &ArrayRef, want: &DataType) -> Option<ArrayRef> {
    let has_place = match want {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale >= 0,
        _ => false,
    };
    if !has_place {
        return None;
    }
    match array.data_type() {
        DataType::Float64 => Some(shortest(array.as_primitive::<Float64Type>())),
        DataType::Float32 | DataType::Float16 => {
            let singles = cast(array, &DataType::Float32).ok()?;
            Some(shortest(singles.as_primitive::<Float32Type>()))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => without_exponents(array),
        _ => None,
    }
}

/// The texts to cast to a float in the place of decimals: the cast of decimals with more digits than a double rounds
/// twice. None if the array can be cast as it is.
pub(super) fn digits_of_decimals(array: &ArrayRef, want: &DataType) -> Option<ArrayRef> {
    let rounds_twice = match array.data_type() {
        DataType::Decimal64(precision, _)
        | DataType::Decimal128(precision, _)
        | DataType::Decimal256(precision, _) => *precision > DOUBLE_DIGITS,
        _ => false,
    };
    match rounds_twice && want.is_floating() {
        true => cast(array, &DataType::Utf8).ok(),
        false => None,
    }
}

fn shortest<'a, T: std::fmt::Display>(
    values: impl IntoIterator<Item = Option<T>> + 'a,
) -> ArrayRef {
    let mut texts = StringBuilder::new();
    for value in values {
        match value {
            Some(value) => {
                // Writing into a text in memory does not fail.
                let _ = write!(texts, "{value}");
                texts.append_value("");
            }
            None => texts.append_null(),
        }
    }
    std::sync::Arc::new(texts.finish())
}

fn without_exponents(array: &ArrayRef) -> Option<ArrayRef> {
    let texts = cast(array, &DataType::Utf8View).ok()?;
    let texts = texts.as_string_view();
    let has_exponent = |text: &str| text.contains(['e', 'E']);
    if !texts.iter().flatten().any(has_exponent) {
        return None;
    }
    let mut plain = StringBuilder::new();
    for text in texts {
        match text.map(|text| (text, without_exponent(text))) {
            Some((_, Some(number))) => plain.append_value(number),
            Some((text, None)) => plain.append_value(text),
            None => plain.append_null(),
        }
    }
    Some(std::sync::Arc::new(plain.finish()))
}

/// `-1.5e1` as `-15`. None if there is no exponent, or something else than a number.
fn without_exponent(text: &str) -> Option<String> {
    let (number, exponent) = text.trim().split_once(['e', 'E'])?;
    let exponent: i32 = exponent.parse().ok()?;
    let (sign, number) = match number.as_bytes().first()? {
        b'-' => ("-", &number[1..]),
        b'+' => ("", &number[1..]),
        _ => ("", number),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = [whole, fraction].concat();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || exponent.abs() > EXPONENT_MAX {
        return None;
    }
    let point = whole.len() as i64 + i64::from(exponent);
    let zeros_before = "0".repeat(usize::try_from(1 - point).unwrap_or(0));
    let zeros_behind = "0".repeat(usize::try_from(point - digits.len() as i64).unwrap_or(0));
    let digits = [zeros_before.as_str(), &digits, &zeros_behind].concat();
    let (whole, fraction) = digits.split_at(point.max(1) as usize);
    Some(format!("{sign}{whole}.{fraction}"))
}

/// Digits of a decimal text behind the point that are not trailing zeros.
pub(super) fn digits_behind_point(text: &str) -> i64 {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (number, exponent) = (number.trim(), exponent.trim());
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    if !fraction.is_empty() {
        return fraction.len() as i64 - exponent;
    }
    let zeros = whole.len() - whole.trim_end_matches('0').len();
    -(exponent + zeros as i64)
}

/// Digits behind the seconds of a time, without trailing zeros.
pub(super) fn second_digits(text: &str) -> usize {
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let digits = fraction.bytes().take_while(|byte| is_digit(byte)).count();
    fraction[..digits].trim_end_matches('0').len()
}

/// Whether the text of a date says no time but midnight, and no zone but UTC.
pub(super) fn is_whole_day(text: &str) -> bool {
    // A year of more than four digits has a sign, and no time behind its day.
    if text.starts_with(['+', '-']) {
        return true;
    }
    let time = text.get(10..).unwrap_or("");
    let time = time.strip_suffix(['Z', 'z']).unwrap_or(time);
    time.chars().all(|letter| "Tt 0:.".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_written_out() {
        for (text, plain) in [
            ("1e10", Some("10000000000.")),
            ("1.5e1", Some("15.")),
            ("-1.25E+1", Some("-12.5")),
            ("+25e-3", Some("0.025")),
            (".5e0", Some("0.5")),
            ("0e400", Some(&*format!("{}.", "0".repeat(401)))),
            ("1e401", None),
            ("1e", None),
            ("e1", None),
            (".e1", None),
            ("seven", None),
            ("1.5", None),
        ] {
            assert_eq!(without_exponent(text).as_deref(), plain, "{text}");
        }
    }

    #[test]
    fn digits_of_seconds_are_counted_without_zeros() {
        for (text, digits) in [
            ("10:00:00", 0),
            ("10:00:00.500", 1),
            ("2020-01-01 00:00:00.1234567891+02:00", 10),
            ("09:26:56.120 AM", 2),
        ] {
            assert_eq!(second_digits(text), digits, "{text}");
        }
    }

    #[test]
    fn a_date_with_a_time_is_no_whole_day() {
        for text in [
            "2020-01-01",
            "2020-1-1",
            "2020-01-01 00:00:00",
            "2020-01-01T00:00:00.000Z",
            "+10999-12-31",
        ] {
            assert!(is_whole_day(text), "{text}");
        }
        for text in [
            "2020-01-01 12:00:00",
            "2020-01-01 00:00:00.001",
            "2020-01-01T00:00:00+05:00",
        ] {
            assert!(!is_whole_day(text), "{text}");
        }
    }
}
