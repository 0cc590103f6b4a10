//! Finding, making, filling and dropping tables.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use datafusion::execution::SendableRecordBatchStream;
use hotshelf_cache::ColumnId;
use hotshelf_store::StoreError;
use hotshelf_store::catalog::{FileRow, TableRow};
use hotshelf_store::data_file::{FilePaths, TableColumns, TableFile, check_storable};
use hotshelf_store::folder::folder_name;

use super::changes::Exchange;
use super::writing::{UnfinishedFolder, Writing};
use super::{IfExists, NewTable, Storage};
use crate::error::{Error, Result, nearest};
use crate::table::Table;

impl Storage {
    /// Names of all tables, in order.
    pub fn table_names(&self) -> Vec<String> {
        self.tables.read().keys().cloned().collect()
    }

    /// All tables, in order of their names.
    pub fn all_tables(&self) -> Vec<Arc<Table>> {
        self.tables.read().values().cloned().collect()
    }

    /// The table of that name (unqualified, case-sensitive), if there is one.
    pub fn table(&self, name: &str) -> Option<Arc<Table>> {
        let table = self.tables.read().get(name).cloned()?;
        match table.is_incomplete() {
            true => Some(self.open_again(table)),
            false => Some(table),
        }
    }

    /// The table as it was last opened or changed, even if some of it is not open.
    pub(super) fn table_as_is(&self, name: &str) -> Option<Arc<Table>> {
        self.tables.read().get(name).cloned()
    }

    /// All tables, in order of their names, with their indexes open as far as they can be.
    pub fn opened_tables(&self) -> Vec<Arc<Table>> {
        let names = self.table_names();
        names.iter().filter_map(|name| self.table(name)).collect()
    }

    /// The table with its index files open, and with the data files that could not be read before, if they can be now.
    fn open_again(&self, table: Arc<Table>) -> Arc<Table> {
        let whole = match &table.unavailable {
            Some(_) => self.with_all_files(&table),
            None => None,
        };
        let opened = Arc::new(self.with_indexes(whole.as_ref().unwrap_or(&table)));
        let mut tables = self.tables.write();
        match tables.get_mut(&table.name) {
            Some(current) if Arc::ptr_eq(current, &table) => {
                *current = opened.clone();
                let outdated = self.note_made_of(opened.id, opened.file_ids());
                drop(tables);
                drop(outdated);
                opened
            }
            // Another thread was faster, or a change has opened its own files; the next use tries again.
            Some(current) => current.clone(),
            None => table,
        }
    }

    /// The table as the catalog has it, if it still has it.
    fn with_all_files(&self, table: &Table) -> Option<Table> {
        let rows = self.store.catalog().tables().unwrap_or_default();
        let row = rows.into_iter().find(|row| row.id == table.id)?;
        Some(self.open_files(row, table.column_ids.clone()))
    }

    /// The table of that name, or an error with the nearest name.
    pub fn require_table(&self, name: &str) -> Result<Arc<Table>> {
        self.table(name).ok_or_else(|| self.unknown_table(name))
    }

    fn unknown_table(&self, name: &str) -> Error {
        Error::UnknownTable {
            table: name.to_owned(),
            nearest: nearest(name, self.tables.read().keys().map(String::as_str)),
        }
    }

    /// Makes a table of the rows of `inputs`, one file for each. If there is to be a clustered index, they are in its
    /// order. All or nothing.
    pub async fn create_table(
        self: &Arc<Self>,
        new: NewTable<'_>,
        inputs: Vec<SendableRecordBatchStream>,
        rows_written: Arc<AtomicU64>,
    ) -> Result<u64> {
        let NewTable {
            name,
            schema,
            if_exists,
            cluster_by,
            placement,
        } = new;
        self.check_placement(name, &schema, &placement)?;
        check_storable(&schema, &self.vortex)?;
        let index = self.first_index(name, &schema, cluster_by)?;
        if if_exists == IfExists::Fail && self.table_as_is(name).is_some() {
            return Err(Error::TableExists {
                table: name.to_owned(),
            });
        }
        // The folder's number need not be the table's id: it only has to be new.
        let folder = folder_name(name, self.store.next_number()?);
        let unfinished = UnfinishedFolder::new(self.store.root(), &folder);
        self.opener.shelves().put(&folder, placement.clone());
        let files = self
            .write_files(&folder, &schema, inputs, rows_written, Writing::NEW)
            .await?;
        self.store.root().sync_folder(&self.store.root().data())?;
        let files = self.drop_empty(files, &folder);
        let row_count = files.iter().map(|file| file.stats.row_count).sum();
        let mut row = TableRow::new(name.to_owned(), folder, schema, files);
        row.placement = placement;
        if let Some(index) = index {
            row.indexes.push(self.index_new_table(&row, index).await?);
        }
        unfinished.keep_if(self.commit_table(row, if_exists))?;
        self.begin_shelf(name);
        Ok(row_count)
    }

    fn commit_table(&self, mut row: TableRow, if_exists: IfExists) -> Result<()> {
        let _change = self.changes.lock();
        self.check_name(&row.name)?;
        if self.view(&row.name).is_some() {
            return Err(Error::OtherKind {
                name: row.name,
                found: "view",
                wanted: "stored table",
            });
        }
        let old = self.table_as_is(&row.name);
        if old.is_some() && if_exists == IfExists::Fail {
            return Err(Error::TableExists { table: row.name });
        }
        for index in &row.indexes {
            self.ensure_new_index(&index.definition.name, Some(&row.name))?;
        }
        if let Some(old) = &old {
            self.leave_shelves(old, |_, _| true);
        }
        let replaced = old.as_ref().map(|table| (table.id, table.folder.as_str()));
        row.id = self.store.add_table(&row, replaced)?;
        old.iter().for_each(|old| self.forget_shelf(old));
        self.put(self.open_table(row));
        Ok(())
    }

    /// Appends the rows of `inputs` to a table, one file for each. They are in the order of the clustered index, if the
    /// table has one. All or nothing; an empty input adds no file.
    pub async fn append(
        self: &Arc<Self>,
        name: &str,
        inputs: Vec<SendableRecordBatchStream>,
        rows_written: Arc<AtomicU64>,
    ) -> Result<u64> {
        let table = self.require_table(name)?;
        let folder = &table.folder;
        let files = self
            .write_files(folder, &table.schema, inputs, rows_written, Writing::NEW)
            .await?;
        let files = self.drop_empty(files, folder);
        let row_count = files.iter().map(|file| file.stats.row_count).sum();
        let exchange = Exchange {
            removed: &[],
            added: files,
            new_index: None,
        };
        self.exchange_files(&table, exchange).await?;
        if let Some(table) = self.table(name) {
            self.merging.look_at(&table);
        }
        Ok(row_count)
    }

    /// Drops a table. Queries that read it finish; its files go when they have.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let _change = self.changes.lock();
        let table = self.table_as_is(name);
        let table = table.ok_or_else(|| self.unknown_table(name))?;
        self.leave_shelves(&table, |_, _| true);
        self.store.drop_table(table.id, &table.folder)?;
        self.forget_tables(&[table]);
        Ok(())
    }

    /// Forgets tables that the catalog has no longer.
    pub(super) fn forget_tables(&self, dropped: &[Arc<Table>]) {
        let mut outdated = Vec::new();
        let mut tables = self.tables.write();
        for table in dropped {
            self.forget_shelf(table);
            tables.remove(&table.name);
            outdated.push(self.forget_made_of(table.id));
        }
        drop(tables);
        drop(outdated);
    }

    pub(super) fn open_table(&self, row: TableRow) -> Table {
        let column_ids = self.cache_names.number_columns(&row.name, &row.schema);
        self.open_files(row, column_ids)
    }

    fn open_files(&self, row: TableRow, column_ids: Vec<ColumnId>) -> Table {
        let (folder, schema) = (row.folder.clone(), row.schema.clone());
        let placement = row.placement.clone();
        match self.check_placement(&row.name, &schema, &placement) {
            Ok(()) => self.opener.shelves().put(&folder, placement),
            Err(error) => {
                let table = &row.name;
                tracing::warn!(%error, table, "a table is not where the catalog has it; its files are read");
            }
        }
        Table::open(row, column_ids, |file, column_ids| {
            let columns = TableColumns {
                schema: &schema,
                column_ids,
            };
            self.table_file(&folder, file, columns)
        })
    }

    /// A data file as the catalog knows it. It is opened when it is read.
    pub(super) fn table_file(
        &self,
        table_folder: &str,
        file: FileRow,
        columns: TableColumns<'_>,
    ) -> Result<TableFile, StoreError> {
        let paths = FilePaths::new(self.store.root(), table_folder, file.number);
        let name = format!("{table_folder}/{}.vortex", file.number);
        let file = TableFile::new(file, paths, columns, &self.opener)?;
        self.cache_names.add_file(file.cache_id(), name);
        Ok(file)
    }
}
