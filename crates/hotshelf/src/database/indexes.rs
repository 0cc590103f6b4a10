//! Making, dropping and keeping up indexes, and merging files. Every change of a table's files goes through
//! [`Inner::exchange_files`]: new files are written and synced first, then one transaction names them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::datatypes::SchemaRef;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use hotshelf_store::{StoreError, side_by_side};

use super::files::{BUDGET_PARTS, Writing, may_be_committed};
use super::{Inner, RowOrder};
use crate::error::{Error, Result, nearest};
use crate::index::{
    IndexDefinition, IndexFile, IndexPaths, IndexWriter, Indexed, Indexes, TableIndex,
    advise_order, is_indexable, stretch_rows,
};
use crate::scan::TableScan;
use crate::session::execute_partitions;
use crate::table::Table;
use hotshelf_store::catalog::{FileChange, FileRow, IndexRow, TableRef, TableRow};
use hotshelf_store::data_file::{FilePaths, TableFile};

/// What a `CREATE INDEX` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSpec {
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
}

/// Files with fewer rows than this are merged with their neighbours.
pub(super) const MERGE_ROWS: u64 = 1 << 22;

/// An index file that is on disk and not yet in the catalog: index and data file.
type FileOfIndex = (i64, u64);

/// New files of a change, gone when this is dropped before the change is committed.
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

impl Inner {
    /// All tables, in order of their names.
    pub fn all_tables(&self) -> Vec<Arc<Table>> {
        self.tables.read().values().cloned().collect()
    }

    /// The table that has an index of that name.
    pub fn table_of_index(&self, index: &str) -> Option<Arc<Table>> {
        let mut tables = self.all_tables().into_iter();
        tables.find(|table| {
            let mut indexes = table.indexes.iter();
            indexes.any(|one| one.definition.name == index)
        })
    }

    /// Makes an index and its files. On failure nothing has changed. Returns the rows indexed.
    pub async fn create_index(self: &Arc<Self>, spec: &IndexSpec) -> Result<u64> {
        let _rewrite = self.rewrites.lock().await;
        let table = self.require_table(&spec.table)?;
        table.ensure_readable()?;
        self.ensure_new_index(&spec.name, None)?;
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
            let file = file.open()?;
            columns = advise_order(&file, &table.schema, &columns, &self.vortex, row_count).await?;
        }
        let definition = self.definition(spec.name.clone(), columns, spec.clustered)?;
        let mut removed = Vec::new();
        let mut added = Vec::new();
        if spec.clustered {
            let order = self.order_by(&table.schema, definition.columns.clone());
            removed = table.files.iter().map(|file| file.paths.number).collect();
            let files = table.files.clone();
            added = self
                .rewrite(&table, files, Some(order), BUDGET_PARTS)
                .await?;
        }
        self.exchange_files(&table, &removed, added, Some(definition))
            .await?;
        Ok(row_count)
    }

    fn definition(
        &self,
        name: String,
        columns: Vec<usize>,
        clustered: bool,
    ) -> Result<IndexDefinition> {
        Ok(IndexDefinition {
            id: self.store.next_number()? as i64,
            name,
            columns,
            clustered,
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
        Ok(Some(self.definition(name, columns, true)?))
    }

    /// Writes the files of the index that a table is made with.
    pub(super) async fn index_new_table(
        &self,
        row: &TableRow,
        definition: IndexDefinition,
    ) -> Result<IndexRow> {
        let column_ids = self.number_columns(&row.name, &row.schema);
        let writer = self.index_writer(&row.schema, &definition);
        let mut files = Vec::with_capacity(row.files.len());
        for file in &row.files {
            let file =
                Arc::new(self.table_file(&row.folder, file.clone(), (&row.schema, &column_ids))?);
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

    fn index_writer(&self, schema: &SchemaRef, definition: &IndexDefinition) -> IndexWriter {
        let order = self.order_by(schema, definition.columns.clone());
        IndexWriter {
            schema: schema.clone(),
            session: self.vortex.clone(),
            index: definition.id,
            columns: order.columns,
            clustered: definition.clustered,
            stretch_rows: order.stretch_rows,
            threads: order.threads,
        }
    }

    /// Whether the name is free, or will be when a table has been replaced.
    pub(super) fn ensure_new_index(&self, name: &str, replaced: Option<&str>) -> Result<()> {
        let table = self.table_of_index(name);
        match table.filter(|table| Some(table.name.as_str()) != replaced) {
            None => Ok(()),
            Some(table) => Err(Error::IndexExists {
                index: name.to_owned(),
                table: table.name.clone(),
            }),
        }
    }

    /// Drops an index. Queries that use it finish; its files go when they have.
    pub fn drop_index(&self, name: &str) -> Result<()> {
        let _change = self.changes.lock();
        let Some(table) = self.table_of_index(name) else {
            let tables = self.all_tables();
            let names = tables.iter().flat_map(|table| &table.indexes);
            return Err(Error::UnknownIndex {
                index: name.to_owned(),
                nearest: nearest(name, names.map(|index| index.definition.name.as_str())),
            });
        };
        let (dropped, kept): (Vec<_>, Vec<_>) = table
            .indexes
            .iter()
            .cloned()
            .partition(|index| index.definition.name == name);
        for index in &dropped {
            self.store.drop_index(&table.folder, index.definition.id)?;
        }
        let changed = table.changed(table.files.clone(), kept);
        self.tables
            .write()
            .insert(table.name.clone(), Arc::new(changed));
        Ok(())
    }

    /// Merges the small files of a table, and their Elfs. Returns how many files became how many.
    pub async fn optimize_table(self: &Arc<Self>, name: &str) -> Result<(usize, usize)> {
        let _rewrite = self.rewrites.lock().await;
        let table = self.require_table(name)?;
        table.ensure_readable()?;
        let small: Vec<Arc<TableFile>> = table
            .files
            .iter()
            .filter(|file| file.stats.row_count < MERGE_ROWS)
            .cloned()
            .collect();
        let unindexed = table.indexes.iter().any(|index| {
            let mut files = table.files.iter();
            files.any(|file| !matches!(index.files.get(&file.paths.number), Some(Ok(_))))
        });
        let merges = if small.len() > 1 { small } else { Vec::new() };
        if merges.is_empty() && !unindexed {
            return Ok((0, 0));
        }
        self.merge_files(&table, merges, BUDGET_PARTS).await
    }

    /// Writes some files anew as fewer, if any are given, and the index files that are missing or broken. Returns how many
    /// files became how many.
    pub(super) async fn merge_files(
        self: &Arc<Self>,
        table: &Arc<Table>,
        files: Vec<Arc<TableFile>>,
        budget_parts: u64,
    ) -> Result<(usize, usize)> {
        let removed: Vec<u64> = files.iter().map(|file| file.paths.number).collect();
        let added = match files.is_empty() {
            true => Vec::new(),
            false => {
                let order = self.order_of(table);
                self.rewrite(table, files, order, budget_parts).await?
            }
        };
        let counts = (removed.len(), added.len());
        let rebuilt = self.without_broken_indexes(table);
        self.exchange_files(&rebuilt, &removed, added, None).await?;
        Ok(counts)
    }

    /// The table as if broken index files had never been tried, so that they are built again.
    fn without_broken_indexes(&self, table: &Arc<Table>) -> Arc<Table> {
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
                changed
            }
            _ => table.clone(),
        }
    }

    /// The order of a table's rows, if it is clustered.
    pub(super) fn order_of(&self, table: &Table) -> Option<RowOrder> {
        let index = table.clustered()?;
        Some(self.order_by(&table.schema, index.definition.columns.clone()))
    }

    pub(super) fn order_by(&self, schema: &SchemaRef, columns: Vec<usize>) -> RowOrder {
        let options = self.options.read();
        RowOrder {
            columns,
            stretch_rows: stretch_rows(schema, options.budget_bytes),
            threads: options.threads,
        }
    }

    /// Writes the rows of some files into new ones, with one part in `budget_parts` of the budget.
    async fn rewrite(
        self: &Arc<Self>,
        table: &Arc<Table>,
        files: Vec<Arc<TableFile>>,
        order: Option<RowOrder>,
        budget_parts: u64,
    ) -> Result<Vec<FileRow>> {
        let replaces: Vec<u64> = files.iter().map(|file| file.paths.number).collect();
        let part = Arc::new(table.changed(files, Vec::new()));
        let session = crate::session::Session::new(&self.handle_of_its_own());
        let mut config = session.context().copied_config();
        // One reader keeps the rows in the order of the files.
        config.options_mut().execution.target_partitions = 1;
        if let Some(settings) = config
            .options_mut()
            .extensions
            .get_mut::<crate::settings::SessionSettings>()
        {
            settings.populate = false;
        }
        let scan = TableScan::new(self.scan_env.clone(), part, None, None, config.options())
            .map_err(Error::from_query)?;
        let scan: Arc<dyn ExecutionPlan> =
            datafusion::datasource::source::DataSourceExec::from_data_source(scan);
        let context = TaskContext::default()
            .with_session_config(config)
            .with_runtime(self.runtime_env.clone());
        let inputs = execute_partitions(&scan, &Arc::new(context))?;
        let rows = Arc::new(AtomicU64::new(0));
        let how = Writing {
            order,
            replaces: &replaces,
            budget_parts,
        };
        let written = self
            .write_files(&table.folder, &table.schema, inputs, rows, how)
            .await?;
        Ok(self.drop_empty(written, &table.folder))
    }

    /// Takes files out of a table and puts others in, with index files for all indexes, in one transaction.
    /// `added` are on disk already and are removed on failure.
    pub(super) async fn exchange_files(
        self: &Arc<Self>,
        planned: &Arc<Table>,
        removed: &[u64],
        added: Vec<FileRow>,
        new_index: Option<IndexDefinition>,
    ) -> Result<()> {
        let mut uncommitted = Uncommitted {
            data: added
                .iter()
                .map(|file| FilePaths::new(self.store.root(), &planned.folder, file.number))
                .collect(),
            indexes: Vec::new(),
        };
        let opened = added
            .iter()
            .map(|row| {
                let columns = (&planned.schema, planned.column_ids.as_slice());
                let file = self.table_file(&planned.folder, row.clone(), columns)?;
                // What cannot be read again is not committed.
                file.open()?;
                Ok(Arc::new(file))
            })
            .collect::<Result<Vec<_>>>()?;
        let mut tried: BTreeMap<FileOfIndex, Indexed> = BTreeMap::new();
        loop {
            // The table may have changed, or gone, while its rows were written.
            let table = self.require_table(&planned.name)?;
            let gone = || Error::UnknownTable {
                table: planned.name.clone(),
                nearest: None,
            };
            if table.id != planned.id {
                return Err(gone());
            }
            let (leaving, mut files): (Vec<_>, Vec<_>) = table
                .files
                .iter()
                .cloned()
                .partition(|file| removed.contains(&file.paths.number));
            if leaving.len() != removed.len() {
                return Err(gone());
            }
            files.extend(opened.iter().cloned());
            self.index_files(
                &table,
                &files,
                new_index.as_ref(),
                &mut tried,
                &mut uncommitted,
            )
            .await?;
            let _change = self.changes.lock();
            let unchanged = self
                .table_as_is(&planned.name)
                .is_some_and(|now| Arc::ptr_eq(&now, &table));
            if !unchanged {
                continue;
            }
            if let Some(index) = &new_index {
                self.ensure_new_index(&index.name, None)?;
            }
            // An index may have been dropped since its file was written.
            let existing = table.indexes.iter().map(|index| &index.definition);
            let ids: BTreeSet<i64> = existing.chain(&new_index).map(|one| one.id).collect();
            let written: Vec<(i64, u64, u64)> = tried
                .iter()
                .filter_map(|((index, file), tried)| match tried {
                    Indexed::Written(bytes) if ids.contains(index) => Some((*index, *file, *bytes)),
                    _ => None,
                })
                .collect();
            let change = FileChange {
                removed,
                added: &added,
                new_index: new_index.as_ref(),
                index_files: &written,
            };
            let of = TableRef {
                id: table.id,
                folder: &table.folder,
                schema: &table.schema,
            };
            let committed = self.store.change_files(&of, &change).map_err(Error::from);
            if may_be_committed(&committed) {
                uncommitted.data.clear();
                uncommitted
                    .indexes
                    .retain(|paths| !ids.contains(&paths.index_id()));
            }
            committed?;
            let indexes = self.changed_indexes(&table, &files, new_index, &tried);
            let changed = Arc::new(table.changed(files, indexes));
            self.tables.write().insert(table.name.clone(), changed);
            return Ok(());
        }
    }

    /// Writes the index files that are missing and have not been tried.
    async fn index_files(
        self: &Arc<Self>,
        table: &Table,
        files: &[Arc<TableFile>],
        new_index: Option<&IndexDefinition>,
        tried: &mut BTreeMap<FileOfIndex, Indexed>,
        uncommitted: &mut Uncommitted,
    ) -> Result<()> {
        let existing = table.indexes.iter().map(|index| &index.definition);
        for definition in existing.chain(new_index) {
            let known = table
                .indexes
                .iter()
                .find(|index| index.definition.id == definition.id);
            let writer = self.index_writer(&table.schema, definition);
            for file in files {
                let number = file.paths.number;
                let has = known.is_some_and(|index| index.has(number));
                if has || tried.contains_key(&(definition.id, number)) {
                    continue;
                }
                let paths = self.index_paths(&table.folder, number, definition.id);
                let indexed = self
                    .write_index(&writer, &definition.name, file, &paths)
                    .await?;
                if matches!(indexed, Indexed::Written(_)) {
                    uncommitted.indexes.push(paths);
                }
                tried.insert((definition.id, number), indexed);
            }
        }
        Ok(())
    }

    /// The table's indexes after a change, the new files open.
    fn changed_indexes(
        &self,
        table: &Table,
        files: &[Arc<TableFile>],
        new_index: Option<IndexDefinition>,
        tried: &BTreeMap<FileOfIndex, Indexed>,
    ) -> Vec<TableIndex> {
        let new_index = new_index.map(|definition| TableIndex::new(definition, BTreeMap::new()));
        let mut indexes: Vec<TableIndex> = table.indexes.iter().cloned().chain(new_index).collect();
        let numbers: BTreeSet<u64> = files.iter().map(|file| file.paths.number).collect();
        for index in &mut indexes {
            index.files.retain(|number, _| numbers.contains(number));
            index.unavailable.retain(|number| numbers.contains(number));
            index.refused.retain(|number| numbers.contains(number));
            for file in files {
                let number = file.paths.number;
                match tried.get(&(index.definition.id, number)) {
                    Some(Indexed::Written(_)) => {
                        let opened = self.open_index_file(&table.folder, &index.definition, file);
                        index.add(number, opened);
                    }
                    Some(Indexed::Refused(_)) => {
                        index.refused.insert(number);
                    }
                    None => {}
                }
            }
        }
        indexes
    }

    fn open_index_file(
        &self,
        table_folder: &str,
        definition: &IndexDefinition,
        file: &TableFile,
    ) -> Result<Arc<IndexFile>, StoreError> {
        let paths = self.index_paths(table_folder, file.paths.number, definition.id);
        let columns = definition.columns.len();
        let opened = indexes_of(file)
            .and_then(|of| IndexFile::open(&self.opener, &self.elfs, &paths, of, columns));
        opened.map(Arc::new).inspect_err(|error| {
            tracing::warn!(%error, index = definition.name, "an index file cannot be used; its rows are scanned");
        })
    }

    fn index_paths(&self, table_folder: &str, file_number: u64, index: i64) -> IndexPaths {
        IndexPaths::new(self.store.root(), table_folder, file_number, index)
    }

    /// Writes an index file under its final name; nothing is left of it on failure.
    async fn write_index(
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

/// The columns of a table by name: at least one, none twice, all of types that can be indexed.
fn resolve(table: &str, schema: &SchemaRef, names: &[String]) -> Result<Vec<usize>> {
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let fields = schema.fields();
        let Some(column) = fields.iter().position(|field| field.name() == name) else {
            let known = fields.iter().map(|field| field.name().as_str());
            return Err(Error::UnknownColumn {
                table: table.to_owned(),
                column: name.clone(),
                nearest: nearest(name, known),
            });
        };
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
