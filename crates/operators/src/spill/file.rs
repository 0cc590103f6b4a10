//! One file of spilled batches.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use hotshelf_tier::Corruption;
use hotshelf_tier::io::{IoFile, PAGE_BYTES, ReadFuture};
use parking_lot::Mutex;

use super::OnSpill;
use super::codec::{self, Codec};
use super::extents::Extents;
use super::folder::{SpillFolder, failed};
use super::worth::Worth;
use crate::{OperatorError, Result};

/// A file of batches of one schema. Threads may share it. It is gone when the file and its batches are dropped.
pub struct SpillFile {
    folder: Arc<SpillFolder>,
    codec: Codec,
    writer: File,
    reader: Arc<IoFile>,
    space: Mutex<FileSpace>,
    worth: Worth,
    spilled: OnSpill,
}

#[derive(Default)]
struct FileSpace {
    extents: Extents,
    /// The length of the file, which the folder counts: what was free at its end once stays allocated.
    occupied_bytes: u64,
}

/// A batch in a file. Dropping its last clone frees its place.
#[derive(Clone)]
pub struct SpilledBatch(Arc<SpilledPlace>);

/// Where a batch is, and what it should be.
struct SpilledPlace {
    file: Arc<SpillFile>,
    offset: u64,
    stored_bytes: usize,
    raw_bytes: usize,
    row_count: usize,
    checksum: u32,
}

/// A batch that is being read.
#[must_use = "dropping it cancels the read"]
pub struct PendingBatch {
    place: Arc<SpilledPlace>,
    read: ReadFuture,
}

impl SpillFile {
    pub(super) fn create(
        folder: &Arc<SpillFolder>,
        path: &Path,
        schema: SchemaRef,
        spilled: &OnSpill,
    ) -> Result<Arc<Self>> {
        let codec = Codec::new(schema)?;
        let mut options = File::options();
        let buffered = options.write(true).create_new(true).open(path);
        let buffered = buffered.map_err(failed(path, "create"))?;
        let opened = folder.engine().open(path);
        let opened = opened.map_err(OperatorError::from).and_then(|reader| {
            let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
            let writer = match reader.is_direct() {
                true => File::options().write(true).custom_flags(direct).open(path),
                false => Ok(buffered),
            };
            Ok((writer.map_err(failed(path, "open"))?, reader))
        });
        fs::remove_file(path).map_err(failed(path, "remove"))?;
        let (writer, reader) = opened?;
        Ok(Arc::new(Self {
            folder: Arc::clone(folder),
            codec,
            writer,
            reader,
            space: Mutex::default(),
            worth: Worth::default(),
            spilled: Arc::clone(spilled),
        }))
    }

    /// The schema of its batches.
    pub fn schema(&self) -> &SchemaRef {
        self.codec.schema()
    }

    /// Whether the file is read and written without the page cache.
    pub fn is_direct(&self) -> bool {
        self.reader.is_direct()
    }

    /// Writes a batch. The caller's grant has [`write_bytes`](super::write_bytes) for it.
    ///
    /// # Errors
    /// [`DiskFull`](crate::OperatorError::DiskFull), [`SpillLimit`](crate::OperatorError::SpillLimit),
    /// [`Spill`](crate::OperatorError::Spill) and [`Arrow`](crate::OperatorError::Arrow).
    pub fn write(self: &Arc<Self>, batch: &RecordBatch) -> Result<SpilledBatch> {
        let raw = self.codec.encode(batch)?;
        let compresses = self.folder.is_short_of(raw.len()) || self.worth.compresses();
        let space_bytes = match compresses {
            true => codec::compressed_bytes_max(raw.len()),
            false => raw.len(),
        };
        let mut space = vec![0; space_bytes + 2 * PAGE_BYTES];
        let start = space.as_ptr().align_offset(PAGE_BYTES);
        let packed = match compresses {
            true => self.compress(&raw, &mut space[start..]),
            false => None,
        };
        let used = packed.unwrap_or_else(|| {
            space[start..start + raw.len()].copy_from_slice(&raw);
            raw.len()
        });
        let stored = &space[start..start + used.next_multiple_of(PAGE_BYTES)];
        let offset = self.take(stored.len() as u64)?;
        // From here on dropping the batch gives the place back.
        let place = SpilledPlace {
            file: Arc::clone(self),
            offset,
            stored_bytes: used,
            raw_bytes: raw.len(),
            row_count: batch.num_rows(),
            checksum: crc32fast::hash(&stored[..used]),
        };
        let engine = self.folder.engine();
        let begun = Instant::now();
        let written = engine.write_pages(&self.writer, stored, offset);
        self.worth.note_written(stored.len(), begun.elapsed());
        let needed = stored.len() as u64;
        written.map_err(|source| self.folder.write_error(self.reader.path(), needed, source))?;
        self.folder.note_written(needed, raw.len() as u64);
        (self.spilled)(needed);
        Ok(SpilledBatch(Arc::new(place)))
    }

    fn compress(&self, raw: &[u8], space: &mut [u8]) -> Option<usize> {
        let begun = Instant::now();
        let packed = codec::compress(raw, space);
        let stored_bytes = packed.unwrap_or(raw.len());
        self.worth
            .note_packed(raw.len(), stored_bytes, begun.elapsed());
        packed
    }

    #[cfg(test)]
    pub(super) fn writer(&self) -> &File {
        &self.writer
    }

    fn take(&self, bytes: u64) -> Result<u64> {
        let mut space = self.space.lock();
        let end = space.extents.end_with(bytes).max(space.occupied_bytes);
        self.folder.occupy(end - space.occupied_bytes)?;
        space.occupied_bytes = end;
        Ok(space.extents.take(bytes))
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        self.folder.vacate(self.space.lock().occupied_bytes);
    }
}

impl SpilledBatch {
    /// The memory that one takes, wherever its rows are.
    pub const HELD_BYTES: u64 =
        (size_of::<Self>() + size_of::<SpilledPlace>() + 3 * size_of::<usize>()) as u64;

    /// Its rows.
    pub fn row_count(&self) -> usize {
        self.0.row_count
    }

    /// The memory that the batch has when it is read.
    pub fn raw_bytes(&self) -> u64 {
        self.0.raw_bytes as u64
    }

    /// The memory that reading needs until the batch is there: the batch and its compressed bytes.
    pub fn read_bytes(&self) -> u64 {
        (self.0.raw_bytes + self.0.stored_bytes.next_multiple_of(PAGE_BYTES)) as u64
    }

    /// Bytes in the file, without padding.
    pub fn stored_bytes(&self) -> u64 {
        self.0.stored_bytes as u64
    }

    #[cfg(test)]
    pub(super) fn offset(&self) -> u64 {
        self.0.offset
    }

    /// Begins to read the batch.
    pub fn start_read(&self) -> PendingBatch {
        let engine = self.0.file.folder.engine();
        let read = engine.read(&self.0.file.reader, self.0.offset, self.0.stored_bytes);
        PendingBatch {
            place: Arc::clone(&self.0),
            read,
        }
    }

    /// Reads the batch.
    ///
    /// # Errors
    /// [`Tier`](crate::OperatorError::Tier) and [`Damaged`](crate::OperatorError::Damaged).
    pub fn read(&self) -> Result<RecordBatch> {
        self.start_read().wait()
    }
}

impl SpilledPlace {
    fn decode(&self, stored: &[u8]) -> Result<RecordBatch> {
        let damaged = |what: &'static str, expected: String, found: String| Corruption {
            file: self.file.reader.path().to_path_buf(),
            offset: self.offset,
            what: what.into(),
            expected,
            found,
        };
        let checksum = crc32fast::hash(stored);
        if checksum != self.checksum {
            let [expected, found] = [self.checksum, checksum].map(|sum| format!("{sum:08x}"));
            return Err(damaged("checksum of a spilled batch", expected, found).into());
        }
        let raw = codec::decompress(stored, self.raw_bytes).ok_or_else(|| {
            let expected = format!("{} compressed bytes", self.raw_bytes);
            damaged("a spilled batch", expected, "something else".to_owned())
        })?;
        let batch = self.file.codec.decode(raw)?;
        if batch.num_rows() != self.row_count {
            let [expected, found] = [self.row_count, batch.num_rows()].map(|n| n.to_string());
            return Err(damaged("rows of a spilled batch", expected, found).into());
        }
        Ok(batch)
    }
}

impl Drop for SpilledPlace {
    fn drop(&mut self) {
        let bytes = self.stored_bytes.next_multiple_of(PAGE_BYTES) as u64;
        let mut space = self.file.space.lock();
        space.extents.give_back(self.offset, bytes);
    }
}

impl PendingBatch {
    /// Waits until the batch is there.
    ///
    /// # Errors
    /// Those of [`SpilledBatch::read`].
    pub fn wait(self) -> Result<RecordBatch> {
        let begun = Instant::now();
        let stored = self.read.wait()?;
        let file = &self.place.file;
        file.worth.note_read(stored.len(), begun.elapsed());
        file.folder.note_read(stored.len() as u64);
        self.place.decode(&stored)
    }
}
