//! Removes what the catalog does not name: leftovers of a crash.

use std::collections::BTreeSet;
use std::path::Path;

use crate::catalog::TableRow;
use crate::error::Result;
use crate::folder::{file_name, read_folder, remove_folder};
use crate::index::file::IndexPaths;

/// Removes from the `data` folder what no table of the catalog has.
pub fn sweep(data: &Path, rows: &[TableRow]) -> Result<()> {
    for entry in read_folder(data)? {
        let name = file_name(&entry);
        match rows.iter().find(|row| row.folder == name) {
            None => remove_folder(&entry),
            Some(row) => sweep_table(&entry, row)?,
        }
    }
    Ok(())
}

fn sweep_table(folder: &Path, row: &TableRow) -> Result<()> {
    let known = |path: &Path, suffix: &str| {
        let name = file_name(path);
        let number = name
            .strip_suffix(suffix)
            .and_then(|stem| stem.parse::<u64>().ok());
        number.is_some_and(|number| row.files.iter().any(|file| file.number == number))
    };
    for entry in read_folder(folder)? {
        if file_name(&entry) == "elf" {
            sweep_indexes(&entry, row)?;
        } else if entry.is_dir() {
            for sums in read_folder(&entry)?
                .into_iter()
                .filter(|path| !known(path, ".crc"))
            {
                std::fs::remove_file(sums).ok();
            }
        } else if !known(&entry, ".vortex") {
            std::fs::remove_file(entry).ok();
        }
    }
    Ok(())
}

/// Removes index files that the catalog does not name.
fn sweep_indexes(folder: &Path, row: &TableRow) -> Result<()> {
    let known: BTreeSet<String> = row
        .indexes
        .iter()
        .flat_map(|index| {
            let files = index.files.iter();
            files.map(|(number, _)| IndexPaths::new(folder, *number, index.definition.id).name())
        })
        .collect();
    for entry in read_folder(folder)? {
        if !known.contains(&file_name(&entry)) {
            std::fs::remove_file(entry).ok();
        }
    }
    Ok(())
}
