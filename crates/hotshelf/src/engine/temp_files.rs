//! What DataFusion's operators spill: in the folder of Hotshelf's, through the same I/O engine, under the same limit.
//!
//! A reader may begin before the writer ends, and finds what was flushed. Writing blocks, as the engine's own does.

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use arrow::array::{AsArray, LargeBinaryArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::spill_file::{SpillFile as TempFile, SpillWriter, TempFileFactory};
use futures::Stream;
use futures::stream::try_unfold;
use hotshelf_operators::spill::{SpillFile, SpillFolder, SpilledBatch, uncounted};
use parking_lot::Mutex;

use crate::error::Error;

/// Bytes that are written together.
const CHUNK_BYTES: usize = 128 << 10;

/// A chunk is the only value of a batch.
static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let field = Field::new("bytes", DataType::LargeBinary, false);
    Arc::new(Schema::new(vec![field]))
});

/// Makes the files.
pub(super) struct TempFiles(pub Arc<SpillFolder>);

impl TempFileFactory for TempFiles {
    fn create_temp_file(&self, _: &str) -> QueryResult<Arc<dyn TempFile>> {
        let file = self
            .0
            .create_file(SCHEMA.clone(), &uncounted())
            .map_err(Error::from)?;
        Ok(Arc::new(Chunks {
            file,
            written: Arc::default(),
        }))
    }
}

/// A file, as chunks.
struct Chunks {
    file: Arc<SpillFile>,
    written: Arc<Mutex<Vec<SpilledBatch>>>,
}

impl TempFile for Chunks {
    fn size(&self) -> Option<u64> {
        let written = self.written.lock();
        Some(written.iter().map(SpilledBatch::raw_bytes).sum())
    }

    fn read_stream(&self) -> QueryResult<Pin<Box<dyn Stream<Item = QueryResult<Bytes>> + Send>>> {
        let written = self.written.clone();
        let bytes = try_unfold(0, move |number| {
            let chunk = written.lock().get(number).cloned();
            async move {
                let Some(chunk) = chunk else {
                    return Ok(None);
                };
                let read = SpawnedTask::spawn_blocking(move || chunk.read());
                let read = read.join_unwind().await;
                let read = read.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
                let batch = read.map_err(Error::from)?;
                let bytes = batch.column(0).as_binary::<i64>().value(0);
                Ok(Some((Bytes::copy_from_slice(bytes), number + 1)))
            }
        });
        Ok(Box::pin(bytes))
    }

    fn open_writer(&self) -> QueryResult<Box<dyn SpillWriter>> {
        Ok(Box::new(ChunkWriter {
            file: self.file.clone(),
            written: self.written.clone(),
            buffer: Vec::new(),
        }))
    }
}

/// Collects bytes, and writes them once they are a chunk.
struct ChunkWriter {
    file: Arc<SpillFile>,
    written: Arc<Mutex<Vec<SpilledBatch>>>,
    buffer: Vec<u8>,
}

impl ChunkWriter {
    fn write_chunk(&mut self) -> QueryResult<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = LargeBinaryArray::from_iter_values([&self.buffer]);
        let batch = RecordBatch::try_new(SCHEMA.clone(), vec![Arc::new(chunk)])?;
        let written = self.file.write(&batch).map_err(Error::from)?;
        self.written.lock().push(written);
        self.buffer.clear();
        Ok(())
    }
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == CHUNK_BYTES {
            self.write_chunk().map_err(io::Error::other)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_chunk().map_err(io::Error::other)
    }
}

impl SpillWriter for ChunkWriter {
    fn finish(&mut self) -> QueryResult<()> {
        self.write_chunk()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::error::ArrowError;
    use futures::TryStreamExt;
    use hotshelf_operators::spill::SpillOptions;
    use hotshelf_tier::io::{IoEngine, IoOptions};

    fn files(folder: &std::path::Path, limit_bytes: u64) -> TempFiles {
        let spill = SpillOptions {
            path: folder.to_owned(),
            limit_bytes,
        };
        let io = IoEngine::start(IoOptions::default()).unwrap();
        TempFiles(SpillFolder::open(spill, io).unwrap())
    }

    #[tokio::test]
    async fn bytes_come_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path(), u64::MAX);
        for len in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 17] {
            let bytes: Vec<u8> = (0..len).map(|n| (n * 31 % 251) as u8).collect();
            let file = files.create_temp_file("test").unwrap();
            let mut writer = file.open_writer().unwrap();
            for part in bytes.chunks(100_003) {
                writer.write_all(part).unwrap();
            }
            writer.flush().unwrap();
            let read: Vec<Bytes> = file.read_stream().unwrap().try_collect().await.unwrap();
            assert_eq!(read.concat(), bytes);
            writer.finish().unwrap();
            assert!(file.size() >= Some(len as u64));
            let read: Vec<Bytes> = file.read_stream().unwrap().try_collect().await.unwrap();
            assert_eq!(read.concat(), bytes);
        }
        assert_eq!(files.0.stats().used_bytes, 0);
    }

    #[test]
    fn the_limit_of_the_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = files(folder.path(), 1 << 20)
            .create_temp_file("test")
            .unwrap();
        let mut writer = file.open_writer().unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        let bytes: Vec<u8> = (0..4 << 20).map(|_| random.u8(..)).collect();
        let error = writer.write_all(&bytes).unwrap_err();
        let error = ArrowError::IoError(String::new(), error);
        let error = Error::from_query(DataFusionError::from(error));
        assert!(error.to_string().contains("may spill"), "{error}");
        assert!(!matches!(error, Error::Query(_)), "{error:?}");
    }
}
