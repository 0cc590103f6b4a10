//! An open data file: its footer, its segments, and how they are read and checked.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use hotshelf_cache::{
    CacheManager, ColumnId, FileId, LyingSegment, ReadDone, ReadError, ReadHandle, ScanContext,
    SegmentInfo, SegmentKey, SegmentKind, SegmentReader,
};
use hotshelf_tier::TierError;
use hotshelf_tier::io::{IoFile, ReadTicket};
use parking_lot::RwLock;
use vortex::file::Footer;

use super::copies::FileCopy;
use super::paths::FilePaths;
use super::segments::SegmentMap;
use super::sums::verify;
use crate::descriptors::Handle;
use crate::in_use::Use;
use crate::reservation::Reservation;
use crate::statistics::FileStats;

/// A data file open for reading. Segments come through the cache; the footer was read and checked on opening.
pub struct DataFile {
    /// Where it lives.
    pub paths: FilePaths,
    /// The catalog's statistics of its rows.
    pub stats: Arc<FileStats>,
    /// Its layout.
    pub footer: Footer,
    /// Which column and row group each segment belongs to.
    pub map: SegmentMap,
    /// Checksum of the footer: it tells this file from any other.
    pub footer_sum: u32,
    /// A number that no other file has; 0 for a file of format 1.
    pub id: u64,
    pub(super) schema: SchemaRef,
    pub(super) file_bytes: u64,
    pub(super) known: Arc<KnownFile>,
    pub(super) memory: Reservation,
}

impl DataFile {
    /// Starts a read of a segment on account of `scan`, or finds it in the cache.
    pub fn request(
        &self,
        segment_idx: u32,
        scan: &Arc<ScanContext>,
    ) -> hotshelf_cache::SegmentFuture {
        let key = SegmentKey {
            file: self.known.cache_id,
            segment_idx,
        };
        self.known.cache.request(key, scan)
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The cache's name of this file.
    pub fn cache_id(&self) -> FileId {
        self.known.cache_id
    }

    pub(super) fn cache(&self) -> &Arc<CacheManager> {
        &self.known.cache
    }
}

impl std::fmt::Debug for DataFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataFile")
            .field("path", &self.paths.data())
            .finish_non_exhaustive()
    }
}

/// What the cache knows about a file, and what lasts while the file is open, or its table's files are the same.
pub(super) struct KnownFile {
    pub handle: Arc<Handle>,
    cache: Arc<CacheManager>,
    pub cache_id: FileId,
    segments: Arc<Source>,
    /// Whether a copy was begun to be made since its table was placed.
    is_copying: AtomicBool,
    /// Memory for what follows from the first opening.
    memory: OnceLock<Reservation>,
    _use: Use,
}

impl KnownFile {
    /// Makes a file known to the cache, which learns of its segments by [`Self::describe`].
    pub fn new(handle: Handle, cache: &Arc<CacheManager>, in_use: Use) -> Self {
        let handle = Arc::new(handle);
        let segments = Arc::new(Source {
            handle: handle.clone(),
            described: OnceLock::new(),
            copy: RwLock::default(),
        });
        let reader = Arc::new(FileSegments(segments.clone()));
        Self {
            handle,
            cache: cache.clone(),
            cache_id: cache.add_file(reader, Vec::new()),
            segments,
            is_copying: AtomicBool::new(false),
            memory: OnceLock::new(),
            _use: in_use,
        }
    }

    /// Tells the cache of the file's segments and their checksums. `column_ids` are the cache's numbers of the table's
    /// columns, with one more for what belongs to no column.
    pub fn describe(&self, map: &SegmentMap, sums: Vec<u32>, column_ids: &[ColumnId]) {
        let segment_bytes = size_of::<(u64, u32)>() + size_of::<u32>() + size_of::<SegmentInfo>();
        let described = Described {
            ranges: map
                .specs
                .iter()
                .map(|spec| (spec.offset, spec.length))
                .collect(),
            sums,
            row_group_count: map.row_groups.len(),
        };
        if self.segments.described.set(described).is_ok() {
            let bytes = (map.specs.len() * segment_bytes) as u64;
            self.memory
                .get_or_init(|| Reservation::reserve(&self.cache, bytes));
            self.cache
                .describe_file(self.cache_id, segment_infos(map, column_ids));
        }
    }

    /// Place and checksum of a segment, once the file was opened.
    pub fn segment(&self, segment_idx: u32) -> Option<((u64, u32), u32)> {
        self.segments.segment(segment_idx)
    }

    /// Whether a copy is to be made, which was not begun. From here on it is not.
    pub fn begin_copy(&self) -> bool {
        !self.is_copying.swap(true, Relaxed)
    }

    /// Takes the segments of a copy from there.
    pub fn put_copy(&self, copy: Option<Arc<FileCopy>>) {
        self.is_copying.store(true, Relaxed);
        self.segments.put_copy(copy);
    }

    /// Reads the file again; a copy that is still being made is not taken into use.
    pub fn leave_copy(&self) {
        self.segments.put_copy(None);
        self.is_copying.store(false, Relaxed);
    }

    /// Bytes of the copy.
    pub fn copied_bytes(&self) -> Option<u64> {
        Some(self.segments.copy()?.len_bytes())
    }

    /// How many row groups the file has, once it was opened.
    pub fn row_group_count(&self) -> Option<usize> {
        let described = self.segments.described.get();
        described.map(|described| described.row_group_count)
    }
}

impl Drop for KnownFile {
    fn drop(&mut self) {
        self.cache.remove_file(self.cache_id);
    }
}

fn segment_infos(map: &SegmentMap, column_ids: &[ColumnId]) -> Vec<SegmentInfo> {
    let whole_table = column_ids.len() - 1;
    map.places
        .iter()
        .enumerate()
        .map(|(idx, place)| SegmentInfo {
            column: column_ids[place.column_idx.unwrap_or(whole_table)],
            row_group_idx: place.row_group_idx,
            charged_bytes: map.charged_bytes(idx as u32),
            kind: if place.auxiliary {
                SegmentKind::Metadata
            } else {
                SegmentKind::Data
            },
        })
        .collect()
}

/// Reads the segments of one file from the I/O engine and checks them as they arrive.
struct FileSegments(Arc<Source>);

/// Where segments are read from.
struct Source {
    handle: Arc<Handle>,
    described: OnceLock<Described>,
    /// Those of them that are on a shelf.
    copy: RwLock<Option<Arc<FileCopy>>>,
}

/// What the first opening found.
struct Described {
    ranges: Vec<(u64, u32)>,
    sums: Vec<u32>,
    row_group_count: usize,
}

impl Source {
    fn segment(&self, segment_idx: u32) -> Option<((u64, u32), u32)> {
        let (described, idx) = (self.described.get()?, segment_idx as usize);
        Some((*described.ranges.get(idx)?, *described.sums.get(idx)?))
    }

    fn copy(&self) -> Option<Arc<FileCopy>> {
        self.copy.read().clone()
    }

    /// The memory of the former one may start reads, which look for a copy: it goes when the lock is free again.
    fn put_copy(&self, copy: Option<Arc<FileCopy>>) {
        let former = std::mem::replace(&mut *self.copy.write(), copy);
        drop(former);
    }

    /// A copy is damaged: from here on the file is read.
    fn leave(&self, damaged: &Arc<FileCopy>, error: &ReadError) {
        let file = self.handle.path().display().to_string();
        tracing::warn!(%error, file, "the copy of a file on its table's shelf is damaged; the file is read");
        let mut current = self.copy.write();
        let is_current = |copy: &Arc<FileCopy>| Arc::ptr_eq(copy, damaged);
        let former = match current.as_ref().is_some_and(is_current) {
            true => current.take(),
            false => None,
        };
        drop(current);
        drop(former);
    }

    /// Starts a read from the copy, or else of the file. The request of an unknown segment is dropped.
    fn start(self: &Arc<Self>, segment_idx: u32, done: ReadDone) -> Option<ReadTicket> {
        let copy = self.copy();
        match copy.and_then(|copy| Some((copy.in_file(segment_idx)?, copy))) {
            Some(((io, offset), copy)) => self.read_copy(segment_idx, (io, offset), copy, done),
            None => self.read_file(segment_idx, done),
        }
    }

    fn read_copy(
        self: &Arc<Self>,
        segment_idx: u32,
        (io, offset): (Arc<IoFile>, u64),
        copy: Arc<FileCopy>,
        done: ReadDone,
    ) -> Option<ReadTicket> {
        let ((_, length), sum) = self.segment(segment_idx)?;
        let (file, source) = (io.clone(), self.clone());
        let arrived = move |read: Result<Bytes, TierError>| {
            let checked = read.map_err(ReadError::from).and_then(|bytes| {
                verify(file.path(), offset, "segment of a copy", &bytes, sum)?;
                Ok(bytes)
            });
            match checked {
                Err(error) if !matches!(error, ReadError::Tier(TierError::Cancelled { .. })) => {
                    source.leave(&copy, &error);
                    let again = source.read_file(segment_idx, done);
                    again.into_iter().for_each(ReadTicket::detach);
                }
                checked => done(checked),
            }
        };
        let engine = self.handle.engine();
        Some(engine.submit(&io, offset, length as usize, Box::new(arrived)))
    }

    /// Starts a read of the file, if it can be opened.
    fn read_file(&self, segment_idx: u32, done: ReadDone) -> Option<ReadTicket> {
        let ((offset, length), sum) = self.segment(segment_idx)?;
        let io = match self.handle.open() {
            Ok(io) => io,
            Err(error) => {
                done(Err(error.into()));
                return None;
            }
        };
        let file = io.clone();
        let arrived = move |read: Result<Bytes, TierError>| {
            done(read.map_err(ReadError::from).and_then(|bytes| {
                verify(file.path(), offset, "segment", &bytes, sum)?;
                Ok(bytes)
            }));
        };
        let engine = self.handle.engine();
        Some(engine.submit(&io, offset, length as usize, Box::new(arrived)))
    }

    /// Reads a segment of the file while the caller waits.
    fn read_now(&self, segment_idx: u32) -> Result<Bytes, ReadError> {
        let (send, answer) = std::sync::mpsc::channel();
        let done = move |read| drop(send.send(read));
        let ticket = self.read_file(segment_idx, Box::new(done));
        let read = answer.recv();
        drop(ticket);
        read.unwrap_or_else(|_| {
            let path = self.handle.path().to_owned();
            let ((offset, _), _) = self.segment(segment_idx).unwrap_or_default();
            Err(ReadError::Tier(TierError::Cancelled { path, offset }))
        })
    }
}

/// A read under way; dropping the ticket cancels it. There is none if the read failed at once.
struct Ticket(#[expect(dead_code, reason = "held for its drop")] Option<ReadTicket>);

impl ReadHandle for Ticket {}

impl SegmentReader for FileSegments {
    fn read(&self, segment_idx: u32, done: ReadDone) -> Box<dyn ReadHandle> {
        Box::new(Ticket(self.0.start(segment_idx, done)))
    }

    fn lying(&self, segment_idx: u32) -> Option<LyingSegment> {
        let (source, copy) = (self.0.clone(), self.0.copy()?);
        let (_, sum) = source.segment(segment_idx)?;
        let asked = copy.clone().ask(segment_idx, sum)?;
        if copy.is_file {
            return Some(asked);
        }
        Some(Box::new(move || {
            asked().or_else(|error| {
                source.leave(&copy, &error);
                source.read_now(segment_idx)
            })
        }))
    }

    fn copied(&self, bytes: &[u8]) -> Option<Bytes> {
        self.0.handle.engine().copied(bytes).ok()
    }
}
