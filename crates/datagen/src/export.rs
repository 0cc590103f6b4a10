//! Writes generated tables as Parquet, one file per table, one row group per partition.
//!
//! Threads generate and encode partitions round-robin; the calling thread appends the encoded row groups in order. Each
//! thread is at most one row group ahead, so memory is bounded by two row groups per thread, and the file does not
//! depend on the number of threads. A file appears under its name only when it is complete and synced.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use arrow::array::{Array, ArrayRef};
use arrow::compute::{partition, sort};
use arrow::error::ArrowError;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::add_encoded_arrow_schema_to_metadata;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use crate::dataset::Dataset;
use crate::error::GenerateError;

/// A column gets a dictionary if its first batch has fewer distinct values than one in this many: with more, the writer
/// would give the dictionary up after a page, and the rest would stay larger than plain values.
const DISTINCT_SHARE: usize = 5;

/// How to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteOptions {
    /// Threads that generate and encode.
    pub threads: usize,
    /// Zstandard level, 1 to 22.
    pub zstd_level: i32,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            threads: thread::available_parallelism().map_or(1, usize::from),
            zstd_level: 1,
        }
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenTable {
    /// The file.
    pub path: PathBuf,
    /// Its rows.
    pub row_count: u64,
    /// Its size.
    pub file_bytes: u64,
}

/// Writes `table` to `folder/<table>.parquet`, replacing such a file, and calls `progress` with the rows written so far
/// after each row group. The folder is created if needed.
///
/// # Errors
/// [`GenerateError::Io`] and [`GenerateError::Parquet`]; nothing is left under the table's name or the temporary one.
pub fn write_parquet<D: Dataset>(
    dataset: &D,
    table: D::Table,
    folder: &Path,
    options: WriteOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<WrittenTable, GenerateError> {
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    let path = folder.join(format!("{table}.parquet"));
    let temporary = Temporary::create(folder.join(format!(".{table}.parquet.tmp")))?;
    let row_count = write_row_groups(dataset, table, &temporary, options, progress)
        .map_err(parquet_error(&path))?;
    let file_bytes = temporary.publish(&path)?;
    Ok(WrittenTable {
        path,
        row_count,
        file_bytes,
    })
}

/// A row group's encoded columns and its number of rows.
type Encoded = Result<(Vec<ArrowColumnChunk>, u64), ParquetError>;

fn write_row_groups<D: Dataset>(
    dataset: &D,
    table: D::Table,
    temporary: &Temporary,
    options: WriteOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ParquetError> {
    let schema = dataset.schema(table);
    let mut properties = properties(dataset, table, options)?;
    add_encoded_arrow_schema_to_metadata(&schema, &mut properties);
    let root = ArrowSchemaConverter::new()
        .convert(&schema)?
        .root_schema_ptr();
    let mut writer = SerializedFileWriter::new(&temporary.file, root, Arc::new(properties))?;
    let factory = ArrowRowGroupWriterFactory::new(&writer, schema);

    let partition_count = dataset.partition_count(table);
    let thread_count = options.threads.clamp(1, partition_count);
    let row_count = thread::scope(|scope| {
        let receivers: Vec<Receiver<Encoded>> = (0..thread_count)
            .map(|first_idx| {
                let (sender, receiver) = sync_channel(1);
                let indices = (first_idx..partition_count).step_by(thread_count);
                let factory = &factory;
                scope.spawn(move || encode_partitions(dataset, table, factory, indices, &sender));
                receiver
            })
            .collect();
        append_row_groups(&mut writer, &receivers, partition_count, progress)
    })?;
    writer.close()?;
    Ok(row_count)
}

/// Compression for all columns, dictionaries for those whose first batch repeats its values.
fn properties<D: Dataset>(
    dataset: &D,
    table: D::Table,
    options: WriteOptions,
) -> Result<WriterProperties, ParquetError> {
    let level = ZstdLevel::try_new(options.zstd_level)?;
    let mut builder = WriterProperties::builder().set_compression(Compression::ZSTD(level));
    if let Some(batch) = dataset.partition(table, 0).next() {
        for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
            let repeats = distinct_count(array)? * DISTINCT_SHARE < array.len();
            let column = ColumnPath::from(field.name().as_str());
            builder = builder.set_column_dictionary_enabled(column, repeats);
        }
    }
    Ok(builder.build())
}

fn distinct_count(array: &ArrayRef) -> Result<usize, ArrowError> {
    let sorted = sort(array, None)?;
    Ok(partition(&[sorted])?.len())
}

/// Encodes partitions until all are sent, one fails, or the writer hangs up.
fn encode_partitions<D: Dataset>(
    dataset: &D,
    table: D::Table,
    factory: &ArrowRowGroupWriterFactory,
    indices: impl Iterator<Item = usize>,
    sender: &SyncSender<Encoded>,
) {
    for partition_idx in indices {
        let encoded = encode_partition(dataset, table, factory, partition_idx);
        let failed = encoded.is_err();
        if sender.send(encoded).is_err() || failed {
            return;
        }
    }
}

fn encode_partition<D: Dataset>(
    dataset: &D,
    table: D::Table,
    factory: &ArrowRowGroupWriterFactory,
    partition_idx: usize,
) -> Encoded {
    let mut columns = factory.create_column_writers(partition_idx)?;
    let mut row_count = 0;
    for batch in dataset.partition(table, partition_idx) {
        row_count += batch.num_rows() as u64;
        let schema = batch.schema();
        for ((field, array), column) in schema
            .fields()
            .iter()
            .zip(batch.columns())
            .zip(&mut columns)
        {
            for leaf in compute_leaves(field, array)? {
                column.write(&leaf)?;
            }
        }
    }
    let chunks = columns.into_iter().map(|column| column.close());
    Ok((chunks.collect::<Result<_, _>>()?, row_count))
}

/// Appends row groups in partition order. Returning early drops the receivers, which stops the threads.
fn append_row_groups<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    receivers: &[Receiver<Encoded>],
    partition_count: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ParquetError> {
    let mut rows_written = 0;
    for partition_idx in 0..partition_count {
        let encoded = receivers[partition_idx % receivers.len()]
            .recv()
            .map_err(|_| ParquetError::General("a generator thread died".to_owned()))?;
        let (chunks, row_count) = encoded?;
        let mut row_group = writer.next_row_group()?;
        for chunk in chunks {
            chunk.append_to_row_group(&mut row_group)?;
        }
        row_group.close()?;
        rows_written += row_count;
        progress(rows_written);
    }
    Ok(rows_written)
}

/// A file under a temporary name, removed unless published.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    fn create(path: PathBuf) -> Result<Self, GenerateError> {
        let file = File::create(&path).map_err(io_error(&path))?;
        Ok(Self { path, file })
    }

    /// Syncs the file, gives it its name, syncs the folder, and returns the file's size.
    fn publish(self, path: &Path) -> Result<u64, GenerateError> {
        self.file.sync_all().map_err(io_error(&self.path))?;
        let file_bytes = self.file.metadata().map_err(io_error(&self.path))?.len();
        fs::rename(&self.path, path).map_err(io_error(path))?;
        if let Some(folder) = path.parent() {
            let folder_file = File::open(folder).map_err(io_error(folder))?;
            folder_file.sync_all().map_err(io_error(folder))?;
        }
        Ok(file_bytes)
    }
}

impl Drop for Temporary {
    /// After publishing there is nothing under the temporary name and removal fails, which is fine.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> GenerateError + '_ {
    |source| GenerateError::Io {
        path: path.to_owned(),
        source,
    }
}

fn parquet_error(path: &Path) -> impl FnOnce(ParquetError) -> GenerateError + '_ {
    |source| GenerateError::Parquet {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::RecordBatch;
    use arrow::compute::concat_batches;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;
    use crate::ssb::{SsbGenerator, SsbTable};

    fn read(path: &Path) -> RecordBatch {
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
        let schema = Arc::clone(builder.schema());
        let batches: Vec<_> = builder.build().unwrap().map(Result::unwrap).collect();
        concat_batches(&schema, &batches).unwrap()
    }

    fn options(threads: usize) -> WriteOptions {
        WriteOptions {
            threads,
            ..WriteOptions::default()
        }
    }

    #[test]
    fn a_file_reads_back_as_generated_whatever_the_thread_count() {
        let folder = tempfile::tempdir().unwrap();
        let dataset = SsbGenerator::new(0.05, 0).unwrap();
        let table = SsbTable::Lineorder;
        assert!(dataset.partition_count(table) > 1);
        let generated = (0..dataset.partition_count(table))
            .flat_map(|idx| dataset.partition(table, idx))
            .collect::<Vec<_>>();
        let generated = concat_batches(&dataset.schema(table), &generated).unwrap();

        let files = [1, 2, 7].map(|threads| {
            let path = folder.path().join(threads.to_string());
            let mut seen = Vec::new();
            let written = write_parquet(&dataset, table, &path, options(threads), &mut |rows| {
                seen.push(rows);
            })
            .unwrap();
            assert_eq!(written.row_count, dataset.row_count(table));
            assert_eq!(seen.last(), Some(&written.row_count));
            assert!(seen.is_sorted());
            fs::read(written.path).unwrap()
        });
        assert_eq!(read(&folder.path().join("1/lineorder.parquet")), generated);
        assert!(files[0] == files[1] && files[1] == files[2]);
    }

    #[test]
    fn a_failed_write_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("date.parquet")).unwrap();
        let dataset = SsbGenerator::new(0.001, 0).unwrap();
        let result = write_parquet(
            &dataset,
            SsbTable::Date,
            folder.path(),
            options(1),
            &mut |_| (),
        );
        assert!(
            matches!(result, Err(GenerateError::Io { .. })),
            "{result:?}"
        );
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let dataset = SsbGenerator::new(0.001, 0).unwrap();
        let folder = file.path().join("below-a-file");
        let result = write_parquet(&dataset, SsbTable::Date, &folder, options(1), &mut |_| ());
        assert!(
            matches!(result, Err(GenerateError::Io { .. })),
            "{result:?}"
        );
    }
}
