//! How a value that does not fit is named.

/// What does not fit, without the type: a value, or all of a column; `$1` is a parameter.
pub(super) fn misfit(column: &str, row: Option<u64>, value: Option<&str>) -> String {
    let row = row.map(|row| format!("row {row}, ")).unwrap_or_default();
    let place = match column.starts_with('$') {
        true => format!("parameter {column}"),
        false => format!("column '{column}'"),
    };
    match value {
        Some(value) => format!("{row}{place}: '{value}' does not fit type"),
        None => format!("{place} cannot become type"),
    }
}
