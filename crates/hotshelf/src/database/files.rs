//! The files of a database: writing new ones under temporary names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use hotshelf_store::StoreError;
use hotshelf_store::root::Root;
use parking_lot::Mutex;

use super::Inner;
use crate::error::{Error, Result};
use crate::index::cluster;
use crate::statistics::hash_column;
use hotshelf_store::catalog::FileRow;
use hotshelf_store::data_file::{FilePaths, FileWriter, InputParts, WriteOptions};

impl Inner {
    /// Writes the rows of `inputs` into a folder, at least one file for each. Their names are final when all are written.
    pub(super) async fn write_files(
        self: &Arc<Self>,
        folder: &str,
        schema: &SchemaRef,
        inputs: Vec<SendableRecordBatchStream>,
        rows_written: Arc<AtomicU64>,
        how: Writing<'_>,
    ) -> Result<Vec<FileRow>> {
        let root = self.store.root();
        root.create_folder(&root.table(folder).join("sums"))?;
        let input_count = inputs.len().max(1);
        let buffer_bytes_max = self.options.read().budget_bytes / how.budget_parts;
        let unfinished = Arc::new(UnfinishedFiles::default());
        let writes: Vec<_> = inputs
            .into_iter()
            .map(|input| {
                let series = FileSeries {
                    inner: self.clone(),
                    folder: folder.to_owned(),
                    schema: schema.clone(),
                    buffer_bytes_max: buffer_bytes_max / input_count as u64,
                    rows_written: rows_written.clone(),
                    unfinished: unfinished.clone(),
                    order: how.order.clone(),
                    replaces: how.replaces.to_vec(),
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
        drop(aborts);
        Ok(rows)
    }

    /// The files that have rows; the others are removed.
    pub(super) fn drop_empty(&self, files: Vec<FileRow>, folder: &str) -> Vec<FileRow> {
        let (filled, empty): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| file.stats.row_count > 0);
        for file in empty {
            FilePaths::new(self.store.root(), folder, file.number).remove();
        }
        filled
    }
}

/// Writes one input stream into as many files as the memory asks for.
struct FileSeries {
    inner: Arc<Inner>,
    folder: String,
    schema: SchemaRef,
    buffer_bytes_max: u64,
    rows_written: Arc<AtomicU64>,
    unfinished: Arc<UnfinishedFiles>,
    order: Option<RowOrder>,
    /// Files whose rows these are.
    replaces: Vec<u64>,
}

/// How rows are written to files.
pub(super) struct Writing<'a> {
    pub order: Option<RowOrder>,
    /// Files whose rows these are.
    pub replaces: &'a [u64],
    /// One part in so many of the budget may be used.
    pub budget_parts: u64,
}

impl Writing<'_> {
    /// New rows.
    pub fn new(order: Option<RowOrder>) -> Self {
        Self {
            order,
            replaces: &[],
            budget_parts: BUDGET_PARTS,
        }
    }
}

/// Statements may hold one part in so many of the budget for what they write.
pub(super) const BUDGET_PARTS: u64 = 2;

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

    async fn write(self, input: InputParts<DataFusionError>) -> Result<Vec<FileRow>> {
        let mut rows = Vec::new();
        loop {
            let number = self.inner.store.next_number()?;
            let paths = FilePaths::new(self.inner.store.root(), &self.folder, number);
            self.unfinished.paths.lock().push(paths.clone());
            let writer = FileWriter {
                session: self.inner.vortex.clone(),
                schema: self.schema.clone(),
                options: WriteOptions {
                    buffer_bytes_max: self.buffer_bytes_max,
                    rows_written: self.rows_written.clone(),
                    gate: self.inner.write_gate.clone(),
                },
                hash: hash_column,
            };
            let mut part = input.part(self.buffer_bytes_max * Self::COMPRESSION_MIN);
            if let Some(order) = &self.order {
                let rows = RecordBatchStreamAdapter::new(self.schema.clone(), part);
                let (columns, stretch_rows) = (order.columns.clone(), order.stretch_rows);
                part = cluster(Box::pin(rows), columns, stretch_rows, order.threads);
            }
            let origin = self.inner.store.origin(&paths, &self.replaces);
            rows.push(writer.write(part, &paths, origin).await?);
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

/// The folder of a table that is being made: gone when this is dropped before the table is in the catalog.
pub(super) struct UnfinishedFolder {
    root: Root,
    folder: Option<PathBuf>,
}

impl UnfinishedFolder {
    pub fn new(root: &Root, folder: &str) -> Self {
        Self {
            root: root.clone(),
            folder: Some(root.table(folder)),
        }
    }

    /// Keeps the folder if the change was committed, or may have been.
    pub fn keep_if(mut self, committed: Result<()>) -> Result<()> {
        if may_be_committed(&committed) {
            self.folder = None;
        }
        committed
    }
}

impl Drop for UnfinishedFolder {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            self.root.remove(folder);
        }
    }
}

/// Whether a change may be in the catalog: its files must stay then. The next opening knows.
pub(super) fn may_be_committed<R>(change: &Result<R>) -> bool {
    match change {
        Ok(_) => true,
        // On a full disk the end of the transaction was not written.
        Err(Error::Store(error @ StoreError::Commit(_))) => !error.is_disk_full(),
        Err(_) => false,
    }
}

/// Removes a folder in which a thread may still make files: what appears meanwhile is removed in the next round.
pub(super) fn remove_busy_folder(folder: &Path) {
    const ROUNDS_MAX: usize = 20;
    for _ in 0..ROUNDS_MAX {
        match std::fs::remove_dir_all(folder) {
            Err(_) if folder.exists() => {}
            _ => return,
        }
    }
    tracing::warn!(folder = %folder.display(), "a temporary folder cannot be removed");
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
