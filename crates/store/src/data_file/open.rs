//! An open data file: its footer, its segments, and how they are read and checked.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use hotshelf_cache::{
    CacheManager, ColumnId, FileId, ReadDone, ReadError, ReadHandle, ScanContext, SegmentInfo,
    SegmentKey, SegmentKind, SegmentReader,
};
use hotshelf_tier::Corruption;
use hotshelf_tier::io::{IoEngine, IoFile, ReadTicket};
use vortex::file::Footer;
use vortex::session::VortexSession;

use super::footer;
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
    table_folder: String,
    folder: PathBuf,
    /// The file's number in its table.
    pub number: u64,
}

impl FilePaths {
    /// The data file of this number in a table's folder.
    pub fn new(root: &Root, table_folder: &str, number: u64) -> Self {
        Self {
            root: root.clone(),
            table_folder: table_folder.to_owned(),
            folder: root.table(table_folder),
            number,
        }
    }

    /// The database's folder.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The name of the table's folder.
    pub fn table_folder(&self) -> &str {
        &self.table_folder
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

    /// Reads the footer by itself, after comparing it with its checksum.
    pub(crate) fn read_footer(&self, sums: &Sums, session: &VortexSession) -> Result<Footer> {
        let path = self.data();
        let file = self.root.open_file(&path)?;
        let length = file
            .metadata()
            .map_err(StoreError::io("measure", &path))?
            .len();
        check_length(&path, length, sums, sums.file_bytes)?;
        let mut bytes = vec![0; (length - sums.footer_offset) as usize];
        file.read_exact_at(&mut bytes, sums.footer_offset)
            .map_err(StoreError::io("read", &path))?;
        footer::parse(&path, sums, &bytes, session)
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
    /// A number that no other file has; 0 for a file of format 1.
    pub id: u64,
    file_bytes: u64,
    cache: Arc<CacheManager>,
    cache_id: FileId,
}

impl DataFile {
    /// Opens a file of the catalog, of a table of these columns. `column_ids` are the cache's numbers of the table's columns, with one more
    /// for what belongs to no column.
    pub fn open(
        row: FileRow,
        paths: FilePaths,
        (schema, column_ids): (&SchemaRef, &[ColumnId]),
        engine: &Arc<IoEngine>,
        cache: &Arc<CacheManager>,
        session: &VortexSession,
    ) -> Result<Self> {
        let sums = Sums::of(&paths, &row)?;
        let io = engine.open_as(&paths.root.real(&paths.data()), &paths.data())?;
        check_length(&paths.data(), io.len_bytes(), &sums, row.file_bytes)?;
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
        let stats = agreed_statistics(row, &footer, &map, schema, session)?;
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
            stats,
            footer,
            map,
            footer_sum: sums.footer,
            id: sums.origin.map_or(0, |origin| origin.id),
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
    pub fn verify(
        paths: &FilePaths,
        expected: &FileRow,
        schema: &SchemaRef,
    ) -> Result<Vec<Corruption>> {
        let sums = match Sums::of(paths, expected) {
            Ok(sums) => sums,
            Err(StoreError::Corruption(found)) => return Ok(vec![found]),
            Err(other) => return Err(other),
        };
        verify_bytes(paths, &sums, expected, schema)
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
    footer::parse(io.path(), sums, &bytes, session)
}

/// The file must be as long as its checksums and the catalog say.
fn check_length(path: &Path, found: u64, sums: &Sums, expected: u64) -> Result<()> {
    if found == sums.file_bytes && sums.file_bytes == expected && sums.footer_offset <= found {
        return Ok(());
    }
    Err(StoreError::Corruption(Corruption {
        file: path.to_owned(),
        offset: found.min(sums.file_bytes),
        what: "file length".into(),
        expected: format!("{expected} bytes"),
        found: format!("{found} bytes"),
    }))
}

/// What catalog and file both say of the rows. Where the catalog's entry is damaged, the file has the word.
fn agreed_statistics(
    row: FileRow,
    footer: &Footer,
    map: &SegmentMap,
    schema: &SchemaRef,
    session: &VortexSession,
) -> Result<FileStats> {
    let in_file = footer::statistics(footer, map, schema, session, Vec::new())?;
    if !row.is_sound {
        tracing::warn!(
            file = row.number,
            "an entry of the catalog is damaged; the data file says what its rows are"
        );
        return Ok(in_file);
    }
    match footer::difference(&in_file, &row.stats) {
        Some(difference) => Err(difference.into()),
        None => Ok(row.stats),
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
fn verify_bytes(
    paths: &FilePaths,
    sums: &Sums,
    expected: &FileRow,
    schema: &SchemaRef,
) -> Result<Vec<Corruption>> {
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
    let session = crate::vortex_session();
    let footer = match footer::parse(&path, sums, footer_bytes, &session) {
        Ok(footer) => footer,
        Err(StoreError::Corruption(found)) => return Ok(vec![found]),
        Err(other) => return Err(other),
    };
    let map = SegmentMap::new(&footer)?;
    let in_file = footer::statistics(&footer, &map, schema, &session, Vec::new())?;
    let difference = footer::difference(&in_file, &expected.stats);
    let damages = footer
        .segment_map()
        .iter()
        .zip(&sums.segments)
        .filter_map(|(spec, sum)| {
            let range = spec.offset as usize..spec.byte_range().end as usize;
            let segment = bytes.get(range)?;
            verify(&path, spec.offset, "segment", segment, *sum).err()
        });
    Ok(damages
        .chain(difference.filter(|_| expected.is_sound))
        .collect())
}
