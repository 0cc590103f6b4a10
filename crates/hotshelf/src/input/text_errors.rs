//! What Arrow's readers of text say about a file, in plainer words.

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

/// `Expected 4 records, found 2 records at line 66` in plainer words.
pub(super) fn uneven(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("Expected ")?;
    let (expected, rest) = rest.split_once(" records, found ")?;
    let (found, line) = rest.split_once(" records at line ")?;
    Some(format!(
        "line {line} has {found} fields instead of {expected}"
    ))
}

/// What a CSV reader says, without the names of its layers.
pub(super) fn plain(error: &ArrowError) -> String {
    match error {
        ArrowError::CsvError(text) | ArrowError::JsonError(text) | ArrowError::ParseError(text) => {
            text.trim_start_matches("Csv error: ").to_owned()
        }
        other => other.to_string(),
    }
}

/// `Error while parsing value 'x' as type 'Int64' for column 0 at line 5. Row data: '[x,oops]'` in plainer words.
/// Lines count from 0, or the line of names.
pub(super) fn csv_value_error(
    text: &str,
    own: &SchemaRef,
    place: &dyn Fn(u64) -> String,
    header: bool,
) -> Option<String> {
    let (_, rest) = text.split_once("Error while parsing value '")?;
    let (value, rest) = rest.split_once("' as type '")?;
    let (data_type, rest) = rest.split_once("' for column ")?;
    let (column, rest) = rest.split_once(" at line ")?;
    let line: u64 = rest.split('.').next()?.trim().parse().ok()?;
    let field = own.fields().get(column.parse::<usize>().ok()?)?;
    Some(format!(
        "{}, column '{}': '{}' is not a value of type {data_type}",
        place(line + u64::from(!header)),
        field.name(),
        shortened(value),
    ))
}

/// `incorrect number of fields for line 3, expected 2 got 1` in plainer words.
pub(super) fn csv_fields_error(
    text: &str,
    place: &dyn Fn(u64) -> String,
    header: bool,
) -> Option<String> {
    let (_, rest) = text.split_once("incorrect number of fields for line ")?;
    let (line, rest) = rest.split_once(", expected ")?;
    let (expected, found) = rest.split_once(" got ")?;
    let line: u64 = line.parse().ok()?;
    let row = line.saturating_sub(u64::from(header));
    Some(format!(
        "{} has {found} fields instead of {expected}",
        place(row)
    ))
}

fn shortened(value: &str) -> String {
    let mut short: String = value.chars().take(60).collect();
    if short.len() < value.len() {
        short.push('…');
    }
    short
}
