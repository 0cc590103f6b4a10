//! The indexes of the tables, their Elfs in memory, and the merging of files.

use std::sync::Arc;

use hotshelf_store::index::blocks::{BlockStats, BlockStore};

use super::listing::{Columns, Listing};
use crate::index::{IndexCache, IndexFile, Stretch, TableIndex};
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
    cache: IndexCache,
    shelf: String,
    is_copied: bool,
    /// Where the blocks of the index are, perhaps with those of others.
    blocks: Arc<BlockStore>,
    stats: BlockStats,
}

/// One row per Elf, with what was counted where its blocks are.
pub(super) fn elfs(storage: &Storage) -> Columns {
    let tables = storage.opened_tables();
    let mut rows = Vec::new();
    for index in tables.iter().flat_map(|table| &table.indexes) {
        let blocks = storage.elfs.blocks_of(index.definition.id);
        let stats = blocks.stats();
        for (number, file) in &index.files {
            let Ok(file) = file else { continue };
            for (stretch_idx, stretch) in file.stretches.iter().enumerate() {
                rows.push(ElfRow {
                    index_name: &index.definition.name,
                    file: *number,
                    stretch_idx,
                    stretch,
                    clustered: file.clustered,
                    cache: index.definition.cache,
                    shelf: index.definition.shelf.to_string(),
                    is_copied: file.is_copied(),
                    blocks: blocks.clone(),
                    stats,
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
        .flag("head_resident", |row| elfs.has_head(row.stretch))
        .count("head_levels", |row| {
            elfs.upper_level_count(row.stretch).unwrap_or(0) as u64
        })
        .count("held_bytes", |row| {
            row.blocks.held_bytes_of(row.stretch.key)
        })
        .text("cache", |row| row.cache.word())
        .text("shelf", |row| row.shelf.clone())
        .flag("on_shelf", |row| row.is_copied || row.shelf == "file")
        .text("policy", |row| row.stats.policy.to_string())
        .count("cache_bytes", |row| row.stats.held_bytes)
        .count("limit_bytes", |row| row.blocks.limit_bytes())
        .count("look_ups", |row| row.stats.reads.look_ups)
        .count("memory_blocks", |row| row.stats.reads.dram_blocks)
        .count("storage_blocks", |row| row.stats.reads.shelf_blocks)
        .count("reads", |row| row.stats.reads.accesses)
        .count("evictions", |row| row.stats.evict_count)
        .count("queries", |_| elfs.query_count())
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
