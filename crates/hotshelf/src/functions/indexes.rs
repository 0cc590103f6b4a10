//! The indexes of the tables, their Elfs in memory, and the merging of files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::listing::{Columns, Listing};
use crate::index::{IndexFile, Stretch, TableIndex};
use crate::storage::Storage;
use crate::table::Table;

/// An index and its table.
struct IndexRow<'a> {
    table: &'a Table,
    index: &'a TableIndex,
}

impl IndexRow<'_> {
    /// The files that can be used.
    fn files(&self) -> impl Iterator<Item = &Arc<IndexFile>> {
        let files = self.index.files.values();
        files.filter_map(|file| file.as_ref().ok())
    }

    fn row_count(&self) -> u64 {
        let stretches = self.files().flat_map(|file| &file.stretches);
        stretches.map(row_count).sum()
    }
}

fn row_count(stretch: &Stretch) -> u64 {
    stretch.rows.end - stretch.rows.start
}

/// One row per index.
pub(super) fn indexes(storage: &Storage) -> Columns {
    let tables = storage.opened_tables();
    let rows = tables.iter().flat_map(|table| {
        let indexes = table.indexes.iter();
        indexes.map(|index| IndexRow { table, index })
    });
    Listing::of(rows.collect())
        .text("index_name", |row| row.index.definition.name.clone())
        .text("table_name", |row| row.table.name.clone())
        .text("kind", |_| "elf".to_owned())
        .text("columns", |row| {
            row.index.column_names(&row.table.schema).join(", ")
        })
        .flag("clustered", |row| row.index.definition.clustered)
        .count("files", |row| row.table.files.len() as u64)
        .count("indexed_files", |row| row.files().count() as u64)
        .count("rows", IndexRow::row_count)
        .count("bytes", |row| {
            row.files().map(|file| file.file_bytes()).sum::<u64>()
        })
        .text("damage", |row| row.index.damage().map(ToString::to_string))
        .columns()
}

/// An Elf of an index file.
struct ElfRow<'a> {
    index_name: &'a str,
    file: u64,
    stretch_idx: usize,
    stretch: &'a Stretch,
    clustered: bool,
}

/// One row per Elf, with the store's counters in every row.
pub(super) fn elfs(storage: &Storage) -> Columns {
    let tables = storage.opened_tables();
    let mut rows = Vec::new();
    for index in tables.iter().flat_map(|table| &table.indexes) {
        for (number, file) in &index.files {
            let Ok(file) = file else { continue };
            for (stretch_idx, stretch) in file.stretches.iter().enumerate() {
                rows.push(ElfRow {
                    index_name: &index.definition.name,
                    file: *number,
                    stretch_idx,
                    stretch,
                    clustered: file.clustered,
                });
            }
        }
    }
    let elfs = &storage.elfs;
    Listing::of(rows)
        .text("index_name", |row| row.index_name.to_owned())
        .count("file", |row| row.file)
        .count("stretch", |row| row.stretch_idx as u64)
        .count("rows", |row| row_count(row.stretch))
        .flag("clustered", |row| row.clustered)
        .count("bytes", |row| row.stretch.file_bytes())
        .count("head_bytes", |row| row.stretch.head_bytes())
        .flag("resident", |row| elfs.is_resident(row.stretch))
        .count("resident_bytes", |_| elfs.resident_bytes())
        .count("limit_bytes", |_| elfs.limit_bytes())
        .count("reads", |_| elfs.read_count.load(Ordering::Relaxed))
        .count("read_bytes", |_| elfs.read_bytes.load(Ordering::Relaxed))
        .count("evictions", |_| elfs.evict_count.load(Ordering::Relaxed))
        .count("queries", |_| elfs.query_count.load(Ordering::Relaxed))
        .columns()
}

/// One row per merge of small files in the background, oldest first.
pub(super) fn merges(storage: &Storage) -> Columns {
    Listing::of(storage.merging.log())
        .text("table_name", |row| row.table.clone())
        .real("seconds", |row| row.seconds)
        .count("files_before", |row| row.files_before as u64)
        .count("files_after", |row| row.files_after as u64)
        .count("rows", |row| row.rows)
        .text("error", |row| row.error.clone())
        .columns()
}
