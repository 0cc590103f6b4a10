//! An open data file: its footer, its segments, and how they are read and checked.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use hotshelf_cache::{
    CacheManager, ColumnId, FileId, ReadDone, ReadError, ReadHandle, ScanContext, SegmentInfo,
    SegmentKey, SegmentKind, SegmentReader,
};
use hotshelf_tier::Corruption;
use hotshelf_tier::io::{IoEngine, IoFile, ReadTicket};
use vortex::buffer::{Alignment, ByteBuffer};
use vortex::file::{DeserializeStep, Footer};
use vortex::session::VortexSession;

use super::segments::SegmentMap;
use super::sums::{Sums, verify};
use crate::catalog::FileRow;
use crate::error::{Result, StoreError};
use crate::root::Root;
use crate::statistics::FileStats;

/// Where a data file and its checksums live.
#[derive(Debug, Clone)]
pub struct FilePaths {
    root: Root,
    folder: PathBuf,
    /// The file's number in its table.
    pub number: u64,
}

impl FilePaths {
    /// The data file of this number in a table's folder.
    pub fn new(root: &Root, table_folder: &str, number: u64) -> Self {
        Self {
            root: root.clone(),
            folder: root.table(table_folder),
            number,
        }
    }

    /// The database's folder.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The data file.
    pub fn data(&self) -> PathBuf {
        self.folder.join(format!("{}.vortex", self.number))
    }

    /// Its checksums.
    pub fn sums(&self) -> PathBuf {
        self.folder
            .join("sums")
            .join(format!("{}.crc", self.number))
    }

    /// The data file while it is being written.
    pub fn data_temporary(&self) -> PathBuf {
        self.folder.join(format!("{}.vortex.tmp", self.number))
    }

    /// Its checksums while they are being written.
    pub fn sums_temporary(&self) -> PathBuf {
        self.folder
            .join("sums")
            .join(format!("{}.crc.tmp", self.number))
    }

    /// Gives both files their final names and makes the names durable.
    pub fn rename(&self) -> Result<()> {
        self.root.rename(&self.sums_temporary(), &self.sums())?;
        self.root.rename(&self.data_temporary(), &self.data())?;
        self.root.sync_folder(&self.folder.join("sums"))?;
        self.root.sync_folder(&self.folder)
    }

    /// Removes what a failed write left. Failing to is harmless: the journal names the file.
    pub fn remove_temporary(&self) {
        self.root.remove(&self.data_temporary());
        self.root.remove(&self.sums_temporary());
    }

    /// Removes the finished files of a change that was not committed.
    pub fn remove(&self) {
        self.root.remove(&self.data());
        self.root.remove(&self.sums());
    }
}

/// A data file open for reading. Segments come through the cache; the footer was read and checked on opening.
pub struct DataFile {
    /// Where it lives.
    pub paths: FilePaths,
    /// What the catalog knows of its rows.
    pub stats: FileStats,
    /// Its layout.
    pub footer: Footer,
    /// Which column and row group each segment belongs to.
    pub map: SegmentMap,
    /// Checksum of the footer: it tells this file from any other.
    pub footer_sum: u32,
    file_bytes: u64,
    cache: Arc<CacheManager>,
    cache_id: FileId,
}

impl DataFile {
    /// Opens a file of the catalog. `column_ids` are the cache's numbers of the table's columns, with one more
    /// for what belongs to no column.
    pub fn open(
        row: FileRow,
        paths: FilePaths,
        column_ids: &[ColumnId],
        engine: &Arc<IoEngine>,
        cache: &Arc<CacheManager>,
        session: &VortexSession,
    ) -> Result<Self> {
        let sums = Sums::read(&paths.root, &paths.sums())?;
        let io = engine.open_as(&paths.root.real(&paths.data()), &paths.data())?;
        if io.len_bytes() != sums.file_bytes || sums.file_bytes != row.file_bytes {
            return Err(StoreError::Corruption(Corruption {
                file: paths.data(),
                offset: io.len_bytes().min(sums.file_bytes),
                what: "file length".into(),
                expected: format!("{} bytes", row.file_bytes),
                found: format!("{} bytes", io.len_bytes()),
            }));
        }
        let footer = read_footer(engine, &io, &sums, session)?;
        let map = SegmentMap::new(&footer)?;
        if map.specs.len() != sums.segments.len() {
            return Err(StoreError::Corruption(Corruption {
                file: paths.sums(),
                offset: 0,
                what: "segment count".into(),
                expected: map.specs.len().to_string(),
                found: sums.segments.len().to_string(),
            }));
        }
        let infos = segment_infos(&map, column_ids);
        let reader = FileSegments {
            engine: engine.clone(),
            io,
            ranges: map
                .specs
                .iter()
                .map(|spec| (spec.offset, spec.length))
                .collect(),
            sums: sums.segments.clone().into(),
        };
        let cache_id = cache.add_file(Arc::new(reader), infos);
        Ok(Self {
            paths,
            stats: row.stats,
            footer,
            map,
            footer_sum: sums.footer,
            file_bytes: sums.file_bytes,
            cache: cache.clone(),
            cache_id,
        })
    }

    /// Starts a read of a segment on account of `scan`, or finds it in the cache.
    pub fn request(
        &self,
        segment_idx: u32,
        scan: &Arc<ScanContext>,
    ) -> hotshelf_cache::SegmentFuture {
        self.cache.request(
            SegmentKey {
                file: self.cache_id,
                segment_idx,
            },
            scan,
        )
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The cache's name of this file.
    pub fn cache_id(&self) -> FileId {
        self.cache_id
    }

    /// Reads every byte again, past the cache, and compares all checksums.
    pub fn verify(paths: &FilePaths, expected: &FileRow) -> Result<Vec<Corruption>> {
        let sums = match Sums::read(&paths.root, &paths.sums()) {
            Ok(sums) => sums,
            Err(StoreError::Corruption(found)) => return Ok(vec![found]),
            Err(other) => return Err(other),
        };
        verify_bytes(paths, &sums, expected)
    }
}

impl Drop for DataFile {
    fn drop(&mut self) {
        self.cache.remove_file(self.cache_id);
    }
}

impl std::fmt::Debug for DataFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataFile")
            .field("path", &self.paths.data())
            .finish_non_exhaustive()
    }
}

fn read_footer(
    engine: &Arc<IoEngine>,
    io: &Arc<IoFile>,
    sums: &Sums,
    session: &VortexSession,
) -> Result<Footer> {
    let length = sums.file_bytes.saturating_sub(sums.footer_offset) as usize;
    let bytes = futures::executor::block_on(engine.read(io, sums.footer_offset, length))?;
    verify(io.path(), sums.footer_offset, "footer", &bytes, sums.footer)?;
    let buffer = ByteBuffer::copy_from_aligned(&bytes, Alignment::new(64));
    let mut deserializer = Footer::deserializer(buffer, session.clone()).with_size(sums.file_bytes);
    match deserializer.deserialize()? {
        DeserializeStep::Done(footer) => Ok(footer),
        _ => Err(StoreError::Corruption(Corruption {
            file: io.path().to_owned(),
            offset: sums.footer_offset,
            what: "footer".into(),
            expected: "a whole footer".into(),
            found: "parts of it outside".into(),
        })),
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
struct FileSegments {
    engine: Arc<IoEngine>,
    io: Arc<IoFile>,
    ranges: Vec<(u64, u32)>,
    sums: Arc<[u32]>,
}

/// A read under way; dropping the ticket cancels it.
struct Ticket(#[expect(dead_code, reason = "held for its drop")] ReadTicket);

impl ReadHandle for Ticket {}

impl SegmentReader for FileSegments {
    fn read(&self, segment_idx: u32, done: ReadDone) -> Box<dyn ReadHandle> {
        let (offset, length) = self.ranges[segment_idx as usize];
        let sum = self.sums[segment_idx as usize];
        let io = self.io.clone();
        let arrived = move |read: Result<Bytes, hotshelf_tier::TierError>| {
            done(read.map_err(ReadError::from).and_then(|bytes| {
                verify(io.path(), offset, "segment", &bytes, sum)?;
                Ok(bytes)
            }));
        };
        Box::new(Ticket(self.engine.submit(
            &self.io,
            offset,
            length as usize,
            Box::new(arrived),
        )))
    }
}

/// Compares the bytes of a file with its checksums, through the page cache in one pass.
fn verify_bytes(paths: &FilePaths, sums: &Sums, expected: &FileRow) -> Result<Vec<Corruption>> {
    let path = paths.data();
    let bytes = paths.root.read(&path)?;
    if bytes.len() as u64 != expected.file_bytes || sums.file_bytes != expected.file_bytes {
        return Ok(vec![Corruption {
            file: path,
            offset: bytes.len() as u64,
            what: "file length".into(),
            expected: format!("{} bytes", expected.file_bytes),
            found: format!("{} bytes", bytes.len()),
        }]);
    }
    let footer_bytes = &bytes[sums.footer_offset.min(bytes.len() as u64) as usize..];
    if let Err(damage) = verify(
        &path,
        sums.footer_offset,
        "footer",
        footer_bytes,
        sums.footer,
    ) {
        return Ok(vec![damage]);
    }
    let session = crate::vortex_session();
    let buffer = ByteBuffer::copy_from_aligned(footer_bytes, Alignment::new(64));
    let mut deserializer = Footer::deserializer(buffer, session).with_size(sums.file_bytes);
    let DeserializeStep::Done(footer) = deserializer.deserialize()? else {
        return Ok(vec![]);
    };
    let damages = footer
        .segment_map()
        .iter()
        .zip(&sums.segments)
        .filter_map(|(spec, sum)| {
            let range = spec.offset as usize..spec.byte_range().end as usize;
            let segment = bytes.get(range)?;
            verify(&path, spec.offset, "segment", segment, *sum).err()
        });
    Ok(damages.collect())
}
