//! Files and folders of a database: their names, and what makes and removes them.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::catalog::TableRow;
use crate::error::{Result, StoreError};

/// Makes the names in a folder durable.
pub fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(StoreError::io("sync", folder))
}

/// What a folder holds.
pub fn read_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(StoreError::io("list", folder))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// Removes a folder and what it holds. Failing to is harmless: opening the database tries again.
pub fn remove_folder(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "cannot remove a folder; opening the database again will try once more");
    }
}

/// Removes a folder in which a thread may still make files: what appears meanwhile is removed in the next round.
pub fn remove_busy_folder(folder: &Path) {
    const ROUNDS_MAX: usize = 20;
    for _ in 0..ROUNDS_MAX {
        if std::fs::remove_dir_all(folder).is_ok() || !folder.exists() {
            return;
        }
    }
    remove_folder(folder);
}

/// The last part of a path.
pub fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The highest number in a table's files and folder name.
pub fn highest_number(row: &TableRow) -> u64 {
    let folder = row
        .folder
        .rsplit('-')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0);
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

/// A folder name that shows the table's name, whatever characters it has, and is new.
pub fn folder_name(table: &str, number: u64) -> String {
    let slug: String = table
        .chars()
        .take(40)
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    format!("{slug}-{number}")
}
