//! The files of a database: writing new ones under temporary names, removing what no table has.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use parking_lot::Mutex;

use super::{Inner, indexes};
use crate::catalog::{FileRow, TableRow};
use crate::data_file::{FilePaths, FileWriter, InputParts, WriteOptions};
use crate::error::{Error, Result};
use crate::index::cluster;

impl Inner {
    /// Writes the rows of `inputs` into a folder, at least one file for each. Their names are final when all are written.
    pub(super) async fn write_files(
        self: &Arc<Self>,
        folder: &Path,
        schema: &SchemaRef,
        inputs: Vec<SendableRecordBatchStream>,
        rows_written: Arc<AtomicU64>,
        order: Option<RowOrder>,
    ) -> Result<Vec<FileRow>> {
        let sums = folder.join("sums");
        std::fs::create_dir_all(&sums).map_err(Error::io("create", &sums))?;
        let input_count = inputs.len().max(1);
        let budget_bytes = self.options.read().budget_bytes;
        let unfinished = Arc::new(UnfinishedFiles::default());
        let writes: Vec<_> = inputs
            .into_iter()
            .map(|input| {
                let series = FileSeries {
                    inner: self.clone(),
                    folder: folder.to_owned(),
                    schema: schema.clone(),
                    buffer_bytes_max: budget_bytes / 2 / input_count as u64,
                    rows_written: rows_written.clone(),
                    unfinished: unfinished.clone(),
                    order: order.clone(),
                };
                tokio::spawn(async move { series.write(InputParts::new(input)).await })
            })
            .collect();
        let aborts: Vec<_> = writes
            .iter()
            .map(|task| AbortOnDrop(task.abort_handle()))
            .collect();
        let mut rows = Vec::with_capacity(writes.len());
        for task in writes {
            let stopped = |error| Error::Query(DataFusionError::ExecutionJoin(Box::new(error)));
            rows.extend(task.await.map_err(stopped)??);
        }
        unfinished.finish()?;
        sync_folder(&self.root.join("data"))?;
        drop(aborts);
        Ok(rows)
    }

    /// Removes what the catalog does not name: leftovers of a crash.
    pub(super) fn sweep(&self, rows: &[TableRow]) -> Result<()> {
        let data = self.root.join("data");
        for entry in read_folder(&data)? {
            let name = file_name(&entry);
            match rows.iter().find(|row| row.folder == name) {
                None => remove_folder(&entry),
                Some(row) => sweep_table(&entry, row)?,
            }
        }
        Ok(())
    }
}

/// The files that have rows; the others are removed.
pub(super) fn drop_empty(files: Vec<FileRow>, folder: &Path) -> Vec<FileRow> {
    let (filled, empty): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| file.stats.row_count > 0);
    for file in empty {
        FilePaths::new(folder, file.number).remove();
    }
    filled
}

/// Writes one input stream into as many files as the memory asks for.
struct FileSeries {
    inner: Arc<Inner>,
    folder: PathBuf,
    schema: SchemaRef,
    buffer_bytes_max: u64,
    rows_written: Arc<AtomicU64>,
    unfinished: Arc<UnfinishedFiles>,
    order: Option<RowOrder>,
}

/// The order in which data files hold their rows.
#[derive(Debug, Clone)]
pub(super) struct RowOrder {
    pub columns: Vec<usize>,
    pub stretch_rows: u64,
    pub threads: usize,
}

impl FileSeries {
    /// How much larger batches are in memory than their segments in a file, carefully.
    const COMPRESSION_MIN: u64 = 3;

    async fn write(self, input: InputParts) -> Result<Vec<FileRow>> {
        let mut rows = Vec::new();
        loop {
            let number = self.inner.next_file_number.fetch_add(1, Ordering::Relaxed);
            let paths = FilePaths::new(&self.folder, number);
            self.unfinished.paths.lock().push(paths.clone());
            let writer = FileWriter {
                session: self.inner.vortex.clone(),
                schema: self.schema.clone(),
                options: WriteOptions {
                    buffer_bytes_max: self.buffer_bytes_max,
                    rows_written: self.rows_written.clone(),
                    gate: self.inner.write_gate.clone(),
                },
            };
            let mut part = input.part(self.buffer_bytes_max * Self::COMPRESSION_MIN);
            if let Some(order) = &self.order {
                part = cluster(
                    part,
                    order.columns.clone(),
                    order.stretch_rows,
                    order.threads,
                );
            }
            rows.push(writer.write(part, &paths).await?);
            if input.is_ended().await {
                return Ok(rows);
            }
        }
    }
}

/// Files being written, or written and not yet renamed: gone when this is dropped before [`Self::finish`].
#[derive(Default)]
struct UnfinishedFiles {
    paths: Mutex<Vec<FilePaths>>,
}

impl UnfinishedFiles {
    /// Gives all files their final names.
    fn finish(&self) -> Result<()> {
        let mut paths = self.paths.lock();
        for paths in paths.iter() {
            paths.rename()?;
        }
        paths.clear();
        Ok(())
    }
}

impl Drop for UnfinishedFiles {
    fn drop(&mut self) {
        for paths in self.paths.get_mut().iter() {
            paths.remove_temporary();
            paths.remove();
        }
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(Error::io("sync", folder))
}

fn sweep_table(folder: &Path, row: &TableRow) -> Result<()> {
    let known = |path: &Path, suffix: &str| {
        let name = file_name(path);
        let number = name
            .strip_suffix(suffix)
            .and_then(|stem| stem.parse::<u64>().ok());
        number.is_some_and(|number| row.files.iter().any(|file| file.number == number))
    };
    for entry in read_folder(folder)? {
        if file_name(&entry) == "elf" {
            indexes::sweep(&entry, row)?;
        } else if entry.is_dir() {
            for sums in read_folder(&entry)?
                .into_iter()
                .filter(|path| !known(path, ".crc"))
            {
                std::fs::remove_file(sums).ok();
            }
        } else if !known(&entry, ".vortex") {
            std::fs::remove_file(entry).ok();
        }
    }
    Ok(())
}

pub(super) fn read_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(Error::io("list", folder))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

pub(super) fn remove_folder(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "cannot remove a folder; opening the database again will try once more");
    }
}

/// Removes a folder in which a thread may still make files: what appears meanwhile is removed in the next round.
pub(super) fn remove_busy_folder(folder: &Path) {
    const ROUNDS_MAX: usize = 20;
    for _ in 0..ROUNDS_MAX {
        if std::fs::remove_dir_all(folder).is_ok() || !folder.exists() {
            return;
        }
    }
    remove_folder(folder);
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The highest number in a table's files and folder name.
pub(super) fn highest_number(row: &TableRow) -> u64 {
    let folder = row
        .folder
        .rsplit('-')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0);
    let indexes = row.indexes.iter();
    let index = indexes.map(|index| index.definition.id as u64).max();
    row.files
        .iter()
        .map(|file| file.number)
        .max()
        .unwrap_or(0)
        .max(folder)
        .max(index.unwrap_or(0))
}

/// A folder name that shows the table's name, whatever characters it has, and is new.
pub(super) fn folder_name(table: &str, number: u64) -> String {
    let slug: String = table
        .chars()
        .take(40)
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    format!("{slug}-{number}")
}
