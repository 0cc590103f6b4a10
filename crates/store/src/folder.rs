//! Names of folders and files.

use std::path::Path;

use crate::catalog::TableRow;

/// The last part of a path.
pub fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The highest number in a table's files and folder name.
pub(crate) fn highest_number(row: &TableRow) -> u64 {
    let folder = trailing_number(&row.folder).unwrap_or(0);
    let indexes = row.indexes.iter();
    let index = indexes.map(|index| index.definition.id as u64).max();
    row.files
        .iter()
        .map(|file| file.number)
        .max()
        .unwrap_or(0)
        .max(folder)
        .max(index.unwrap_or(0))
}

/// The number in the name of a table's folder.
pub(crate) fn trailing_number(folder: &str) -> Option<u64> {
    folder.rsplit('-').next()?.parse().ok()
}

/// A folder name that shows the table's name, whatever characters it has, and is new.
pub fn folder_name(table: &str, number: u64) -> String {
    let slug: String = table
        .chars()
        .take(40)
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    format!("{slug}-{number}")
}
