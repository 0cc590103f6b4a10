//! The indexes of tables: their definitions, and their files written and opened.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use hotshelf_store::catalog::{IndexRow, TableRow};
use hotshelf_store::data_file::{TableColumns, TableFile};
use hotshelf_store::{StoreError, side_by_side};

use super::Storage;
use crate::error::{Error, Result, nearest};
use crate::index::{
    IndexCache, IndexDefinition, IndexFile, IndexPaths, IndexWriter, Indexed, Indexes, Shelf,
    TableIndex, is_indexable, stretch_rows,
};
use crate::table::Table;

impl Storage {
    /// The table that has an index of that name.
    pub fn table_of_index(&self, index: &str) -> Option<Arc<Table>> {
        let mut tables = self.all_tables().into_iter();
        tables.find(|table| {
            let mut indexes = table.indexes.iter();
            indexes.any(|one| one.definition.name == index)
        })
    }

    fn require_table_of_index(&self, index: &str) -> Result<Arc<Table>> {
        self.table_of_index(index).ok_or_else(|| {
            let tables = self.all_tables();
            let names = tables.iter().flat_map(|table| &table.indexes);
            Error::UnknownIndex {
                index: index.to_owned(),
                nearest: nearest(index, names.map(|index| index.definition.name.as_str())),
            }
        })
    }

    /// A new index of these columns, not clustered, whose blocks share the memory of all indexes.
    pub fn definition(&self, name: String, columns: Vec<usize>) -> Result<IndexDefinition> {
        Ok(IndexDefinition {
            id: self.store.next_number()? as i64,
            name,
            columns,
            clustered: false,
            cache: IndexCache::default(),
            shelf: Shelf::default(),
        })
    }

    /// The clustered index that a table is to be made with, if there are columns for it.
    pub(super) fn first_index(
        &self,
        table: &str,
        schema: &SchemaRef,
        cluster_by: &[String],
    ) -> Result<Option<IndexDefinition>> {
        if cluster_by.is_empty() {
            return Ok(None);
        }
        let columns = resolve(table, schema, cluster_by)?;
        let name = default_index_name(table, cluster_by);
        self.ensure_new_index(&name, Some(table))?;
        Ok(Some(IndexDefinition {
            clustered: true,
            ..self.definition(name, columns)?
        }))
    }

    /// Writes the files of the index that a table is made with.
    pub(super) async fn index_new_table(
        &self,
        row: &TableRow,
        definition: IndexDefinition,
    ) -> Result<IndexRow> {
        let column_ids = self.cache_names.number_columns(&row.name, &row.schema);
        let writer = self.index_writer(&row.schema, &definition);
        let columns = TableColumns {
            schema: &row.schema,
            column_ids: &column_ids,
        };
        let mut files = Vec::with_capacity(row.files.len());
        for file in &row.files {
            let file = Arc::new(self.table_file(&row.folder, file.clone(), columns)?);
            let paths = self.index_paths(&row.folder, file.paths.number, definition.id);
            if let Indexed::Written(bytes) = self
                .write_index(&writer, &definition.name, &file, &paths)
                .await?
            {
                files.push((file.paths.number, bytes));
            }
        }
        Ok(IndexRow { definition, files })
    }

    pub(super) fn index_writer(
        &self,
        schema: &SchemaRef,
        definition: &IndexDefinition,
    ) -> IndexWriter {
        IndexWriter {
            schema: schema.clone(),
            session: self.vortex.clone(),
            index: definition.id,
            columns: definition.columns.clone(),
            clustered: definition.clustered,
            stretch_rows: stretch_rows(schema, self.budget_bytes()),
            threads: self.machine.threads,
        }
    }

    /// Whether the name is free, or will be when a table has been replaced.
    pub fn ensure_new_index(&self, name: &str, replaced: Option<&str>) -> Result<()> {
        let table = self.table_of_index(name);
        match table.filter(|table| Some(table.name.as_str()) != replaced) {
            None => Ok(()),
            Some(table) => Err(Error::IndexExists {
                index: name.to_owned(),
                table: table.name.clone(),
            }),
        }
    }

    /// Removes what files of a table's indexes have on other shelves, for some definitions and numbers of data files,
    /// before the catalog forgets that they have it: a copy that goes too early costs time, one that stays would be
    /// nobody's. Files are opened if they are not: they know the names of their copies.
    pub(super) fn leave_shelves(
        &self,
        table: &Table,
        leaves: impl Fn(&IndexDefinition, u64) -> bool,
    ) {
        let is_elsewhere = |index: &&TableIndex| index.definition.shelf != Shelf::File;
        if !table.indexes.iter().any(|index| is_elsewhere(&index)) {
            return;
        }
        let opened = self.with_indexes(table);
        for index in opened.indexes.iter().filter(is_elsewhere) {
            let files = index.files.iter();
            let leaving = files.filter(|(number, _)| leaves(&index.definition, **number));
            leaving
                .flat_map(|(_, file)| file)
                .for_each(|file| file.leave_shelf());
        }
    }

    /// Drops an index. Queries that use it finish; its files go when they have.
    pub fn drop_index(&self, name: &str) -> Result<()> {
        let _change = self.changes.lock();
        let table = self.require_table_of_index(name)?;
        self.leave_shelves(&table, |index, _| index.name == name);
        let (dropped, kept): (Vec<_>, Vec<_>) = table
            .indexes
            .iter()
            .cloned()
            .partition(|index| index.definition.name == name);
        for index in &dropped {
            self.store.drop_index(&table.folder, index.definition.id)?;
            let shared = IndexCache::default();
            self.elfs.set_cache(index.definition.id, shared);
            self.elfs.set_shelf(index.definition.id, &Shelf::File);
        }
        let changed = table.changed(table.files.clone(), kept);
        self.put(changed);
        Ok(())
    }

    /// Changes which blocks of an index stay in memory, and where its leaves are read from; `change` is also told how
    /// many columns the index has. Its files are opened again
    /// for another shelf; queries that use it finish where they are.
    pub fn alter_index(
        &self,
        name: &str,
        change: impl FnOnce(&mut IndexCache, &mut Shelf, usize) -> Result<()>,
    ) -> Result<()> {
        let _change = self.changes.lock();
        let table = self.require_table_of_index(name)?;
        let mut indexes = table.indexes.clone();
        let named = |index: &&mut TableIndex| index.definition.name == name;
        if let Some(index) = indexes.iter_mut().find(named) {
            let (number, left) = (index.definition.id, index.definition.shelf.clone());
            let column_count = index.definition.columns.len();
            let definition = &mut index.definition;
            change(&mut definition.cache, &mut definition.shelf, column_count)?;
            let (cache, shelf) = (index.definition.cache, &index.definition.shelf);
            if left != *shelf {
                self.leave_shelves(&table, |index, _| index.id == number);
            }
            self.store
                .set_index_choices(&table.folder, number, cache, shelf)?;
            self.elfs.set_cache(number, cache);
            self.elfs.set_shelf(number, shelf);
            if left != *shelf {
                index.files.retain(|number, file| {
                    let Ok(file) = file else { return true };
                    file.leave_shelf();
                    index.unavailable.insert(*number);
                    false
                });
            }
        }
        let changed = table.changed(table.files.clone(), indexes);
        self.put(self.with_indexes(&changed));
        Ok(())
    }

    /// The table as if broken index files had never been tried, so that they are built again.
    pub fn without_broken_indexes(&self, table: &Arc<Table>) -> Arc<Table> {
        let broken = |index: &TableIndex| index.damage().is_some() || !index.refused.is_empty();
        if !table.indexes.iter().any(broken) {
            return table.clone();
        }
        let _change = self.changes.lock();
        let mut indexes = table.indexes.clone();
        for index in &mut indexes {
            index.files.retain(|_, file| file.is_ok());
            index.refused.clear();
        }
        let changed = Arc::new(table.changed(table.files.clone(), indexes));
        let mut tables = self.tables.write();
        match tables.get_mut(&table.name) {
            Some(current) if Arc::ptr_eq(current, table) => {
                *current = changed.clone();
                let outdated = self.note_made_of(table.id, changed.file_ids());
                drop(tables);
                drop(outdated);
                changed
            }
            _ => table.clone(),
        }
    }

    pub(super) fn open_index_file(
        &self,
        table_folder: &str,
        definition: &IndexDefinition,
        file: &TableFile,
    ) -> Result<Arc<IndexFile>, StoreError> {
        let paths = self.index_paths(table_folder, file.paths.number, definition.id);
        self.elfs.set_cache(definition.id, definition.cache);
        self.elfs.set_shelf(definition.id, &definition.shelf);
        let columns = definition.columns.len();
        let opened = indexes_of(file)
            .and_then(|of| IndexFile::open(&self.opener, &self.elfs, &paths, of, columns));
        let placed = opened.inspect(|file| file.put_on(&definition.shelf));
        placed.map(Arc::new).inspect_err(|error| {
            tracing::warn!(%error, index = definition.name, "an index file cannot be used; its rows are scanned");
        })
    }

    pub(super) fn index_paths(
        &self,
        table_folder: &str,
        file_number: u64,
        index: i64,
    ) -> IndexPaths {
        IndexPaths::new(self.store.root(), table_folder, file_number, index)
    }

    /// Writes an index file under its final name. On failure nothing remains of it.
    pub(super) async fn write_index(
        &self,
        writer: &IndexWriter,
        index: &str,
        file: &TableFile,
        paths: &IndexPaths,
    ) -> Result<Indexed> {
        let temporary = paths.temporary(self.store.next_number()?);
        paths.create_folder()?;
        let indexed = writer
            .write(&file.open()?, paths.root(), &temporary)
            .await?;
        match &indexed {
            Indexed::Written(_) => paths.rename(&temporary).inspect_err(|_| {
                paths.root().remove(&temporary);
            })?,
            Indexed::Refused(reason) => tracing::warn!(
                index,
                file = file.paths.number,
                reason,
                "a data file cannot be indexed and will be scanned"
            ),
        }
        Ok(indexed)
    }

    /// The table with the index files open that are not. Damaged ones are remembered as such.
    pub(super) fn with_indexes(&self, table: &Table) -> Table {
        let mut indexes = table.indexes.clone();
        for index in &mut indexes {
            let files = table.files.iter();
            let files = files.filter(|file| index.unavailable.contains(&file.paths.number));
            let files: Vec<Arc<TableFile>> = files.cloned().collect();
            let definition = &index.definition;
            let opened = side_by_side(&files, |file| {
                self.open_index_file(&table.folder, definition, file)
            });
            for (file, opened) in files.iter().zip(opened) {
                index.add(file.paths.number, opened);
            }
        }
        table.changed(table.files.clone(), indexes)
    }
}

/// What the index files of a data file must name.
fn indexes_of(file: &TableFile) -> Result<Indexes, StoreError> {
    Ok(Indexes {
        row_count: file.stats.row_count,
        file_bytes: file.file_bytes(),
        footer_sum: file.footer_sum()?,
        id: file.id,
    })
}

/// The name of an index that was not given one.
pub(crate) fn default_index_name(table: &str, columns: &[String]) -> String {
    format!("{table}_{}_elf", columns.join("_"))
}

/// The number of a table's column.
pub(super) fn column_named(table: &str, schema: &SchemaRef, name: &str) -> Result<usize> {
    let fields = schema.fields();
    let unknown = || Error::UnknownColumn {
        table: table.to_owned(),
        column: name.to_owned(),
        nearest: nearest(name, fields.iter().map(|field| field.name().as_str())),
    };
    let found = fields.iter().position(|field| field.name() == name);
    found.ok_or_else(unknown)
}

/// The columns of a table by name: at least one, none twice, all of types that can be indexed.
pub(crate) fn resolve(table: &str, schema: &SchemaRef, names: &[String]) -> Result<Vec<usize>> {
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let fields = schema.fields();
        let column = column_named(table, schema, name)?;
        if !is_indexable(fields[column].data_type()) {
            return Err(Error::NotIndexable {
                column: name.clone(),
                data_type: fields[column].data_type().to_string(),
            });
        }
        if columns.contains(&column) {
            return Err(Error::InvalidValue {
                what: "column list",
                value: name.clone(),
                expected: "every column once".into(),
            });
        }
        columns.push(column);
    }
    let max = hotshelf_elf::keys::DIMENSION_COUNT_MAX;
    if columns.is_empty() || columns.len() > max {
        return Err(Error::InvalidValue {
            what: "number of indexed columns",
            value: columns.len().to_string(),
            expected: format!("1 to {max}"),
        });
    }
    Ok(columns)
}
