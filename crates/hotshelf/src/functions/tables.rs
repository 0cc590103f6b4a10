//! The tables and their shelves.

use std::sync::Arc;

use hotshelf_store::placement::Placement;

use super::listing::{Columns, Listing};
use crate::storage::Storage;
use crate::table::Table;

/// A table and where it is.
struct TableRow {
    table: Arc<Table>,
    placement: Arc<Placement>,
}

/// One row per table.
pub(super) fn tables(storage: &Storage) -> Columns {
    let row = |table: Arc<Table>| TableRow {
        placement: storage.opener.shelves().placement(&table.folder),
        table,
    };
    let rows = storage.all_tables().into_iter().map(row);
    Listing::of(rows.collect())
        .text("table_name", |row| row.table.name.clone())
        .count("files", |row| row.table.files.len() as u64)
        .count("rows", |row| row.table.row_count())
        .count("bytes", |row| row.table.file_bytes())
        .text("shelf", |row| row.placement.shelf.to_string())
        .text("shelf_columns", |row| match row.placement.is_file() {
            true => None,
            false if row.placement.columns.is_empty() => Some("all".to_owned()),
            false => Some(row.placement.columns.join(", ")),
        })
        .count("shelf_bytes", |row| {
            let files = row.table.files.iter();
            files.map(|file| file.bytes_on_shelf()).sum::<u64>()
        })
        .columns()
}
