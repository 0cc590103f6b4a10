//! A table: its columns, files and indexes at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use hotshelf_cache::{ColumnId, FileId};
use hotshelf_store::StoreError;
use hotshelf_store::statistics::FileStats;
use hotshelf_tier::{Corruption, TierError};

use crate::error::{Error, Result};
use crate::index::TableIndex;
use crate::statistics::combinations::Combinations;
use crate::statistics::sample::TableSample;
use crate::statistics::table_statistics;
use crate::statistics::unique::{RepeatingColumns, UniqueColumns};
use hotshelf_store::catalog::{FileRow, IndexRow, TableRow};
use hotshelf_store::data_file::{TableFile, Unreadable};

/// What a table holds.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TableSummary {
    /// Its name.
    pub name: String,
    /// Its columns.
    pub schema: SchemaRef,
    /// Rows in all files.
    pub row_count: u64,
    /// Number of data files.
    pub file_count: usize,
    /// Bytes on disk.
    pub file_bytes: u64,
    /// Why the table cannot be read, if it cannot.
    pub damage: Option<String>,
    /// Why a file of the table could not be opened, if nothing says that it is damaged: the next use tries again.
    pub unavailable: Option<String>,
}

fn row_count(files: &[Arc<TableFile>]) -> u64 {
    files.iter().map(|file| file.stats.row_count).sum()
}

/// The state of a table between two changes. Immutable: a query keeps the one it was planned on.
#[derive(Debug)]
pub(crate) struct Table {
    pub id: i64,
    pub name: String,
    pub folder: String,
    pub schema: SchemaRef,
    pub files: Vec<Arc<TableFile>>,
    pub indexes: Vec<TableIndex>,
    pub statistics: Statistics,
    /// Which columns have no value twice, as far as queries wanted to know.
    pub unique: UniqueColumns,
    /// Which have one twice, as far as that was found.
    pub repeating: RepeatingColumns,
    /// How many combinations of values columns have, as far as queries wanted to know.
    pub combinations: Combinations,
    /// Some of its rows, once a query was planned with them.
    pub sample: TableSample,
    /// The cache's numbers of the columns, and one for what belongs to no column.
    pub column_ids: Vec<ColumnId>,
    /// Why the table cannot be read, if one of its files is damaged.
    pub damage: Option<Corruption>,
    /// Why a file could not be opened, if nothing says that it is damaged. The next use of the table tries again.
    pub unavailable: Option<TierError>,
}

impl Table {
    /// The table of a catalog row. Its files are opened when they are read; those that have to be read here, because
    /// the catalog's entry is damaged, make this table unreadable if they cannot be, not the database.
    pub fn open(
        row: TableRow,
        column_ids: Vec<ColumnId>,
        open_file: impl Fn(FileRow, &[ColumnId]) -> Result<TableFile, StoreError>,
    ) -> Self {
        let mut files = Vec::new();
        let (mut damage, mut unavailable) = (row.damage, None);
        for file in row.files {
            let number = file.number;
            match open_file(file, &column_ids) {
                Ok(file) => files.push(Arc::new(file)),
                Err(error) => match error.into_unavailable() {
                    Ok(error) => unavailable = Some(error),
                    Err(error) => {
                        let path = format!("data/{}/{number}.vortex", row.folder);
                        damage = Some(error.into_damage(path.as_ref(), "data file"));
                    }
                },
            }
        }
        let statistics = merge_statistics(&row.schema, &files);
        let numbers: BTreeSet<u64> = files.iter().map(|file| file.paths.number).collect();
        let indexes = row.indexes.into_iter();
        let indexes = indexes.map(|index| unopened(index, &numbers)).collect();
        Self {
            indexes,
            id: row.id,
            name: row.name,
            folder: row.folder,
            schema: row.schema,
            files,
            statistics,
            unique: UniqueColumns::default(),
            repeating: RepeatingColumns::default(),
            combinations: Combinations::default(),
            sample: TableSample::default(),
            column_ids,
            damage,
            unavailable,
        }
    }

    /// Whether a column, by index, is known to have a value twice.
    pub fn repeats(&self, column: usize) -> bool {
        let in_sample = || self.sample.get()?.repeats(column);
        self.repeating.get(column, in_sample)
    }

    /// The table with other files and indexes.
    pub fn changed(&self, files: Vec<Arc<TableFile>>, indexes: Vec<TableIndex>) -> Self {
        let numbers = |files: &[Arc<TableFile>]| -> BTreeSet<u64> {
            files.iter().map(|file| file.paths.number).collect()
        };
        let (before, after) = (numbers(&self.files), numbers(&files));
        let (unique, repeating, combinations, sample) = match before.is_subset(&after) {
            true => (
                self.unique.after(before != after),
                self.repeating.after(),
                self.combinations.after(row_count(&files)),
                self.sample.after(&files),
            ),
            false => Default::default(),
        };
        Self {
            indexes,
            id: self.id,
            name: self.name.clone(),
            folder: self.folder.clone(),
            schema: self.schema.clone(),
            statistics: merge_statistics(&self.schema, &files),
            unique,
            repeating,
            combinations,
            sample,
            files,
            column_ids: self.column_ids.clone(),
            damage: self.damage.clone(),
            unavailable: self.unavailable.clone(),
        }
    }

    /// The cache's names of the files, in order.
    pub fn file_ids(&self) -> Vec<FileId> {
        self.files.iter().map(|file| file.cache_id()).collect()
    }

    /// Whether something of the table is not open yet, or could not be opened and may be tried again.
    pub fn is_incomplete(&self) -> bool {
        let mut indexes = self.indexes.iter();
        self.unavailable.is_some() || indexes.any(|index| !index.unavailable.is_empty())
    }

    /// Why the table cannot be read, if it cannot.
    pub fn ensure_readable(&self) -> Result<()> {
        match (&self.damage, &self.unavailable) {
            (Some(damage), _) => Err(Error::Corruption(damage.clone())),
            (None, Some(error)) => Err(Error::Tier(error.clone())),
            (None, None) => Ok(()),
        }
    }

    /// The index that data files are in the order of, if there is one.
    pub fn clustered(&self) -> Option<&TableIndex> {
        let mut indexes = self.indexes.iter();
        indexes.find(|index| index.definition.clustered)
    }

    /// The columns in whose order data files hold their rows: those of the clustered index. Empty: in none.
    pub fn order(&self) -> &[usize] {
        self.clustered()
            .map_or(&[], |index| &index.definition.columns)
    }

    /// Rows in all files.
    pub fn row_count(&self) -> u64 {
        row_count(&self.files)
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.file_bytes()).sum()
    }

    pub fn summary(&self) -> TableSummary {
        let (damage, unavailable) = self.trouble();
        TableSummary {
            name: self.name.clone(),
            schema: self.schema.clone(),
            row_count: self.row_count(),
            file_count: self.files.len(),
            file_bytes: self.file_bytes(),
            damage,
            unavailable,
        }
    }

    /// Why the table cannot be read, or may not be, as far as is known without reading its files: damage, or what the
    /// system refuses.
    fn trouble(&self) -> (Option<String>, Option<String>) {
        let mut damage = self.damage.as_ref().map(ToString::to_string);
        let mut unavailable = self.unavailable.as_ref().map(ToString::to_string);
        for trouble in self.files.iter().filter_map(|file| file.known_trouble()) {
            match trouble {
                Unreadable::Damaged(found) => {
                    damage.get_or_insert_with(|| found.to_string());
                }
                Unreadable::Unavailable(error) => {
                    unavailable.get_or_insert_with(|| error.to_string());
                }
            }
        }
        (damage, unavailable)
    }
}

/// An index of the catalog whose files are opened when the table is first used.
fn unopened(row: IndexRow, files: &BTreeSet<u64>) -> TableIndex {
    let mut index = TableIndex::new(row.definition, BTreeMap::new());
    let numbers = row.files.into_iter().map(|(number, _)| number);
    index.unavailable = numbers.filter(|number| files.contains(number)).collect();
    index
}

fn merge_statistics(schema: &SchemaRef, files: &[Arc<TableFile>]) -> Statistics {
    let stats: Vec<&FileStats> = files.iter().map(|file| file.stats.as_ref()).collect();
    table_statistics(schema, &stats)
}
