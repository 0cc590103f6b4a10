//! Copies of leaf blocks on a shelf that loads can read: persistent memory, the memory of another node, or an emulated
//! device. The index file stays what counts: without its copy an index is slower, and nothing is lost.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use hotshelf_elf::layout::packed::{ElfHead, Frame};
use hotshelf_tier::TierError;
use hotshelf_tier::emulated::{DeviceModel, EmulatedTier};
use hotshelf_tier::persist::WriterOptions;
use hotshelf_tier::pool::{LayoutId, Pool, PoolOptions};
use hotshelf_tier::region::{AnonymousOptions, FileOptions, Region, Sealed};

use super::file::{IndexFile, Stretch};
use super::place::IndexShelf;
use crate::error::{Result, StoreError};

/// What such a pool is for.
const LAYOUT: LayoutId = *b"hotshelf leaves1";
/// Bytes of leaves that are copied at once, and of one segment of a pool: whole pages.
const PIECE_BYTES: u64 = 4 << 20;
/// Leaves of a stretch start on multiples of this, so that a page of blocks is in one piece.
const ALIGN: u64 = 64 << 10;
/// Room for a pool's header and directories, beyond its leaves.
const POOL_BYTES: u64 = 1 << 20;

/// A copy of the leaves of all Elfs of an index file.
pub(crate) struct LeafCopy {
    memory: CopyMemory,
    /// Where the leaves of each stretch start.
    starts: Vec<u64>,
}

enum CopyMemory {
    /// The segments of a pool.
    Pool(Vec<Sealed>),
    Node(Region),
    Emulated(Box<EmulatedTier>),
}

/// Where a file's copy is, once it is made.
#[derive(Default)]
pub(super) struct CopySlot {
    copy: OnceLock<LeafCopy>,
    /// The file of the copy, if it has one.
    pool: OnceLock<PathBuf>,
    /// Whether it was begun to be made, and whether it turned out damaged.
    is_begun: AtomicBool,
    is_damaged: AtomicBool,
}

impl CopySlot {
    /// The copy, if it exists and is sound as far as is known.
    pub fn get(&self) -> Option<&LeafCopy> {
        let copy = self.copy.get()?;
        (!self.is_damaged.load(Relaxed)).then_some(copy)
    }

    /// Notes that blocks of the copy are not those of the file, which is read from here on.
    pub fn give_up(&self, file: &Path, error: &StoreError) {
        if !self.is_damaged.swap(true, Relaxed) {
            tracing::warn!(%error, file = %file.display(), "the copy of an index is damaged; its file is read");
            // The next opening makes it again.
            self.remove_pool();
        }
    }

    /// Removes the file of the copy, if it has one: the index file goes, or the copy is damaged.
    pub fn remove_pool(&self) {
        if let Some(pool) = self.pool.get()
            && let Err(error) = std::fs::remove_file(pool)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %pool.display(), "a copy of an index remains");
        }
    }

    /// Begins to make the copy of a file, once, on a thread of its own. Queries read the file until it exists.
    pub fn begin(file: &Arc<IndexFile>, shelf: &IndexShelf) {
        let slot = file.copy();
        if *shelf == IndexShelf::File || slot.is_begun.swap(true, Relaxed) {
            return;
        }
        let (file, shelf) = (file.clone(), shelf.clone());
        let name = "hotshelf-shelf".to_owned();
        let make = move || {
            let made = futures::executor::block_on(LeafCopy::of(&file, &shelf));
            match made {
                Ok(Some(copy)) => drop(file.copy().copy.set(copy)),
                Ok(None) => {}
                Err(error) => {
                    let path = file.path().display();
                    let what = "an index cannot be put on its shelf; its file is read";
                    tracing::warn!(%error, %shelf, file = %path, "{what}");
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name(name).spawn(make) {
            tracing::warn!(%error, "no thread to copy an index on");
        }
    }
}

/// What was read of a copy.
pub(crate) struct CopiedBlocks {
    pub frames: Vec<(u32, Frame)>,
    /// Accesses, and how long one took.
    pub accesses: usize,
    pub access_s: f64,
}

/// Where leaves go.
trait TakesLeaves {
    fn take(&mut self, at: u64, bytes: &[u8]) -> Result<(), TierError>;
}

impl TakesLeaves for Region {
    fn take(&mut self, at: u64, bytes: &[u8]) -> Result<(), TierError> {
        let (at, region_bytes) = (at as usize, self.len_bytes() as u64);
        let outside = TierError::OutsideRegion {
            offset: at as u64,
            len_bytes: bytes.len() as u64,
            region_bytes,
        };
        let target = self.volatile_bytes_mut();
        let target = target.and_then(|all| all.get_mut(at..at + bytes.len()));
        target.ok_or(outside)?.copy_from_slice(bytes);
        Ok(())
    }
}

impl TakesLeaves for EmulatedTier {
    fn take(&mut self, at: u64, bytes: &[u8]) -> Result<(), TierError> {
        self.write(at as usize, bytes)
    }
}

impl<O: hotshelf_tier::persist::PersistOps> TakesLeaves for Pool<O> {
    fn take(&mut self, at: u64, bytes: &[u8]) -> Result<(), TierError> {
        self.append(at / PIECE_BYTES, &[bytes])
    }
}

/// Where the leaves of each stretch start, and where the last ones end.
fn layout(stretches: &[Stretch]) -> (Vec<u64>, u64) {
    let mut end = 0;
    let start = |stretch: &Stretch| {
        let start = end;
        end = (end + stretch.leaf_bytes()).next_multiple_of(ALIGN);
        start
    };
    let starts = stretches.iter().map(start).collect();
    (starts, end)
}

impl LeafCopy {
    /// Finds the copy of an index file on a shelf, or makes it: a pool from an earlier time is mapped, everything else
    /// is read from the file. Takes as long as reading it; `None` without leaves, or if the file is not used any more.
    pub async fn of(file: &Arc<IndexFile>, shelf: &IndexShelf) -> Result<Option<Self>> {
        let (starts, len_bytes) = layout(&file.stretches);
        let len = usize::try_from(len_bytes).unwrap_or(usize::MAX);
        if len == 0 {
            return Ok(None);
        }
        let memory = match shelf {
            IndexShelf::File => return Ok(None),
            IndexShelf::Node(node) => {
                let options = AnonymousOptions {
                    node: Some(*node),
                    ..AnonymousOptions::default()
                };
                let mut region = Region::anonymous(len, &options)?;
                match file.copy_leaves(&starts, &mut region).await? {
                    true => CopyMemory::Node(region),
                    false => return Ok(None),
                }
            }
            IndexShelf::Emulated(name) => {
                let mut device = EmulatedTier::new(DeviceModel::named(name)?, len)?;
                match file.copy_leaves(&starts, &mut device).await? {
                    true => CopyMemory::Emulated(Box::new(device)),
                    false => return Ok(None),
                }
            }
            IndexShelf::Dax(folder) => {
                let id = file.identity().ok_or_else(|| StoreError::NotSupported {
                    what: "a copy of an index that an earlier build made".into(),
                })?;
                let path = folder.join(format!("hotshelf-{id:016x}.pool"));
                let found = find_pool(&path, pool_id(id), len_bytes);
                let found = found.unwrap_or_else(|error| {
                    tracing::warn!(%error, path = %path.display(), "the copy of an index is made again");
                    None
                });
                // Only this index file has the name.
                file.copy().pool.set(path.clone()).ok();
                match found {
                    Some(sealed) => CopyMemory::Pool(sealed),
                    None => match make_pool(file, (id, &path), &starts, len_bytes).await? {
                        Some(sealed) => CopyMemory::Pool(sealed),
                        None => return Ok(None),
                    },
                }
            }
        };
        Ok(Some(Self { memory, starts }))
    }

    /// Reads blocks: of each page, which ascend, those that have a bit.
    pub fn blocks(
        &self,
        (path, stretch_idx): (&Path, usize),
        head: &ElfHead,
        wanted: &[(u32, u16)],
    ) -> Result<CopiedBlocks> {
        let (begun, paging) = (Instant::now(), head.paging());
        let start = self.starts[stretch_idx];
        let ranges = wanted.iter().map(|(page, bits)| {
            let (first, end) = (bits.trailing_zeros(), 16 - bits.leading_zeros());
            let at = u64::from(paging.first_block(*page) + first) * paging.block_bytes() as u64;
            (start + at, (end - first) as usize * paging.block_bytes())
        });
        let read = self.read(ranges.collect())?;
        let frames = wanted.iter().zip(&read).map(|(&(page, bits), bytes)| {
            let place = bits.trailing_zeros() as usize;
            let frame = head.frame(path, (page, bits), place, bytes);
            Ok((page, frame.map_err(StoreError::from)?))
        });
        Ok(CopiedBlocks {
            frames: frames.collect::<Result<_>>()?,
            accesses: wanted.len(),
            access_s: begun.elapsed().as_secs_f64() / wanted.len().max(1) as f64,
        })
    }

    /// Some ranges of bytes, each within a page.
    fn read(&self, ranges: Vec<(u64, usize)>) -> Result<Vec<Cow<'_, [u8]>>, TierError> {
        let outside = |(at, len): (u64, usize), region: usize| TierError::OutsideRegion {
            offset: at,
            len_bytes: len as u64,
            region_bytes: region as u64,
        };
        match &self.memory {
            CopyMemory::Pool(pieces) => {
                let read = ranges.into_iter().map(|(at, len)| {
                    let piece = pieces.get((at / PIECE_BYTES) as usize);
                    let from = (at % PIECE_BYTES) as usize;
                    let bytes = piece.and_then(|piece| piece.get(from..from + len));
                    bytes
                        .map(Cow::Borrowed)
                        .ok_or(outside((at, len), pieces.len()))
                });
                read.collect()
            }
            CopyMemory::Node(region) => {
                let read = ranges.into_iter().map(|(at, len)| {
                    let bytes = region.bytes().get(at as usize..at as usize + len);
                    let bytes = bytes.map(Cow::Borrowed);
                    bytes.ok_or(outside((at, len), region.len_bytes()))
                });
                read.collect()
            }
            CopyMemory::Emulated(device) => {
                let mut buffers: Vec<Vec<u8>> =
                    ranges.iter().map(|(_, len)| vec![0; *len]).collect();
                let targets = ranges.iter().zip(&mut buffers);
                let mut reads: Vec<(usize, &mut [u8])> = targets
                    .map(|((at, _), buffer)| (*at as usize, buffer.as_mut_slice()))
                    .collect();
                device.read_many(&mut reads)?;
                Ok(buffers.into_iter().map(Cow::Owned).collect())
            }
        }
    }
}

/// The pool of an earlier time, if there is a whole one of this index file.
fn find_pool(path: &Path, id: [u8; 16], len_bytes: u64) -> Result<Option<Vec<Sealed>>> {
    match std::fs::symlink_metadata(path) {
        Err(_) => return Ok(None),
        Ok(found) if !found.is_file() => return Err(not_a_file(path)),
        Ok(_) => {}
    }
    let region = Region::open_file(path, &FileOptions::default())?;
    let mut pool = Pool::open(region, &LAYOUT, &WriterOptions::default())?;
    let pieces = pool.segments().len();
    let found_bytes: u64 = pool.segments().iter().map(|piece| piece.len_bytes).sum();
    // The last stretch is not padded.
    let is_whole = pool.id() == id
        && pieces as u64 == len_bytes.div_ceil(PIECE_BYTES)
        && (len_bytes - ALIGN..=len_bytes).contains(&found_bytes);
    if !is_whole {
        return Ok(None);
    }
    // Blocks have checksums of their own.
    let sealed = (0..pieces).map(|piece| pool.segment_unverified(piece));
    Ok(Some(sealed.collect::<Result<_, TierError>>()?))
}

fn pool_id(of_file: u64) -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&of_file.to_le_bytes());
    id
}

fn not_a_file(path: &Path) -> StoreError {
    let kind = std::io::ErrorKind::InvalidInput;
    StoreError::io("use", path)(std::io::Error::new(kind, "it is not an ordinary file"))
}

/// Makes a pool under another name, and gives it its own once it is complete. `None` if the file is not used any more.
async fn make_pool(
    file: &Arc<IndexFile>,
    (id, path): (u64, &Path),
    starts: &[u64],
    len_bytes: u64,
) -> Result<Option<Vec<Sealed>>> {
    let options = FileOptions {
        len_bytes: Some(len_bytes.next_multiple_of(ALIGN) + POOL_BYTES),
        ..FileOptions::default()
    };
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(not_a_file(path));
    }
    let unfinished = path.with_extension("pool.tmp");
    // The name is this index file's alone: what has it is an earlier try.
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(StoreError::io("remove", &unfinished)(error));
        }
        _ => {}
    }
    let region = Region::open_file(&unfinished, &options)?;
    let options = PoolOptions {
        layout: LAYOUT,
        pool_id: pool_id(id),
        ..PoolOptions::default()
    };
    let mut pool = Pool::create(region, &options)?;
    let copied = file.copy_leaves(starts, &mut pool).await;
    if !matches!(copied, Ok(true)) {
        std::fs::remove_file(&unfinished).ok();
        return copied.map(|_| None);
    }
    pool.publish()?;
    std::fs::rename(&unfinished, path).map_err(StoreError::io("rename", &unfinished))?;
    let sealed = (0..pool.segments().len()).map(|piece| pool.segment_unverified(piece));
    Ok(Some(sealed.collect::<Result<_, TierError>>()?))
}

impl IndexFile {
    /// Reads the leaves of all Elfs and gives them to `target`, piece by piece. False if nothing but the copying needs
    /// the file any more.
    async fn copy_leaves(
        self: &Arc<Self>,
        starts: &[u64],
        target: &mut impl TakesLeaves,
    ) -> Result<bool> {
        let (mut piece, mut at) = (Vec::new(), 0);
        for (stretch, start) in self.stretches.iter().zip(starts) {
            piece.resize((start - at) as usize, 0);
            let leaves = stretch.leaf_bytes();
            let mut read_bytes = 0;
            while read_bytes < leaves {
                if Arc::strong_count(self) == 1 {
                    return Ok(false);
                }
                if piece.len() as u64 == PIECE_BYTES {
                    target.take(at, &piece)?;
                    at += PIECE_BYTES;
                    piece.clear();
                }
                let room = PIECE_BYTES - piece.len() as u64;
                let wanted = room.min(leaves - read_bytes);
                piece.extend_from_slice(&self.read_leaves(stretch, read_bytes, wanted).await?);
                read_bytes += wanted;
            }
        }
        if !piece.is_empty() {
            target.take(at, &piece)?;
        }
        Ok(true)
    }
}
