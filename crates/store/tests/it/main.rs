//! Tests of the store from outside: one binary, one topic a module.

mod checked;
mod copies;
mod first_use;
mod journal;
mod kept;
mod lock;
mod lost;
mod repair;
mod shelf;
mod unwritable;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use futures::StreamExt;
use hotshelf_store::catalog::{FileChange, FileRow, TableRef, TableRow};
use hotshelf_store::data_file::{FilePaths, FileWriter, WriteGate, WriteOptions};
use hotshelf_store::folder::folder_name;
use hotshelf_store::{Result, Store, StoreError, vortex_session};

/// A folder for a database, and what a program does in it.
struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("db")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn open(&self) -> (Store, Vec<TableRow>) {
        Store::open(&self.path(), true).unwrap()
    }

    fn refusal(&self) -> StoreError {
        Store::open(&self.path(), true).unwrap_err()
    }

    /// A database with this many tables of 100 rows each, closed.
    fn with_tables(count: usize) -> Self {
        let fixture = Self::new();
        let (store, _) = fixture.open();
        for table in 0..count {
            create_table(&store, &format!("t{table}"), 100).unwrap();
        }
        fixture
    }

    /// What a killed process leaves: a copy of the folder while it is open.
    fn copy(&self, name: &str) -> Self {
        let copy = Self::new();
        copy_folder(&self.path(), &copy.path());
        assert!(copy.path().exists(), "{name}");
        copy
    }

    /// Names of everything below the folder's `data`.
    fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        list(&self.at("data"), Path::new(""), &mut found);
        found.sort();
        found
    }
}

fn list(folder: &Path, below: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = below.join(entry.file_name());
        match entry.path().is_dir() {
            true => list(&entry.path(), &name, found),
            false => found.push(name.to_string_lossy().into_owned()),
        }
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]))
}

fn hash(column: &ArrayRef, hashes: &mut [u64]) -> bool {
    let values = column.as_primitive::<Int64Type>().values();
    for (hash, value) in hashes.iter_mut().zip(values) {
        *hash = (*value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    true
}

/// Writes a data file of the numbers from 0; its names are final.
fn write_file(store: &Store, folder: &str, row_count: i64, replaces: &[u64]) -> Result<FileRow> {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..row_count));
    let batch = RecordBatch::try_new(schema(), vec![column]).unwrap();
    write_batch(store, folder, batch, replaces)
}

/// Writes a data file of these rows; its names are final.
fn write_batch(
    store: &Store,
    folder: &str,
    batch: RecordBatch,
    replaces: &[u64],
) -> Result<FileRow> {
    let paths = FilePaths::new(store.root(), folder, store.next_number()?);
    store
        .root()
        .create_folder(&store.root().table(folder).join("sums"))?;
    let writer = FileWriter {
        session: vortex_session(),
        schema: batch.schema(),
        options: WriteOptions {
            buffer_bytes_max: 1 << 20,
            rows_written: Arc::default(),
            gate: Arc::new(WriteGate::new(1, 4096, None)),
        },
        hash,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let rows = futures::stream::iter([Ok::<_, StoreError>(batch)]).boxed();
    let row = runtime.block_on(writer.write(rows, &paths, store.origin(&paths, replaces)))?;
    paths.rename()?;
    Ok(row)
}

fn create_table(store: &Store, name: &str, row_count: i64) -> Result<TableRow> {
    let folder = folder_name(name, store.next_number()?);
    let file = write_file(store, &folder, row_count, &[])?;
    let mut row = TableRow::new(name.into(), folder, schema(), vec![file]);
    row.id = store.add_table(&row, None)?;
    Ok(row)
}

/// Adds rows to a table as one file, and takes files out.
fn exchange(store: &Store, table: &TableRow, row_count: i64, removed: &[u64]) -> Result<FileRow> {
    let file = write_file(store, &table.folder, row_count, removed)?;
    let of = TableRef {
        id: table.id,
        folder: &table.folder,
        schema: &table.schema,
    };
    let change = FileChange {
        removed,
        added: std::slice::from_ref(&file),
        ..FileChange::default()
    };
    store.change_files(&of, &change)?;
    Ok(file)
}

fn row_count(rows: &[TableRow]) -> u64 {
    let files = rows.iter().flat_map(|row| &row.files);
    files.map(|file| file.stats.row_count).sum()
}
