//! A data file of a table as the catalog knows it. It is opened when it is first read.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use hotshelf_cache::{ColumnId, FileId, MissCost};
use hotshelf_tier::{Corruption, TierError};
use parking_lot::Mutex;
use vortex::file::Footer;

use super::open::{DataFile, KnownFile};
use super::opener::{Opener, reserve};
use super::paths::FilePaths;
use super::segments::SegmentMap;
use super::sums::{Sums, check_length, wrong_length};
use super::{ROW_GROUP_ROWS_MAX, footer, sample};
use crate::catalog::entries::FileRow;
use crate::error::{Result, StoreError};
use crate::links::missing;
use crate::side_by_side::side_by_side;
use crate::statistics::FileStats;

/// A data file of a table. Opening it reads the footer, compares it with the catalog, and tells the cache of the
/// segments.
pub struct TableFile {
    /// Where it lives.
    pub paths: FilePaths,
    /// The catalog's statistics of its rows, or the file's if the catalog's entry is damaged.
    pub stats: Arc<FileStats>,
    /// A number that no other file has; 0 for a file of format 1.
    pub id: u64,
    file_bytes: u64,
    schema: SchemaRef,
    column_ids: Box<[ColumnId]>,
    opener: Arc<Opener>,
    known: Arc<KnownFile>,
    /// Reservation while the file is being opened; what was wrong with it the last time.
    opening: Mutex<Option<Corruption>>,
}

/// The columns of a table.
#[derive(Debug, Clone, Copy)]
pub struct TableColumns<'a> {
    /// Their names and types.
    pub schema: &'a SchemaRef,
    /// The cache's number of each, with one more for what belongs to no column.
    pub column_ids: &'a [ColumnId],
}

/// Why a file cannot be read.
#[derive(Debug, Clone)]
pub enum Unreadable {
    /// It is not what was written.
    Damaged(Corruption),
    /// The system refuses it; another try may succeed.
    Unavailable(TierError),
}

impl From<Unreadable> for StoreError {
    fn from(why: Unreadable) -> Self {
        match why {
            Unreadable::Damaged(found) => Self::Corruption(found),
            Unreadable::Unavailable(error) => Self::Tier(error),
        }
    }
}

impl TableFile {
    /// A file of the catalog, of a table of these columns. The file is read only if the catalog's entry is damaged.
    ///
    /// # Errors
    /// Only if the file must be read and cannot be.
    pub fn new(
        row: FileRow,
        paths: FilePaths,
        columns: TableColumns<'_>,
        opener: &Arc<Opener>,
    ) -> Result<Self> {
        let (stats, id) = match row.is_sound {
            true => (row.stats, row.id),
            false => stats_in_file(&row, &paths, columns.schema, opener)?,
        };
        let in_use = opener.in_use.data_file(paths.table_folder(), paths.number);
        let handle = opener.descriptors().handle(paths.root(), paths.data());
        Ok(Self {
            stats: Arc::new(stats),
            id,
            file_bytes: row.file_bytes,
            schema: columns.schema.clone(),
            column_ids: columns.column_ids.into(),
            known: Arc::new(KnownFile::new(handle, &opener.cache, in_use)),
            opener: opener.clone(),
            opening: Mutex::default(),
            paths,
        })
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// At least some rows of a uniform sample, in batches and in no order: as many as this, if it has as many. Columns
    /// are called by their number in the table; those that hold other columns are not there. Empty if there is none.
    pub fn sample(&self, rows: usize) -> Vec<RecordBatch> {
        sample::read(&self.paths, self.id, rows)
    }

    /// Has its segments read from the file again.
    pub fn leave_shelf(&self) {
        self.known.leave_copy();
    }

    /// Bytes of its segments that are on its table's shelf by now.
    pub fn bytes_on_shelf(&self) -> u64 {
        self.known.copied_bytes().unwrap_or(0)
    }

    /// The cache's name of this file.
    pub fn cache_id(&self) -> FileId {
        self.known.cache_id
    }

    /// How many row groups it has; about, until it is opened.
    pub fn row_group_count(&self) -> usize {
        let expected = self.stats.row_count.div_ceil(ROW_GROUP_ROWS_MAX as u64);
        let known = self.known.row_group_count();
        known.unwrap_or(expected as usize)
    }

    /// Whether it was opened before: the cache knows its segments then.
    pub fn was_opened(&self) -> bool {
        self.known.row_group_count().is_some()
    }

    /// The open file, if it is open. That counts as no use.
    pub fn opened(&self) -> Option<Arc<DataFile>> {
        self.opened_for(0.0)
    }

    /// The open file, if it is open, for a query of this weight.
    pub fn opened_for(&self, weight: f64) -> Option<Arc<DataFile>> {
        self.opener.footers().find(self.key(), weight)
    }

    /// The open file. Requests made while it is being opened wait for the same result.
    ///
    /// # Errors
    /// [`StoreError::Corruption`] if it is not the file that was written, [`StoreError::Tier`] if the system refuses
    /// it. The next call tries again.
    pub fn open(&self) -> Result<Arc<DataFile>> {
        self.open_for(1.0)
    }

    /// The open file, for a query of this weight: see [`Self::open`].
    ///
    /// # Errors
    /// The same.
    pub fn open_for(&self, weight: f64) -> Result<Arc<DataFile>> {
        if let Some(file) = self.opened_for(weight) {
            return Ok(file);
        }
        let mut damage = self.opening.lock();
        if let Some(file) = self.opened_for(weight) {
            return Ok(file);
        }
        let begun = Instant::now();
        match self.read() {
            Ok(file) => {
                *damage = None;
                let cost = MissCost {
                    seconds: begun.elapsed().as_secs_f64(),
                    weight,
                };
                let file = self.opener.footers().keep(self.key(), file, cost);
                self.opener.shelves().note_opened(&file);
                Ok(file)
            }
            Err(error) => {
                let why = self.unreadable(error);
                if let Unreadable::Damaged(found) = &why {
                    *damage = Some(found.clone());
                }
                Err(why.into())
            }
        }
    }

    /// Opens many files on a few threads, for a query of this weight. The results are in the order of the files.
    pub fn open_all(files: &[Arc<Self>], weight: f64) -> Vec<Result<Arc<DataFile>>> {
        side_by_side(files, |file| file.open_for(weight))
    }

    /// Why the file cannot be read, as far as is known without reading it: what was found when it was last opened, or
    /// else whether it exists and has the right length.
    pub fn known_trouble(&self) -> Option<Unreadable> {
        if self.opened().is_some() {
            return None;
        }
        let opening = self.opening.try_lock();
        if let Some(found) = opening.and_then(|damage| damage.clone()) {
            return Some(Unreadable::Damaged(found));
        }
        let path = self.paths.data();
        let real = self.paths.root().real(&path);
        let found = real.metadata().map_err(|error| missing(&real, error));
        let trouble = match found.map_err(StoreError::io("measure", &path)) {
            Ok(found) if found.len() == self.file_bytes => return None,
            Ok(found) => wrong_length(&path, self.file_bytes, found.len()).into(),
            Err(error) => error,
        };
        Some(self.unreadable(trouble))
    }

    /// Checksum of the footer: it tells this file from any other. Read from the checksum file while the data file is
    /// not open.
    pub fn footer_sum(&self) -> Result<u32> {
        match self.opened() {
            Some(file) => Ok(file.footer_sum),
            None => Ok(Sums::of_file(&self.paths, Some(self.id))?.footer),
        }
    }

    fn key(&self) -> u64 {
        self.known.cache_id.0.into()
    }

    fn unreadable(&self, error: StoreError) -> Unreadable {
        match error.into_unavailable() {
            Ok(error) => Unreadable::Unavailable(error),
            Err(error) => Unreadable::Damaged(error.into_damage(&self.paths.data(), "data file")),
        }
    }

    fn read(&self) -> Result<DataFile> {
        let path = self.paths.data();
        let sums = Sums::of_file(&self.paths, Some(self.id))?;
        let io = self.known.handle.open()?;
        check_length(&path, io.len_bytes(), &sums, self.file_bytes)?;
        let footer_bytes = sums.file_bytes - sums.footer_offset;
        let engine = self.known.handle.engine();
        let bytes = engine.read(&io, sums.footer_offset, footer_bytes as usize);
        let bytes = futures::executor::block_on(bytes)?;
        let footer = footer::parse(&path, &sums, &bytes, &self.opener.session)?;
        let map = SegmentMap::new(&footer)?;
        map.check_count(&self.paths.sums(), &sums)?;
        // A file does not change: once is enough.
        if !self.was_opened() {
            self.compare(&footer, &map)?;
        }
        let memory = reserve(&self.opener.cache, footer_bytes, map.memory_bytes());
        self.known.describe(&map, sums.segments, &self.column_ids);
        Ok(DataFile {
            paths: self.paths.clone(),
            stats: self.stats.clone(),
            footer,
            map,
            footer_sum: sums.footer,
            id: self.id,
            schema: self.schema.clone(),
            file_bytes: self.file_bytes,
            known: self.known.clone(),
            memory,
        })
    }

    /// The catalog must say the same about the rows as the file.
    fn compare(&self, footer: &Footer, map: &SegmentMap) -> Result<()> {
        let session = &self.opener.session;
        let in_file = footer::statistics(footer, map, &self.schema, session, Vec::new())?;
        match footer::difference(&in_file, &self.stats) {
            Some(difference) => Err(difference.into()),
            None => Ok(()),
        }
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        self.opener.footers().forget(self.key());
    }
}

impl std::fmt::Debug for TableFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableFile")
            .field("path", &self.paths.data())
            .finish_non_exhaustive()
    }
}

/// The statistics and the identity of a file whose entry in the catalog is damaged.
fn stats_in_file(
    row: &FileRow,
    paths: &FilePaths,
    schema: &SchemaRef,
    opener: &Opener,
) -> Result<(FileStats, u64)> {
    tracing::warn!(
        file = row.number,
        "an entry of the catalog is damaged; the data file says what its rows are"
    );
    let sums = Sums::of(paths, row)?;
    if sums.file_bytes != row.file_bytes {
        return Err(wrong_length(&paths.data(), row.file_bytes, sums.file_bytes).into());
    }
    let footer = footer::read(paths, &sums, &opener.session)?;
    let map = SegmentMap::new(&footer)?;
    let stats = footer::statistics(&footer, &map, schema, &opener.session, Vec::new())?;
    Ok((stats, sums.origin.map_or(0, |origin| origin.id)))
}
