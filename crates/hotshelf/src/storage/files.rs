//! Writing the data files of tables, under temporary names until all are written.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use hotshelf_store::catalog::FileRow;
use hotshelf_store::data_file::{FilePaths, FileWriter, InputParts, WriteOptions};

use super::Storage;
use super::writing::{UnfinishedFiles, Writing};
use crate::error::{Error, Result};
use crate::statistics::hash_column;

impl Storage {
    /// Writes the rows of `inputs` into a folder, at least one file for each. Their names are final when all are
    /// written.
    pub async fn write_files(
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
        let buffer_bytes_max = self.budget_bytes() / how.budget_parts;
        let unfinished = Arc::new(UnfinishedFiles::default());
        let writes: Vec<_> = inputs
            .into_iter()
            .map(|input| {
                let series = FileSeries {
                    storage: self.clone(),
                    folder: folder.to_owned(),
                    schema: schema.clone(),
                    buffer_bytes_max: buffer_bytes_max / input_count as u64,
                    rows_written: rows_written.clone(),
                    unfinished: unfinished.clone(),
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
        if let Err(error) = self.shelve_new(folder, &rows).await {
            let paths = rows
                .iter()
                .map(|file| FilePaths::new(root, folder, file.number));
            paths.for_each(|paths| paths.remove());
            return Err(error);
        }
        Ok(rows)
    }

    /// The files that have rows; the others are removed.
    pub fn drop_empty(&self, files: Vec<FileRow>, folder: &str) -> Vec<FileRow> {
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
    storage: Arc<Storage>,
    folder: String,
    schema: SchemaRef,
    buffer_bytes_max: u64,
    rows_written: Arc<AtomicU64>,
    unfinished: Arc<UnfinishedFiles>,
    /// Files whose rows these are.
    replaces: Vec<u64>,
}

impl FileSeries {
    /// How much larger batches are in memory than their segments in a file, carefully.
    const COMPRESSION_MIN: u64 = 3;

    async fn write(self, input: InputParts<DataFusionError>) -> Result<Vec<FileRow>> {
        let mut rows = Vec::new();
        loop {
            let number = self.storage.store.next_number()?;
            let paths = FilePaths::new(self.storage.store.root(), &self.folder, number);
            self.unfinished.paths.lock().push(paths.clone());
            let writer = FileWriter {
                session: self.storage.vortex.clone(),
                schema: self.schema.clone(),
                options: WriteOptions {
                    buffer_bytes_max: self.buffer_bytes_max,
                    rows_written: self.rows_written.clone(),
                    gate: self.storage.machine.write_gate.clone(),
                },
                hash: hash_column,
            };
            let part = input.part(self.buffer_bytes_max * Self::COMPRESSION_MIN);
            let origin = self.storage.store.origin(&paths, &self.replaces);
            rows.push(writer.write(part, &paths, origin).await?);
            if input.is_ended().await {
                return Ok(rows);
            }
        }
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
