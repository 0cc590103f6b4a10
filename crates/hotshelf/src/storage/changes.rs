//! Changes of a table's files: new ones are written and synced first, then one transaction names them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hotshelf_store::StoreError;
use hotshelf_store::catalog::{FileChange, FileRow, IndexFileRow, TableRef};
use hotshelf_store::data_file::{FilePaths, TableColumns, TableFile};
use hotshelf_store::placement::Placement;

use super::Storage;
use super::writing::may_be_committed;
use crate::error::{Error, Result};
use crate::index::{IndexDefinition, IndexFile, IndexPaths, Indexed, TableIndex};
use crate::table::Table;

/// Files that leave a table, and what comes in their place.
pub(crate) struct Exchange<'a> {
    /// Numbers of the files that leave.
    pub removed: &'a [u64],
    /// New files, on disk already. They are removed if the change fails.
    pub added: Vec<FileRow>,
    /// An index that is new with this change.
    pub new_index: Option<IndexDefinition>,
}

/// Which index of which data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FileOfIndex {
    index: i64,
    file: u64,
}

/// The outcome for an index file that a change needs.
enum Tried {
    /// It is on disk, and open if that worked.
    Written {
        bytes: u64,
        opened: Result<Arc<IndexFile>, StoreError>,
    },
    /// The data file cannot be indexed.
    Refused,
}

/// New files of a change, removed when this is dropped before the change is committed.
#[derive(Default)]
struct Uncommitted {
    data: Vec<FilePaths>,
    indexes: Vec<IndexPaths>,
}

impl Drop for Uncommitted {
    fn drop(&mut self) {
        self.data.iter().for_each(FilePaths::remove);
        self.indexes.iter().for_each(IndexPaths::remove);
    }
}

/// A change under way.
struct Change<'a> {
    exchange: Exchange<'a>,
    /// Where the table was when the change began.
    placement: Arc<Placement>,
    /// The new data files.
    opened: Vec<Arc<TableFile>>,
    tried: BTreeMap<FileOfIndex, Tried>,
    uncommitted: Uncommitted,
}

impl Storage {
    /// Takes files out of a table and puts others in, with index files for all indexes, in one transaction.
    pub async fn exchange_files(&self, planned: &Table, exchange: Exchange<'_>) -> Result<()> {
        let mut change = self.begin(planned, exchange)?;
        loop {
            // The table may have changed, or gone, while its rows were written.
            let table = self.require_table(&planned.name)?;
            let files = change.files_after(planned, &table)?;
            self.index_files(&table, &files, &mut change).await?;
            if self.commit(&table, files, &mut change)? {
                return Ok(());
            }
        }
    }

    fn begin<'a>(&self, planned: &Table, exchange: Exchange<'a>) -> Result<Change<'a>> {
        let added = exchange.added.iter();
        let paths = added.map(|file| self.data_paths(planned, file.number));
        let uncommitted = Uncommitted {
            data: paths.collect(),
            indexes: Vec::new(),
        };
        let open = |row: &FileRow| -> Result<Arc<TableFile>> {
            let columns = TableColumns {
                schema: &planned.schema,
                column_ids: &planned.column_ids,
            };
            let file = self.table_file(&planned.folder, row.clone(), columns)?;
            // What cannot be read again is not committed.
            file.open()?;
            Ok(Arc::new(file))
        };
        let placement = self.opener.shelves().placement(&planned.folder);
        let opened = exchange.added.iter().map(open).collect::<Result<_>>()?;
        Ok(Change {
            exchange,
            placement,
            opened,
            tried: BTreeMap::new(),
            uncommitted,
        })
    }

    fn data_paths(&self, table: &Table, file: u64) -> FilePaths {
        FilePaths::new(self.store.root(), &table.folder, file)
    }

    /// Writes and opens the index files that are missing and have not been tried. Opening reads, so it is done here and
    /// not under the lock of [`Self::commit`].
    async fn index_files(
        &self,
        table: &Table,
        files: &[Arc<TableFile>],
        change: &mut Change<'_>,
    ) -> Result<()> {
        let existing = table.indexes.iter().map(|index| &index.definition);
        for definition in existing.chain(&change.exchange.new_index) {
            let mut indexes = table.indexes.iter();
            let known = indexes.find(|index| index.definition.id == definition.id);
            let writer = self.index_writer(&table.schema, definition);
            for file in files {
                let number = file.paths.number;
                let key = FileOfIndex {
                    index: definition.id,
                    file: number,
                };
                let has = known.is_some_and(|index| index.has(number));
                if has || change.tried.contains_key(&key) {
                    continue;
                }
                let paths = self.index_paths(&table.folder, number, definition.id);
                let indexed = self
                    .write_index(&writer, &definition.name, file, &paths)
                    .await?;
                let tried = match indexed {
                    Indexed::Written(bytes) => {
                        change.uncommitted.indexes.push(paths);
                        let opened = self.open_index_file(&table.folder, definition, file);
                        Tried::Written { bytes, opened }
                    }
                    Indexed::Refused(_) => Tried::Refused,
                };
                change.tried.insert(key, tried);
            }
        }
        Ok(())
    }

    /// Names the files in the catalog and shows the table with them, unless it is no longer `table`: then nothing has
    /// changed, and the answer is `false`.
    fn commit(
        &self,
        table: &Arc<Table>,
        files: Vec<Arc<TableFile>>,
        change: &mut Change<'_>,
    ) -> Result<bool> {
        let _change = self.changes.lock();
        let now = self.table_as_is(&table.name);
        if !now.is_some_and(|now| Arc::ptr_eq(&now, table)) {
            return Ok(false);
        }
        let exchange = &change.exchange;
        if let Some(index) = &exchange.new_index {
            self.ensure_new_index(&index.name, None)?;
        }
        // An index may have been dropped since its file was written.
        let existing = table.indexes.iter().map(|index| &index.definition);
        let ids: BTreeSet<i64> = existing
            .chain(&exchange.new_index)
            .map(|one| one.id)
            .collect();
        let files_of_change = FileChange {
            removed: exchange.removed,
            added: &exchange.added,
            new_index: exchange.new_index.as_ref(),
            index_files: &change.written(&ids),
        };
        let of = TableRef {
            id: table.id,
            folder: &table.folder,
            schema: &table.schema,
        };
        self.leave_shelves(table, |_, number| exchange.removed.contains(&number));
        let committed = self.store.change_files(&of, &files_of_change);
        let committed = committed.map_err(Error::from);
        if may_be_committed(&committed) {
            let uncommitted = &mut change.uncommitted;
            uncommitted.data.clear();
            let is_dropped = |paths: &IndexPaths| !ids.contains(&paths.index_id());
            uncommitted.indexes.retain(is_dropped);
        }
        committed?;
        let indexes = change.indexes_after(table, &files);
        self.put(table.changed(files, indexes));
        // The table may have been placed elsewhere meanwhile.
        if *self.opener.shelves().placement(&table.folder) != *change.placement {
            change.opened.iter().for_each(|file| file.leave_shelf());
            self.follow_shelf(&change.opened);
        }
        Ok(true)
    }
}

impl Change<'_> {
    /// The files of a table after the change; an error if it is another table, or lacks a file that was to leave.
    fn files_after(&self, planned: &Table, table: &Table) -> Result<Vec<Arc<TableFile>>> {
        let removed = self.exchange.removed;
        let files = table.files.iter().cloned();
        let (leaving, mut files): (Vec<_>, Vec<_>) =
            files.partition(|file| removed.contains(&file.paths.number));
        if table.id != planned.id || leaving.len() != removed.len() {
            return Err(Error::UnknownTable {
                table: planned.name.clone(),
                nearest: None,
            });
        }
        files.extend(self.opened.iter().cloned());
        Ok(files)
    }

    /// The new files of these indexes.
    fn written(&self, indexes: &BTreeSet<i64>) -> Vec<IndexFileRow> {
        let of = |(key, tried): (&FileOfIndex, &Tried)| match tried {
            Tried::Written { bytes, .. } if indexes.contains(&key.index) => Some(IndexFileRow {
                index: key.index,
                data_file: key.file,
                bytes: *bytes,
            }),
            _ => None,
        };
        self.tried.iter().filter_map(of).collect()
    }

    /// The table's indexes after the change, with the new files.
    fn indexes_after(&mut self, table: &Table, files: &[Arc<TableFile>]) -> Vec<TableIndex> {
        let new_index = self.exchange.new_index.take();
        let new_index = new_index.map(|definition| TableIndex::new(definition, BTreeMap::new()));
        let mut indexes: Vec<TableIndex> = table.indexes.iter().cloned().chain(new_index).collect();
        let numbers: BTreeSet<u64> = files.iter().map(|file| file.paths.number).collect();
        for index in &mut indexes {
            index.files.retain(|number, _| numbers.contains(number));
            index.unavailable.retain(|number| numbers.contains(number));
            index.refused.retain(|number| numbers.contains(number));
            for file in numbers.iter().copied() {
                let key = FileOfIndex {
                    index: index.definition.id,
                    file,
                };
                match self.tried.remove(&key) {
                    Some(Tried::Written { opened, .. }) => index.add(file, opened),
                    Some(Tried::Refused) => {
                        index.refused.insert(file);
                    }
                    None => {}
                }
            }
        }
        indexes
    }
}
