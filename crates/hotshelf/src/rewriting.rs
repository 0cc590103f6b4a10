//! Rewriting: indexes made over existing rows, and small files merged. It reads tables as scans do and gives the
//! storage the new files.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use hotshelf_store::catalog::FileRow;
use hotshelf_store::data_file::TableFile;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::index::{IndexCache, IndexDefinition, Shelf, advise_order};
use crate::operators::in_elf_order;
use crate::scan::read_in_order;
use crate::statistics::sizes::value_bytes;
use crate::storage::{BUDGET_PARTS, Exchange, MERGE_ROWS, Merge, Storage, Writing, resolve};
use crate::table::Table;

/// A background merge may hold one part in this many of the budget.
const MERGE_BUDGET_PARTS: u64 = 16;

/// What a `CREATE INDEX` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexSpec {
    /// Name of the index, unique in the database.
    pub name: String,
    /// The table.
    pub table: String,
    /// Its columns to index, in the order of the Elf unless `advise` is set.
    pub columns: Vec<String>,
    /// Whether the engine chooses the order of the columns.
    pub advise: bool,
    /// Whether data files are rewritten in the order of the Elf.
    pub clustered: bool,
    /// Which blocks of it stay in memory.
    pub cache: IndexCache,
    /// Where its leaves are read from.
    pub shelf: Shelf,
}

/// Reads tables and gives the storage new files for them.
pub(crate) struct Rewriter<'a> {
    pub storage: &'a Arc<Storage>,
    pub engine: &'a Engine,
}

/// Files to be written again as others.
struct Rewrite {
    files: Vec<Arc<TableFile>>,
    /// The columns of the clustered index whose order the rows get; empty: they keep that of the files.
    order: Vec<usize>,
    /// The writers may hold one part in this many of the budget.
    budget_parts: u64,
}

/// How many files became how many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rewritten {
    pub files_before: usize,
    pub files_after: usize,
}

impl Rewriter<'_> {
    /// Makes an index and its files. On failure nothing has changed. Returns the rows indexed.
    pub async fn create_index(&self, spec: &IndexSpec) -> Result<u64> {
        let storage = self.storage;
        let _rewrite = storage.rewrites.lock().await;
        let table = storage.require_table(&spec.table)?;
        table.ensure_readable()?;
        storage.ensure_new_index(&spec.name, None)?;
        if let Some(other) = table.clustered().filter(|_| spec.clustered) {
            return Err(Error::NotSupported {
                what: format!(
                    "a second clustered index (the rows of '{}' are in the order of '{}')",
                    table.name, other.definition.name
                ),
            });
        }
        let mut columns = resolve(&table.name, &table.schema, &spec.columns)?;
        let row_count = table.files.iter().map(|file| file.stats.row_count).sum();
        if let (true, Some(file)) = (spec.advise, table.files.first()) {
            let (file, vortex) = (file.open()?, &storage.vortex);
            columns = advise_order(&file, &table.schema, &columns, vortex, row_count).await?;
        }
        let definition = IndexDefinition {
            clustered: spec.clustered,
            cache: spec.cache,
            shelf: spec.shelf.clone(),
            ..storage.definition(spec.name.clone(), columns)?
        };
        let mut removed = Vec::new();
        let mut added = Vec::new();
        if spec.clustered {
            removed = table.files.iter().map(|file| file.paths.number).collect();
            let rewrite = Rewrite {
                files: table.files.clone(),
                order: definition.columns.clone(),
                budget_parts: BUDGET_PARTS,
            };
            added = self.rewrite(&table, rewrite).await?;
        }
        let exchange = Exchange {
            removed: &removed,
            added,
            new_index: Some(definition),
        };
        storage.exchange_files(&table, exchange).await?;
        Ok(row_count)
    }

    /// Merges the small files of a table, and their Elfs.
    pub async fn optimize_table(&self, name: &str) -> Result<Rewritten> {
        let _rewrite = self.storage.rewrites.lock().await;
        let table = self.storage.require_table(name)?;
        table.ensure_readable()?;
        let is_small = |file: &&Arc<TableFile>| file.stats.row_count < MERGE_ROWS;
        let small: Vec<_> = table.files.iter().filter(is_small).cloned().collect();
        let unindexed = table.indexes.iter().any(|index| {
            let mut files = table.files.iter();
            files.any(|file| !matches!(index.files.get(&file.paths.number), Some(Ok(_))))
        });
        let merges = if small.len() > 1 { small } else { Vec::new() };
        if merges.is_empty() && !unindexed {
            return Ok(Rewritten::default());
        }
        self.merge_files(&table, merges, BUDGET_PARTS).await
    }

    /// Merges files of a table if a tier is full. Returns whether another look is worthwhile.
    pub async fn merge_once(&self, name: &str) -> bool {
        let (storage, merging) = (self.storage, &self.storage.merging);
        let _rewrite = storage.rewrites.lock().await;
        let Some(table) = storage.table(name).filter(|_| merging.is_on()) else {
            return false;
        };
        let files = merging.choice(&table);
        if files.is_empty() || table.ensure_readable().is_err() {
            return false;
        }
        let begun = Instant::now();
        let rows_max = files.iter().map(|file| file.stats.row_count).max();
        let mut merge = Merge {
            table: name.to_owned(),
            seconds: 0.0,
            files_before: files.len(),
            files_after: 0,
            rows: files.iter().map(|file| file.stats.row_count).sum(),
            error: None,
        };
        let merged = self.merge_files(&table, files, MERGE_BUDGET_PARTS).await;
        merge.seconds = begun.elapsed().as_secs_f64();
        match merged {
            Ok(merged) => merge.files_after = merged.files_after,
            Err(error) => merge.error = Some(error.to_string()),
        }
        let is_gone = storage.table(name).is_none_or(|now| now.id != table.id);
        if merge.error.is_some() && is_gone {
            return false;
        }
        let is_useless = merge.error.is_some() || merge.files_after * 2 > merge.files_before;
        if is_useless {
            match &merge.error {
                Some(error) => {
                    tracing::warn!(table = name, error, "small files are not merged");
                }
                None => tracing::info!(
                    table = name,
                    files_before = merge.files_before,
                    files_after = merge.files_after,
                    "small files do not become fewer with this budget, and are left alone"
                ),
            }
            merging.leave_alone(&table, rows_max.unwrap_or_default());
        }
        merging.note(merge);
        !is_useless
    }

    /// Writes some files again as fewer, if any are given, and the index files that are missing or broken.
    async fn merge_files(
        &self,
        table: &Arc<Table>,
        files: Vec<Arc<TableFile>>,
        budget_parts: u64,
    ) -> Result<Rewritten> {
        let removed: Vec<u64> = files.iter().map(|file| file.paths.number).collect();
        let mut added = Vec::new();
        if !files.is_empty() {
            let rewrite = Rewrite {
                files,
                order: table.order().to_vec(),
                budget_parts,
            };
            added = self.rewrite(table, rewrite).await?;
        }
        let rewritten = Rewritten {
            files_before: removed.len(),
            files_after: added.len(),
        };
        let rebuilt = self.storage.without_broken_indexes(table);
        let exchange = Exchange {
            removed: &removed,
            added,
            new_index: None,
        };
        self.storage.exchange_files(&rebuilt, exchange).await?;
        Ok(rewritten)
    }

    /// Writes the rows of some files into new ones.
    async fn rewrite(&self, table: &Table, rewrite: Rewrite) -> Result<Vec<FileRow>> {
        let files = rewrite.files.iter();
        let replaces: Vec<u64> = files.clone().map(|file| file.paths.number).collect();
        let row_count: u64 = files.map(|file| file.stats.row_count).sum();
        let types = table.schema.fields().iter().map(|field| field.data_type());
        let rows_bytes = row_count.saturating_mul(value_bytes(types) as u64);
        let part = Arc::new(table.changed(rewrite.files, Vec::new()));
        let rows = read_in_order(&self.engine.scan_env, part, None)
            .and_then(|rows| in_elf_order(vec![rows], &rewrite.order, &self.engine.task_context()))
            .map_err(Error::from_query)?;
        let how = Writing {
            replaces: &replaces,
            budget_parts: rewrite.budget_parts,
        };
        let rows_written = Arc::new(AtomicU64::new(0));
        let written = self
            .storage
            .write_files(&table.folder, &table.schema, rows, rows_written, how)
            .await
            .map_err(|error| error.with_rows_to_spill(|| rows_bytes))?;
        Ok(self.storage.drop_empty(written, &table.folder))
    }
}
