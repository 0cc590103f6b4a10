//! Writes one data file: temporary name, checksums, sync. The caller renames and commits.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef as ArrowRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use vortex::array::arrays::Dict;
use vortex::array::arrays::dict::DictArraySlotsExt;
use vortex::array::stream::ArrayStreamAdapter;
use vortex::array::{ArrayRef, ExecutionCtx};
use vortex::compressor::BtrBlocksCompressorBuilder;
use vortex::error::{VortexResult, vortex_err};
use vortex::file::{Footer, WriteOptionsSessionExt, WriteStrategyBuilder};
use vortex::io::{IoBuf, VortexWrite};
use vortex::layout::layouts::compressed::CompressorPlugin;
use vortex::session::VortexSession;
use vortex_arrow::ArrowSessionExt;

use super::footer::statistics;
use super::gate::WriteGate;
use super::parts::{BatchStream, own_bytes};
use super::paths::FilePaths;
use super::sample::SampleBuilder;
use super::segments::SegmentMap;
use super::sums::{Origin, Sums};
use crate::catalog::entries::FileRow;
use crate::error::{InputError, Result, StoreError};
use crate::statistics::{HashColumn, SketchBuilder};

/// Rows of a row group where memory allows: a decoded four-byte column of it fits in a core's L2 cache,
/// and its encoded segments are large enough for the device's full bandwidth.
pub const ROW_GROUP_ROWS_MAX: usize = 131_072;
/// Rows of a row group of the widest rows: each column is a segment of its own, with a price for each.
const ROW_GROUP_ROWS_MIN: usize = 1_024;

/// Values of a row group above which a column gets no dictionary of its own layout: such a dictionary
/// fills up every few row groups, and each time the column's chunks leave the grid of the row groups.
const DICTIONARY_VALUES_MAX: usize = 8_192;

/// How a file is written.
#[derive(Clone)]
pub struct WriteOptions {
    /// Memory the writer may hold, in bytes: fewer rows per row group when it is small.
    pub buffer_bytes_max: u64,
    /// Counts rows as they are taken from the input.
    pub rows_written: Arc<AtomicU64>,
    /// The way to the device.
    pub gate: Arc<WriteGate>,
}

impl WriteOptions {
    /// Rows of a row group such that about six groups of rows this wide fit in the buffer.
    fn row_group_rows(&self, row_bytes: u64) -> usize {
        let rows = (self.buffer_bytes_max / (6 * row_bytes.max(1))) as usize;
        let rows = rows.clamp(ROW_GROUP_ROWS_MIN, ROW_GROUP_ROWS_MAX);
        1 << rows.ilog2()
    }
}

/// Writes batches of one schema into one data file.
pub struct FileWriter {
    /// The format's registry.
    pub session: VortexSession,
    /// The columns.
    pub schema: SchemaRef,
    /// How it is written.
    pub options: WriteOptions,
    /// What distinct values are sketched with.
    pub hash: HashColumn,
}

impl FileWriter {
    /// Writes the whole stream to the temporary paths and syncs them; `origin` is what the file will be known by.
    /// Nothing remains after a failure.
    pub async fn write<E: Into<InputError> + Send + 'static>(
        &self,
        input: BatchStream<E>,
        paths: &FilePaths,
        origin: Origin,
    ) -> Result<FileRow> {
        let written = self.write_files(input, paths, origin).await;
        if written.is_err() {
            paths.remove_temporary();
        }
        written
    }

    async fn write_files<E: Into<InputError> + Send + 'static>(
        &self,
        mut input: BatchStream<E>,
        paths: &FilePaths,
        origin: Origin,
    ) -> Result<FileRow> {
        let dtype = self.session.arrow().from_arrow_schema(&self.schema)?;
        let first = input.next().await.transpose().map_err(input_failed)?;
        let row_bytes = first
            .as_ref()
            .filter(|batch| batch.num_rows() > 0)
            .map_or(64, |batch| own_bytes(batch) / batch.num_rows() as u64);
        let batches = futures::stream::iter(first.map(Ok)).chain(input);
        let seen = Seen::new(&self.schema, self.hash, paths.number);
        let arrays = self.arrays(batches.boxed(), seen.clone());
        let strategy = WriteStrategyBuilder::from_session(&self.session)
            .with_row_block_size(self.options.row_group_rows(row_bytes))
            .with_data_block_target_bytes(None)
            .with_probe_compressor(small_dictionaries(&self.session))
            .build();
        let mut sink = ChecksumSink::new(
            paths.root().create(&paths.data_temporary())?,
            self.options.gate.clone(),
        );
        let summary = self
            .session
            .write_options()
            .with_strategy(strategy)
            .write(&mut sink, ArrayStreamAdapter::new(dtype, arrays))
            .await
            .map_err(|error| {
                let cause = seen
                    .input_error
                    .lock()
                    .take()
                    .or_else(|| sink.failure(&paths.data_temporary()));
                cause.unwrap_or(StoreError::Format(error))
            })?;
        let footer = summary.footer();
        let mut sums = sink.finish(footer, &paths.data_temporary()).await?;
        let id = origin.id;
        sums.origin = Some(origin);
        paths
            .root()
            .write_synced(&paths.sums_temporary(), &sums.encode())?;
        let sample = seen.sample.lock().take();
        if let Some(sample) = sample {
            sample.write(paths, id);
        }
        let distinct =
            std::mem::replace(&mut *seen.sketches.lock(), SketchBuilder::new(0, self.hash))
                .finish();
        let map = SegmentMap::new(footer)?;
        let stats = statistics(footer, &map, &self.schema, &self.session, distinct)?;
        Ok(FileRow {
            number: paths.number,
            file_bytes: sums.file_bytes,
            id,
            is_sound: true,
            stats,
        })
    }

    /// The rows as the format's arrays, seen and counted on their way.
    fn arrays<E: Into<InputError> + Send + 'static>(
        &self,
        input: BatchStream<E>,
        seen: Seen,
    ) -> impl Stream<Item = VortexResult<ArrayRef>> + Send + use<E> {
        let session = self.session.clone();
        let fields: Vec<Field> = self.schema.fields().iter().map(unpacked_field).collect();
        let unpacked = Arc::new(Schema::new(fields));
        let rows_written = self.options.rows_written.clone();
        input.map(move |batch| {
            let batch = batch.map_err(|error| {
                let error = input_failed(error);
                let stop = vortex_err!("the input failed: {error}");
                *seen.input_error.lock() = Some(error);
                stop
            })?;
            seen.sketches.lock().add(&batch);
            rows_written.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
            let columns = batch.columns().iter().map(unpack_dictionary);
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let batch = RecordBatch::try_new_with_options(unpacked.clone(), columns, &options)?;
            seen.sample(&batch);
            session.arrow().from_arrow_record_batch(batch, &unpacked)
        })
    }
}

/// What the writer learns from the input while the format takes it over.
#[derive(Clone)]
struct Seen {
    sketches: Arc<Mutex<SketchBuilder>>,
    /// `None` once it could not be taken; the file is written all the same.
    sample: Arc<Mutex<Option<SampleBuilder>>>,
    /// Why the input ended early: the format passes errors on in words only.
    input_error: Arc<Mutex<Option<StoreError>>>,
}

impl Seen {
    fn new(schema: &Schema, hash: HashColumn, seed: u64) -> Self {
        let sketches = SketchBuilder::new(schema.fields().len(), hash);
        Self {
            sketches: Arc::new(Mutex::new(sketches)),
            sample: Arc::new(Mutex::new(Some(SampleBuilder::new(schema, seed)))),
            input_error: Arc::default(),
        }
    }

    fn sample(&self, batch: &RecordBatch) {
        let mut sample = self.sample.lock();
        let added = sample.as_mut().map(|sample| sample.add(batch));
        if let Some(Err(error)) = added {
            tracing::debug!(%error, "rows cannot be sampled");
            *sample = None;
        }
    }
}

/// A column with plain values for a dictionary: behind NULLs Arrow's codes may point past the values, which Vortex
/// relies on not to happen. Its compressor makes dictionaries of its own where they pay.
fn unpack_dictionary(column: &ArrowRef) -> Result<ArrowRef, ArrowError> {
    match column.data_type() {
        DataType::Dictionary(_, values) => cast(column, values),
        _ => Ok(column.clone()),
    }
}

fn unpacked_field(field: &FieldRef) -> Field {
    match field.data_type() {
        DataType::Dictionary(_, values) => {
            let field = field.as_ref().clone();
            field.with_data_type(values.as_ref().clone())
        }
        _ => field.as_ref().clone(),
    }
}

/// Judges by a column's first row group whether the column gets a dictionary: not if it would be large.
fn small_dictionaries(session: &VortexSession) -> impl CompressorPlugin {
    let compressor = BtrBlocksCompressorBuilder::from_session(session).build();
    move |chunk: &ArrayRef, ctx: &mut ExecutionCtx| {
        let compressed = compressor.compress(chunk, ctx)?;
        let large = compressed
            .as_opt::<Dict>()
            .is_some_and(|dict| dict.values().len() > DICTIONARY_VALUES_MAX);
        Ok(if large { chunk.clone() } else { compressed })
    }
}

fn input_failed(error: impl Into<InputError>) -> StoreError {
    StoreError::Input(error.into())
}

/// A file being written, with the checksum of every piece the format's writer hands over.
struct ChecksumSink {
    file: File,
    position: u64,
    pieces: Vec<Piece>,
    /// What is gathered for the next write.
    gathered: Vec<u8>,
    unsynced_bytes: u64,
    gate: Arc<WriteGate>,
    failed: Option<io::ErrorKind>,
}

struct Piece {
    offset: u64,
    len: u64,
    sum: u32,
}

impl ChecksumSink {
    fn new(file: File, gate: Arc<WriteGate>) -> Self {
        Self {
            file,
            position: 0,
            pieces: Vec::new(),
            gathered: Vec::new(),
            unsynced_bytes: 0,
            gate,
            failed: None,
        }
    }

    /// Takes a piece over. Small ones are gathered; large ones are written where they are.
    async fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let len = bytes.len() as u64;
        self.pieces.push(Piece {
            offset: self.position,
            len,
            sum: crc32fast::hash(bytes),
        });
        self.position += len;
        if bytes.len() >= self.gate.piece_bytes {
            self.write_gathered().await?;
            return self.write_out(bytes).await;
        }
        self.gathered.extend_from_slice(bytes);
        match self.gathered.len() >= self.gate.piece_bytes {
            true => self.write_gathered().await,
            false => Ok(()),
        }
    }

    async fn write_gathered(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let gathered = std::mem::take(&mut self.gathered);
        self.write_out(&gathered).await?;
        self.gathered = gathered;
        self.gathered.clear();
        Ok(())
    }

    async fn write_out(&mut self, bytes: &[u8]) -> io::Result<()> {
        let gate = self.gate.clone();
        let _place = gate.enter().await;
        let written = self.file.write_all(bytes);
        self.noted(written)?;
        self.unsynced_bytes += bytes.len() as u64;
        if gate.is_turn(self.unsynced_bytes) {
            self.unsynced_bytes = 0;
            let synced = gate.take_turn(&self.file).await;
            self.noted(synced)?;
        }
        Ok(())
    }

    /// Remembers why the disk refused: the format's writer wraps errors beyond recognition.
    fn noted(&mut self, done: io::Result<()>) -> io::Result<()> {
        done.inspect_err(|error| self.failed = Some(error.kind()))
    }

    /// The disk's own error, if that is why writing stopped.
    fn failure(&self, path: &Path) -> Option<StoreError> {
        let source = self.failed?.into();
        Some(StoreError::Io {
            operation: "write",
            path: path.to_owned(),
            source,
        })
    }

    /// Syncs the file and assembles its checksums.
    async fn finish(mut self, footer: &Footer, path: &Path) -> Result<Sums> {
        self.write_gathered()
            .await
            .map_err(StoreError::io("write", path))?;
        self.file.sync_all().map_err(StoreError::io("sync", path))?;
        // The pages were written once and will be read by direct I/O: give them back.
        rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed).ok();
        let segments = footer
            .segment_map()
            .iter()
            .map(|spec| self.sum_of(spec.offset, spec.offset + u64::from(spec.length)))
            .collect::<Option<Vec<u32>>>();
        let footer_offset = footer
            .segment_map()
            .iter()
            .map(|spec| spec.byte_range().end)
            .max()
            .unwrap_or(0);
        let footer = self.sum_of(footer_offset, self.position);
        match (segments, footer) {
            (Some(segments), Some(footer)) => Ok(Sums {
                file_bytes: self.position,
                footer_offset,
                footer,
                segments,
                origin: None,
            }),
            _ => Err(StoreError::NotSupported {
                what: "a table file whose segments are not written in whole pieces".into(),
            }),
        }
    }

    /// The checksum of a range that starts and ends with a piece.
    fn sum_of(&self, start: u64, end: u64) -> Option<u32> {
        let first = self
            .pieces
            .partition_point(|piece| piece.offset + piece.len <= start);
        let mut hasher = crc32fast::Hasher::new();
        let mut at = start;
        for piece in self.pieces[first..]
            .iter()
            .take_while(|piece| piece.offset < end)
        {
            if piece.offset != at {
                return None;
            }
            hasher.combine(&crc32fast::Hasher::new_with_initial_len(
                piece.sum, piece.len,
            ));
            at += piece.len;
        }
        (at == end).then(|| hasher.finalize())
    }
}

impl VortexWrite for ChecksumSink {
    async fn write_all<B: IoBuf>(&mut self, buffer: B) -> io::Result<B> {
        self.put(buffer.as_slice()).await?;
        Ok(buffer)
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.write_gathered().await
    }

    async fn shutdown(&mut self) -> io::Result<()> {
        self.write_gathered().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_groups_shrink_with_the_memory_and_grow_to_the_limit() {
        let rows = |buffer_bytes_max, row_bytes| {
            WriteOptions {
                buffer_bytes_max,
                rows_written: Arc::default(),
                gate: Arc::new(WriteGate::new(1, 4096, None)),
            }
            .row_group_rows(row_bytes)
        };
        assert_eq!(rows(1 << 34, 100), ROW_GROUP_ROWS_MAX);
        assert_eq!(rows(16 << 20, 100), 16_384);
        assert_eq!(rows(1, 100), ROW_GROUP_ROWS_MIN);
    }

    #[tokio::test]
    async fn sums_cover_ranges_of_whole_pieces_only() {
        let folder = tempfile::tempdir().unwrap();
        let gate = Arc::new(WriteGate::new(1, 4096, None));
        let mut sink = ChecksumSink::new(File::create(folder.path().join("f")).unwrap(), gate);
        for piece in [&b"abc"[..], b"defg", b"hi"] {
            sink.put(piece).await.unwrap();
        }
        assert_eq!(sink.sum_of(3, 9), Some(crc32fast::hash(b"defghi")));
        assert_eq!(sink.sum_of(0, 9), Some(crc32fast::hash(b"abcdefghi")));
        assert_eq!(sink.sum_of(1, 7), None);
    }

    #[tokio::test]
    async fn gathered_and_large_pieces_reach_the_file_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let mut expected = Vec::new();
        let gate = Arc::new(WriteGate::new(1, 100, None));
        let mut sink = ChecksumSink::new(File::create(&path).unwrap(), gate);
        for (len, byte) in [(3, 1), (90, 2), (9, 3), (500, 4), (1, 5), (100, 6), (7, 7)] {
            let piece = vec![byte; len];
            sink.put(&piece).await.unwrap();
            expected.extend(piece);
        }
        sink.write_gathered().await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), expected);
    }
}
