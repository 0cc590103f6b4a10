//! Names of folders and files, and what lies in the data folder.

use std::path::{Path, PathBuf};

use crate::catalog::entries::TableRow;
use crate::error::{Result, StoreError};
use crate::head::HEAD;
use crate::names_file::{NAMES, NAMES_TEMPORARY};
use crate::root::{CATALOG, Root};

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

/// Whether something in the data folder is not a table.
pub(crate) fn is_beside_tables(name: &str) -> bool {
    matches!(name, HEAD | NAMES | NAMES_TEMPORARY)
}

/// Refuses a catalog that cannot belong to the data beside it.
pub(crate) fn ensure_no_data(root: &Root, found: &'static str) -> Result<()> {
    let entries = root.list(&root.data())?;
    let is_data = |entry: &&PathBuf| !is_beside_tables(&file_name(entry));
    let count = entries.iter().filter(is_data).count();
    if count == 0 {
        return Ok(());
    }
    Err(StoreError::LostCatalog {
        path: root.join(CATALOG),
        found,
        entry_count: count,
    })
}
