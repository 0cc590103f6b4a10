//! The index file of a data file (`docs/FORMAT.md`): one packed Elf per stretch of rows, how columns become
//! codes, and what the planner needs to know about each Elf.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotshelf_elf::cost::CostModel;
use hotshelf_tier::Corruption;

use super::copies::CopySlot;
use super::keys::KeyColumn;
use super::paths::IndexPaths;
use super::zones::Zones;
use crate::data_file::Opener;
use crate::descriptors::Handle;
use crate::error::{Result, StoreError};
use crate::in_use::Use;
pub use crate::reservation::Reservation;
use crate::shelf::Shelf;

pub(super) const MAGIC: &[u8; 8] = b"HSELFIDX";
/// Version 2 does not name its data file by number.
pub(super) const VERSION: u32 = 3;
const VERSION_MIN: u32 = 2;
pub(super) const SUPERBLOCK_BYTES: usize = 4096;
pub(super) const FLAG_CLUSTERED: u32 = 1;

/// Keys of stretches are multiples of this: the numbers between name parts of their Elfs.
const KEY_STEP: u64 = 2;

/// The data file an index file was made for: another one is foreign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indexes {
    /// Rows of the data file.
    pub row_count: u64,
    /// Its length.
    pub file_bytes: u64,
    /// Checksum of its footer.
    pub footer_sum: u32,
    /// A number that no other data file has; 0 for a file of format 1.
    pub id: u64,
}

/// One Elf of an index file.
#[derive(Debug)]
pub struct Stretch {
    /// Rows of the data file.
    pub rows: Range<u64>,
    /// What asking the Elf costs.
    pub model: CostModel,
    /// Bounds of codes.
    pub zones: Zones,
    /// The Elf's name in the store.
    pub key: u64,
    /// Where the Elf begins in the file, its leaves in the Elf, and its length.
    pub(super) offset: u64,
    pub(super) leaf_offset: u64,
    pub(super) bytes: u64,
    /// Held while the head is being read.
    pub reading: tokio::sync::Mutex<()>,
}

impl Stretch {
    /// The numbers by which the tuner knows the Elf's head and its blocks.
    pub fn items(&self) -> [u64; 2] {
        [self.head_item(), self.blocks_item()]
    }

    pub(super) fn head_item(&self) -> u64 {
        Self::head_item_of(self.key)
    }

    pub(super) fn head_item_of(key: u64) -> u64 {
        key
    }

    pub(super) fn blocks_item(&self) -> u64 {
        Self::blocks_item_of(self.key)
    }

    pub(super) fn blocks_item_of(key: u64) -> u64 {
        key + 1
    }

    /// Bytes of the Elf in its file.
    pub fn file_bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of its leaves.
    pub fn leaf_bytes(&self) -> u64 {
        self.bytes - self.leaf_offset
    }

    /// Bytes of its head in the file.
    pub fn head_bytes(&self) -> u64 {
        self.leaf_offset
    }

    /// Bytes of its head in memory, about.
    pub fn head_memory_bytes(&self) -> u64 {
        self.leaf_offset
    }
}

/// Takes numbers from bytes that may be anything.
struct Fields<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    /// Offset of `bytes` in the file.
    offset: u64,
}

impl<'a> Fields<'a> {
    fn corrupt(
        &self,
        what: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> Corruption {
        corrupt(self.path, self.offset, what, expected, found)
    }

    fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], Corruption> {
        let Some((taken, rest)) = self.bytes.split_at_checked(count) else {
            return Err(self.corrupt(what, format!("{count} bytes"), self.bytes.len()));
        };
        self.bytes = rest;
        self.offset += count as u64;
        Ok(taken)
    }

    fn word(&mut self, what: &'static str) -> Result<u32, Corruption> {
        let taken = self.take(4, what)?;
        Ok(u32::from_le_bytes([taken[0], taken[1], taken[2], taken[3]]))
    }

    fn number(&mut self, what: &'static str) -> Result<u64, Corruption> {
        let (low, high) = (self.word(what)?, self.word(what)?);
        Ok(u64::from(low) | u64::from(high) << 32)
    }

    fn blob(&mut self, what: &'static str) -> Result<&'a [u8], Corruption> {
        let count = self.word(what)? as usize;
        self.take(count, what)
    }
}

pub(super) fn corrupt(
    path: &Path,
    offset: u64,
    what: &'static str,
    expected: impl ToString,
    found: impl ToString,
) -> Corruption {
    Corruption {
        file: path.to_owned(),
        offset,
        what: what.into(),
        expected: expected.to_string(),
        found: found.to_string(),
    }
}

/// What the superblock says.
pub(super) struct Superblock {
    clustered: bool,
    pub(super) indexes: Indexes,
    /// Number of the index; 0 in a file of an early version.
    index: i64,
    /// A number that no other index file has; 0 in a file of an earlier build.
    id: u64,
    column_count: usize,
    pub(super) meta: Range<u64>,
    meta_sum: u32,
    stretch_count: u32,
}

impl Superblock {
    pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Self, Corruption> {
        let mut input = Fields {
            path,
            bytes,
            offset: 0,
        };
        let Some((body, sum)) = bytes.split_at_checked(SUPERBLOCK_BYTES - 4) else {
            return Err(input.corrupt("superblock", SUPERBLOCK_BYTES, bytes.len()));
        };
        if input.take(8, "magic")? != MAGIC {
            return Err(input.corrupt("magic", "HSELFIDX", "other bytes"));
        }
        let found = crc32fast::hash(body);
        if sum != found.to_le_bytes() {
            return Err(input.corrupt("superblock", "its checksum", format!("{found:08x}")));
        }
        let version = input.word("version")?;
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(input.corrupt("version", VERSION, version));
        }
        let clustered = input.word("flags")? & FLAG_CLUSTERED != 0;
        let (row_count, file_bytes) = (input.number("rows")?, input.number("data bytes")?);
        let footer_sum = input.word("data checksum")?;
        let column_count = input.word("columns")? as usize;
        let (start, length) = (input.number("description")?, input.number("description")?);
        let (meta_sum, stretch_count) = (
            input.word("description's checksum")?,
            input.word("stretches")?,
        );
        let id = match version {
            VERSION_MIN => 0,
            _ => input.number("data file's identity")?,
        };
        let index = match version {
            VERSION_MIN => 0,
            _ => input.number("index")? as i64,
        };
        let own_id = match version {
            VERSION_MIN => 0,
            _ => input.number("identity")?,
        };
        Ok(Self {
            clustered,
            index,
            id: own_id,
            indexes: Indexes {
                row_count,
                file_bytes,
                footer_sum,
                id,
            },
            column_count,
            meta: start..start.saturating_add(length),
            meta_sum,
            stretch_count,
        })
    }

    /// Whether the file belongs to the data file and the index it stands for.
    pub(super) fn check(
        &self,
        paths: &IndexPaths,
        indexes: Indexes,
        column_count: usize,
    ) -> Result<(), Corruption> {
        let path = &paths.file();
        if self.index != 0 && self.index != paths.index_id {
            return Err(corrupt(path, 72, "index", paths.index_id, self.index));
        }
        if self.indexes != indexes {
            let show = |of: Indexes| {
                format!(
                    "{} rows, {} bytes, sum {:08x}, identity {:016x}",
                    of.row_count, of.file_bytes, of.footer_sum, of.id
                )
            };
            return Err(corrupt(
                path,
                16,
                "indexed data file",
                show(indexes),
                show(self.indexes),
            ));
        }
        if self.column_count != column_count {
            return Err(corrupt(
                path,
                36,
                "indexed columns",
                column_count,
                self.column_count,
            ));
        }
        Ok(())
    }

    pub(super) fn read_meta(
        &self,
        path: &Path,
        bytes: &[u8],
    ) -> Result<(Vec<KeyColumn>, Vec<Stretch>), StoreError> {
        let found = crc32fast::hash(bytes);
        if found != self.meta_sum {
            let (expected, found) = (format!("{:08x}", self.meta_sum), format!("{found:08x}"));
            let sum = "checksum of the description";
            return Err(corrupt(path, self.meta.start, sum, expected, found).into());
        }
        let mut input = Fields {
            path,
            bytes,
            offset: self.meta.start,
        };
        let keys = (0..self.column_count)
            .map(|_| KeyColumn::from_bytes(path, input.blob("encoding")?))
            .collect::<Result<Vec<_>>>()?;
        let mut stretches = Vec::new();
        let mut end = 0;
        for _ in 0..self.stretch_count {
            let (first, count) = (input.number("first row")?, input.number("rows")?);
            let offset = input.number("offset")?;
            let leaf_offset = input.number("leaf offset")?;
            let bytes = input.number("bytes")?;
            let model = CostModel::from_bytes(path, input.blob("model")?)?;
            let fits = leaf_offset <= bytes
                && offset
                    .checked_add(bytes)
                    .is_some_and(|end| end <= self.meta.start)
                && first == end
                && count <= u64::from(u32::MAX);
            if !fits {
                let what = "stretch of rows";
                return Err(input
                    .corrupt(what, "one that follows the last", first)
                    .into());
            }
            end = first + count;
            let zones = input.blob("zones")?;
            stretches.push(Stretch {
                rows: first..end,
                model,
                zones: Zones::from_bytes(path, zones, &(first..end), keys.len())?,
                key: next_key(),
                offset,
                leaf_offset,
                bytes,
                reading: tokio::sync::Mutex::new(()),
            });
        }
        if end != self.indexes.row_count {
            return Err(input
                .corrupt("indexed rows", self.indexes.row_count, end)
                .into());
        }
        Ok((keys, stretches))
    }
}

fn next_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(KEY_STEP, Ordering::Relaxed)
}

/// Keeps what was read of index files in memory.
pub trait KeepsElfs: Send + Sync {
    /// Forgets the Elfs of a file of an index that is going.
    fn forget(&self, index: i64, stretches: &[Stretch]);
}

/// An index file open for reading. Its description stays in memory, on the budget; Elfs come and go.
pub struct IndexFile {
    /// Its Elfs, in the order of their rows.
    pub stretches: Vec<Stretch>,
    /// How columns become codes.
    pub keys: Vec<KeyColumn>,
    /// Whether the data file's rows are in the order of these Elfs.
    pub clustered: bool,
    index: i64,
    /// No other index file has it; 0 in a file of an earlier build.
    id: u64,
    file_bytes: u64,
    pub(super) handle: Handle,
    /// Its leaves on another shelf, once they exist there.
    copy: CopySlot,
    keeper: Arc<dyn KeepsElfs>,
    _described: Reservation,
    used: Use,
}

impl std::fmt::Debug for IndexFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexFile")
            .field("path", &self.handle.path())
            .finish_non_exhaustive()
    }
}

impl IndexFile {
    /// Opens the index file of a data file and checks its description.
    pub fn open<K: KeepsElfs + 'static>(
        opener: &Opener,
        keeper: &Arc<K>,
        paths: &IndexPaths,
        indexes: Indexes,
        column_count: usize,
    ) -> Result<Self> {
        let (number, index) = (paths.file_number, paths.index_id);
        let in_use = opener.in_use.index_file(&paths.table_folder, number, index);
        let path = &paths.file();
        let handle = opener.descriptors().handle(&paths.root, path.clone());
        let io = handle.open()?;
        let length = io.len_bytes();
        let read = |offset: u64, length: u64| -> Result<bytes::Bytes> {
            let read = handle.engine().read(&io, offset, length as usize);
            Ok(futures::executor::block_on(read)?)
        };
        let superblock = read(0, length.min(SUPERBLOCK_BYTES as u64))?;
        let superblock = Superblock::read(path, &superblock)?;
        superblock.check(paths, indexes, column_count)?;
        if superblock.meta.end != length {
            return Err(corrupt(path, length, "file length", superblock.meta.end, length).into());
        }
        let meta = read(superblock.meta.start, length - superblock.meta.start)?;
        let (keys, stretches) = superblock.read_meta(path, &meta)?;
        let dictionaries: u64 = keys.iter().map(KeyColumn::dictionary_bytes).sum();
        let others = (meta.len() as u64).saturating_sub(dictionaries);
        Ok(Self {
            stretches,
            keys,
            clustered: superblock.clustered,
            index,
            id: superblock.id,
            file_bytes: length,
            handle,
            copy: CopySlot::default(),
            keeper: keeper.clone(),
            _described: Reservation::reserve(&opener.cache, dictionaries + others),
            used: in_use,
        })
    }

    /// The number of the index.
    pub fn index(&self) -> i64 {
        self.index
    }

    /// A number that no other index file has, if it has one.
    pub(super) fn identity(&self) -> Option<u64> {
        (self.id != 0).then_some(self.id)
    }

    /// Where its leaves on another shelf are.
    pub(super) fn copy(&self) -> &CopySlot {
        &self.copy
    }

    /// Says on which shelf its leaves are to be. A pool from an earlier time goes with the file, asked for or not.
    pub fn put_on(&self, shelf: &Shelf) {
        self.copy.put_on(shelf, self.identity());
    }

    /// Removes its leaves from another shelf. Queries that read them can finish.
    pub fn leave_shelf(&self) {
        self.copy.leave();
    }

    /// Whether its leaves are read from another shelf.
    pub fn is_copied(&self) -> bool {
        self.copy.get().is_some()
    }

    /// Its length.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The path that errors show.
    pub(super) fn path(&self) -> &Path {
        self.handle.path()
    }
}

impl Drop for IndexFile {
    fn drop(&mut self) {
        self.keeper.forget(self.index, &self.stretches);
        self.copy.end(self.used.is_ending());
    }
}

/// The corruption with its place in the whole file.
pub(super) fn located(error: StoreError, base: u64) -> StoreError {
    match error {
        StoreError::Corruption(found) => StoreError::Corruption(Corruption {
            offset: found.offset + base,
            ..found
        }),
        other => other,
    }
}
