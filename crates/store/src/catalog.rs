//! The catalog: which tables and files exist, in SQLite.
//!
//! A change becomes visible by *one* transaction here, after its files are safe on disk.
//! What the catalog does not name does not exist: [`crate::sweep`] removes it on opening.

mod names;

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::{Result, StoreError};
use crate::index::IndexDefinition;
use crate::statistics::{ColumnStats, DistinctSketch, FileStats};

pub use names::Names;

/// Version of the folder's format; a program reads this version and older ones.
pub const FORMAT_VERSION: i64 = 1;

const SCHEMA_SQL: &str = "
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS tables (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  folder TEXT NOT NULL UNIQUE,
  arrow_schema BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS schemas (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS views (name TEXT PRIMARY KEY, sql TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  table_id INTEGER NOT NULL REFERENCES tables(id) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  row_count INTEGER NOT NULL,
  file_bytes INTEGER NOT NULL,
  bounds BLOB NOT NULL,
  UNIQUE (table_id, number)
) STRICT;
CREATE TABLE IF NOT EXISTS file_columns (
  file_id INTEGER NOT NULL REFERENCES files(id) ON DELETE CASCADE,
  column_idx INTEGER NOT NULL,
  null_count INTEGER,
  encoded_bytes INTEGER NOT NULL,
  bounds_exact INTEGER NOT NULL,
  distinct_sketch BLOB NOT NULL,
  PRIMARY KEY (file_id, column_idx)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS indexes (
  number INTEGER PRIMARY KEY,
  table_id INTEGER NOT NULL REFERENCES tables(id) ON DELETE CASCADE,
  name TEXT NOT NULL UNIQUE,
  columns TEXT NOT NULL,
  clustered INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS index_files (
  index_number INTEGER NOT NULL REFERENCES indexes(number) ON DELETE CASCADE,
  file_id INTEGER NOT NULL REFERENCES files(id) ON DELETE CASCADE,
  file_bytes INTEGER NOT NULL,
  PRIMARY KEY (index_number, file_id)
) STRICT, WITHOUT ROWID;
";

/// A table as the catalog knows it.
#[derive(Debug, Clone)]
pub struct TableRow {
    /// Its number, never used again.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its folder below `data`.
    pub folder: String,
    /// Its columns.
    pub schema: SchemaRef,
    /// Its data files.
    pub files: Vec<FileRow>,
    /// Its indexes.
    pub indexes: Vec<IndexRow>,
}

/// An index as the catalog knows it.
#[derive(Debug, Clone)]
pub struct IndexRow {
    /// What the user defined.
    pub definition: IndexDefinition,
    /// Numbers of the data files that have an index file, with its length.
    pub files: Vec<(u64, u64)>,
}

/// What becomes of a table's files in one transaction.
#[derive(Debug, Default)]
pub struct FileChange<'a> {
    /// Numbers of files to forget.
    pub removed: &'a [u64],
    /// Files to add.
    pub added: &'a [FileRow],
    /// An index to add.
    pub new_index: Option<&'a IndexDefinition>,
    /// Index, data file and length of new index files.
    pub index_files: &'a [(i64, u64, u64)],
}

/// A data file as the catalog knows it.
#[derive(Debug, Clone)]
pub struct FileRow {
    /// Its number in the table.
    pub number: u64,
    /// Its length.
    pub file_bytes: u64,
    /// What is known of its rows.
    pub stats: FileStats,
}

/// The open catalog. One connection behind a lock: changes are rare and small.
pub struct Catalog {
    connection: Mutex<Connection>,
}

impl Catalog {
    /// Opens or creates the catalog file.
    pub fn open(path: &Path) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.execute_batch(SCHEMA_SQL)?;
        let catalog = Self {
            connection: Mutex::new(connection),
        };
        catalog.check_version()?;
        Ok(catalog)
    }

    fn check_version(&self) -> Result<()> {
        let connection = self.connection.lock();
        let found: Option<String> = connection
            .query_row(
                "SELECT value FROM meta WHERE key = 'format_version'",
                [],
                |row| row.get(0),
            )
            .optional()?;
        let Some(found) = found else {
            connection.execute(
                "INSERT INTO meta VALUES ('format_version', ?1)",
                params![FORMAT_VERSION.to_string()],
            )?;
            return Ok(());
        };
        let found = found.parse().unwrap_or(i64::MAX);
        if found > FORMAT_VERSION {
            return Err(StoreError::NewerFormat {
                found,
                supported: FORMAT_VERSION,
            });
        }
        Ok(())
    }

    /// All tables with their files, by name.
    pub fn tables(&self) -> Result<Vec<TableRow>> {
        let connection = self.connection.lock();
        let mut statement = connection
            .prepare("SELECT id, name, folder, arrow_schema FROM tables ORDER BY name")?;
        let rows = statement
            .query_map([], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?
            .collect::<rusqlite::Result<Vec<(i64, String, String, Vec<u8>)>>>()?;
        rows.into_iter()
            .map(|(id, name, folder, schema)| {
                let schema = decode_schema(&schema)?;
                let files = files_of(&connection, id, &schema)?;
                let indexes = indexes_of(&connection, id, &schema)?;
                Ok(TableRow {
                    indexes,
                    id,
                    name,
                    folder,
                    schema,
                    files,
                })
            })
            .collect()
    }

    /// Adds a table with its files and indexes in one transaction and returns its id, whatever id it has so far;
    /// `replaces` names a table to drop with it.
    pub fn add_table(&self, table: &TableRow, replaces: Option<i64>) -> Result<i64> {
        let schema = &table.schema;
        let mut connection = self.connection.lock();
        let transaction = connection.transaction()?;
        if let Some(id) = replaces {
            transaction.execute("DELETE FROM tables WHERE id = ?1", params![id])?;
        }
        transaction.execute(
            "INSERT INTO tables (name, folder, arrow_schema) VALUES (?1, ?2, ?3)",
            params![table.name, table.folder, encode_schema(schema)?],
        )?;
        let id = transaction.last_insert_rowid();
        insert_files(&transaction, id, schema, &table.files)?;
        for index in &table.indexes {
            insert_index(&transaction, id, schema, &index.definition)?;
            for (number, bytes) in &index.files {
                insert_index_file(&transaction, id, (index.definition.id, *number, *bytes))?;
            }
        }
        transaction.commit()?;
        Ok(id)
    }

    /// Changes a table's files and indexes in one transaction.
    pub fn change_files(
        &self,
        table_id: i64,
        schema: &SchemaRef,
        change: &FileChange<'_>,
    ) -> Result<()> {
        let mut connection = self.connection.lock();
        let transaction = connection.transaction()?;
        for number in change.removed {
            transaction.execute(
                "DELETE FROM files WHERE table_id = ?1 AND number = ?2",
                params![table_id, number],
            )?;
        }
        insert_files(&transaction, table_id, schema, change.added)?;
        if let Some(index) = change.new_index {
            insert_index(&transaction, table_id, schema, index)?;
        }
        for index_file in change.index_files {
            insert_index_file(&transaction, table_id, *index_file)?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Forgets an index and its files.
    pub fn drop_index(&self, number: i64) -> Result<()> {
        self.connection
            .lock()
            .execute("DELETE FROM indexes WHERE number = ?1", params![number])?;
        Ok(())
    }

    /// Forgets a table and its files.
    pub fn drop_table(&self, table_id: i64) -> Result<()> {
        self.connection
            .lock()
            .execute("DELETE FROM tables WHERE id = ?1", params![table_id])?;
        Ok(())
    }

    /// SQLite's own check of the catalog file: `ok`, or what is wrong.
    pub fn integrity(&self) -> Result<String> {
        Ok(self
            .connection
            .lock()
            .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?)
    }
}

fn files_of(connection: &Connection, table_id: i64, schema: &SchemaRef) -> Result<Vec<FileRow>> {
    let mut statement = connection
        .prepare("SELECT id, number, row_count, file_bytes, bounds FROM files WHERE table_id = ?1 ORDER BY number")?;
    let rows = statement
        .query_map(params![table_id], |row| {
            Ok((
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get(3)?,
                row.get(4)?,
            ))
        })?
        .collect::<rusqlite::Result<Vec<(i64, u64, u64, u64, Vec<u8>)>>>()?;
    rows.into_iter()
        .map(|(id, number, row_count, file_bytes, bounds)| {
            let columns = columns_of(connection, id)?;
            if columns.len() != schema.fields().len() {
                return Err(damaged(format!(
                    "file {number} has statistics of {} columns",
                    columns.len()
                )));
            }
            let stats = FileStats {
                row_count,
                columns,
                bounds: decode_bounds(&bounds)?,
            };
            Ok(FileRow {
                number,
                file_bytes,
                stats,
            })
        })
        .collect()
}

fn indexes_of(connection: &Connection, table_id: i64, schema: &SchemaRef) -> Result<Vec<IndexRow>> {
    let mut statement = connection.prepare(
        "SELECT number, name, columns, clustered FROM indexes WHERE table_id = ?1 ORDER BY number",
    )?;
    let rows = statement
        .query_map(params![table_id], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?
        .collect::<rusqlite::Result<Vec<(i64, String, String, bool)>>>()?;
    let mut statement = connection.prepare(
        "SELECT files.number, index_files.file_bytes FROM index_files JOIN files ON files.id = file_id
         WHERE index_number = ?1 ORDER BY files.number",
    )?;
    rows.into_iter()
        .map(|(id, name, columns, clustered)| {
            let names: Vec<String> = serde_json::from_str(&columns)
                .map_err(|error| damaged(format!("index {name}: {error}")))?;
            let columns = names
                .iter()
                .map(|column| schema.index_of(column))
                .collect::<Result<Vec<usize>, _>>()
                .map_err(|error| damaged(format!("index {name}: {error}")))?;
            let files = statement
                .query_map(params![id], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<Vec<(u64, u64)>>>()?;
            let definition = IndexDefinition {
                id,
                name,
                columns,
                clustered,
            };
            Ok(IndexRow { definition, files })
        })
        .collect()
}

fn columns_of(connection: &Connection, file_id: i64) -> Result<Vec<ColumnStats>> {
    let mut statement = connection.prepare(
        "SELECT null_count, encoded_bytes, bounds_exact, distinct_sketch FROM file_columns
         WHERE file_id = ?1 ORDER BY column_idx",
    )?;
    let columns = statement
        .query_map(params![file_id], |row| {
            Ok(ColumnStats {
                null_count: row.get(0)?,
                encoded_bytes: row.get(1)?,
                bounds_exact: row.get(2)?,
                distinct: DistinctSketch::from_bytes(&row.get::<_, Vec<u8>>(3)?),
            })
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(columns)
}

fn insert_files(
    connection: &Connection,
    table_id: i64,
    schema: &SchemaRef,
    files: &[FileRow],
) -> Result<()> {
    for file in files {
        connection.execute(
            "INSERT INTO files (table_id, number, row_count, file_bytes, bounds) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                table_id,
                file.number,
                file.stats.row_count,
                file.file_bytes,
                encode_bounds(schema, &file.stats.bounds)?
            ],
        )?;
        let file_id = connection.last_insert_rowid();
        for (column_idx, column) in file.stats.columns.iter().enumerate() {
            connection.execute(
                "INSERT INTO file_columns VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    file_id,
                    column_idx,
                    column.null_count,
                    column.encoded_bytes,
                    column.bounds_exact,
                    column.distinct.to_bytes()
                ],
            )?;
        }
    }
    Ok(())
}

fn insert_index(
    connection: &Connection,
    table_id: i64,
    schema: &SchemaRef,
    index: &IndexDefinition,
) -> Result<()> {
    let columns = index.columns.iter();
    let columns: Vec<&str> = columns
        .map(|column| schema.field(*column).name().as_str())
        .collect();
    let columns = serde_json::to_string(&columns).unwrap_or_default();
    connection.execute(
        "INSERT INTO indexes VALUES (?1, ?2, ?3, ?4, ?5)",
        params![index.id, table_id, index.name, columns, index.clustered],
    )?;
    Ok(())
}

/// Adds the file of an index for a data file, with its length.
fn insert_index_file(
    connection: &Connection,
    table_id: i64,
    (index, number, bytes): (i64, u64, u64),
) -> Result<()> {
    connection.execute(
        "INSERT INTO index_files SELECT ?1, id, ?3 FROM files WHERE table_id = ?4 AND number = ?2",
        params![index, number, bytes, table_id],
    )?;
    Ok(())
}

fn encode_schema(schema: &SchemaRef) -> Result<Vec<u8>> {
    encode_ipc(schema, None)
}

fn decode_schema(bytes: &[u8]) -> Result<SchemaRef> {
    Ok(decode_ipc(bytes)?.0)
}

/// Two rows, the minima and the maxima, in the table's columns made nullable.
fn encode_bounds(schema: &SchemaRef, bounds: &Option<RecordBatch>) -> Result<Vec<u8>> {
    let schema = bounds
        .as_ref()
        .map_or_else(|| schema.clone(), |batch| batch.schema());
    encode_ipc(&schema, bounds.as_ref())
}

fn decode_bounds(bytes: &[u8]) -> Result<Option<RecordBatch>> {
    Ok(decode_ipc(bytes)?.1)
}

fn encode_ipc(schema: &Schema, batch: Option<&RecordBatch>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let written = (|| -> Result<(), arrow::error::ArrowError> {
        let mut writer = StreamWriter::try_new(&mut bytes, schema)?;
        if let Some(batch) = batch {
            writer.write(batch)?;
        }
        writer.finish()
    })();
    written?;
    Ok(bytes)
}

fn decode_ipc(bytes: &[u8]) -> Result<(SchemaRef, Option<RecordBatch>)> {
    let mut reader =
        StreamReader::try_new(bytes, None).map_err(|error| damaged(error.to_string()))?;
    let schema = reader.schema();
    let batch = reader
        .next()
        .transpose()
        .map_err(|error| damaged(error.to_string()))?;
    Ok((Arc::clone(&schema), batch))
}

fn damaged(found: String) -> StoreError {
    StoreError::Corruption(hotshelf_tier::Corruption {
        file: "catalog.sqlite".into(),
        offset: 0,
        what: "catalog entry".into(),
        expected: "a readable entry".into(),
        found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field};

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int32, false),
            Field::new("b", DataType::Utf8, true),
        ]))
    }

    fn table(folder: &str, files: Vec<FileRow>) -> TableRow {
        TableRow {
            id: 0,
            name: "t".into(),
            folder: folder.into(),
            schema: schema(),
            files,
            indexes: Vec::new(),
        }
    }

    fn file(number: u64) -> FileRow {
        let mut stats = FileStats::empty(2);
        stats.row_count = 3;
        stats.columns[1].null_count = Some(1);
        FileRow {
            number,
            file_bytes: 100,
            stats,
        }
    }

    #[test]
    fn tables_and_files_survive_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog.sqlite");
        let catalog = Catalog::open(&path).unwrap();
        let id = catalog
            .add_table(&table("t-1", vec![file(1)]), None)
            .unwrap();
        let index = IndexDefinition {
            id: 9,
            name: "i".into(),
            columns: vec![1, 0],
            clustered: true,
        };
        let change = FileChange {
            added: &[file(2)],
            new_index: Some(&index),
            index_files: &[(9, 1, 70), (9, 2, 80)],
            ..FileChange::default()
        };
        catalog.change_files(id, &schema(), &change).unwrap();
        drop(catalog);
        let tables = Catalog::open(&path).unwrap().tables().unwrap();
        assert_eq!(tables.len(), 1);
        assert_eq!(tables[0].schema, schema());
        let numbers: Vec<u64> = tables[0].files.iter().map(|file| file.number).collect();
        assert_eq!(numbers, [1, 2]);
        assert_eq!(tables[0].files[0].stats.columns[1].null_count, Some(1));
        assert_eq!(tables[0].indexes[0].definition, index);
        assert_eq!(tables[0].indexes[0].files, [(1, 70), (2, 80)]);
    }

    #[test]
    fn removed_files_take_their_index_files_along() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&folder.path().join("c")).unwrap();
        let id = catalog
            .add_table(&table("t-1", vec![file(1), file(2)]), None)
            .unwrap();
        let index = IndexDefinition {
            id: 3,
            name: "i".into(),
            columns: vec![0],
            clustered: false,
        };
        let change = FileChange {
            new_index: Some(&index),
            index_files: &[(3, 1, 70), (3, 2, 80)],
            ..FileChange::default()
        };
        catalog.change_files(id, &schema(), &change).unwrap();
        let change = FileChange {
            removed: &[1],
            added: &[file(5)],
            index_files: &[(3, 5, 90)],
            ..FileChange::default()
        };
        catalog.change_files(id, &schema(), &change).unwrap();
        let tables = catalog.tables().unwrap();
        assert_eq!(tables[0].indexes[0].files, [(2, 80), (5, 90)]);
        catalog.drop_index(3).unwrap();
        assert!(catalog.tables().unwrap()[0].indexes.is_empty());
    }

    #[test]
    fn dropping_a_table_forgets_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&folder.path().join("c")).unwrap();
        let id = catalog
            .add_table(&table("t-1", vec![file(1)]), None)
            .unwrap();
        catalog.drop_table(id).unwrap();
        assert!(catalog.tables().unwrap().is_empty());
        let next = catalog.add_table(&table("t-2", vec![]), None).unwrap();
        assert_ne!(next, id, "ids are never used twice");
    }

    #[test]
    fn a_newer_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c");
        let catalog = Catalog::open(&path).unwrap();
        catalog
            .connection
            .lock()
            .execute("UPDATE meta SET value = '99'", [])
            .unwrap();
        drop(catalog);
        assert!(matches!(
            Catalog::open(&path),
            Err(StoreError::NewerFormat { found: 99, .. })
        ));
    }
}
