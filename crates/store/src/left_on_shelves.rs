//! What kills have left on shelves: copies that did not get their name, and files that the journal or a link elsewhere
//! says are no longer needed. Only folders that this database made are looked at, on shelves that tables are on now.

use std::collections::BTreeSet;
use std::path::Path;

use crate::catalog::entries::{Journal, TableRow};
use crate::folder::file_name;
use crate::links::{away, remove_file};
use crate::root::Root;
use crate::sweep::{is_leftover, is_of_journal, numbers_in};

/// Removes what is left on the shelves. What cannot be listed or removed stays.
pub(crate) fn sweep_shelves(root: &Root, rows: &[TableRow], journal: &Journal) {
    let shelves = rows.iter().filter_map(|row| row.placement.folder());
    let shelves: BTreeSet<&Path> = shelves.collect();
    for own in shelves.into_iter().filter_map(|shelf| root.on_shelf(shelf)) {
        for folder in root.list(&own).unwrap_or_default() {
            let name = file_name(&folder);
            let row = rows.iter().find(|row| row.folder == name);
            for file in root.list(&folder).unwrap_or_default() {
                let is_left = match row {
                    Some(row) => is_left(root, row, journal, &file),
                    None => is_of_journal(&name, journal),
                };
                if is_left {
                    remove_file(root, &file);
                }
            }
        }
    }
}

/// Whether a file on a shelf, in the folder of a table, is none of the table's.
fn is_left(root: &Root, row: &TableRow, journal: &Journal, file: &Path) -> bool {
    let name = file_name(file);
    let numbers = numbers_in(&name);
    let [number] = numbers[..] else {
        return false;
    };
    if name.ends_with(".tmp") {
        return true;
    }
    let is_known = row.files.iter().any(|file| file.number == number);
    match is_known {
        // Its name may lead elsewhere: a move had not ended.
        true => {
            let known = root.table(&row.folder).join(&name);
            root.open_file(&known).is_ok() && away(root, &known).as_deref() != Some(file)
        }
        false => is_leftover(&numbers, &row.folder, journal),
    }
}
