//! Copies in pools: found again when a database is opened, and made under another name, so that none is half there.

use std::collections::BTreeSet;
use std::io::ErrorKind::{InvalidInput, NotADirectory, NotFound};
use std::path::{Path, PathBuf};

use hotshelf_tier::TierError;
use hotshelf_tier::persist::{PersistOps, RegionOps, WriterOptions};
use hotshelf_tier::pool::{Front, LayoutId, Pool, PoolOptions};
use hotshelf_tier::region::{FileOptions, Region, Sealed};
use parking_lot::Mutex;

use super::layout::{GivesLeaves, LeafLayout, copy_leaves};
use crate::error::{Result, StoreError};

/// What such a pool is for.
const LAYOUT: LayoutId = *b"hotshelf leaves1";
/// Room for a pool's header and directories, beyond its leaves.
const POOL_BYTES: u64 = 1 << 20;

/// The place of an index file's pool: a file in a folder, or all of a devdax device, which has no names and so room for
/// one pool only.
#[derive(Debug, Clone)]
pub(super) struct PoolPlace {
    /// The folder or the device.
    shelf: PathBuf,
    /// No other index file has it.
    id: u64,
}

impl PoolPlace {
    pub fn new(shelf: &Path, id: u64) -> Self {
        let shelf = shelf.to_owned();
        Self { shelf, id }
    }

    /// The name is this index file's alone.
    fn file(&self) -> PathBuf {
        self.shelf.join(format!("hotshelf-{:016x}.pool", self.id))
    }

    fn is_device(&self) -> bool {
        Region::is_devdax(&self.shelf).unwrap_or(false)
    }

    /// Finds the pool of an earlier time, or makes it. `None` if nothing but the copying needs it any more.
    ///
    /// The branch for devices was not run on one: none was at hand. Its parts were, on files.
    pub async fn find_or_make(
        &self,
        source: &impl GivesLeaves,
        layout: &LeafLayout,
    ) -> Result<Option<Vec<Sealed>>> {
        if self.is_device() {
            let needed_bytes = layout.len_bytes() + POOL_BYTES;
            let open = || Region::open_devdax(&self.shelf, needed_bytes);
            return device_pool(open, source, self.id, layout).await;
        }
        let path = self.file();
        let found = find_pool(&path, self.id, layout).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "the copy of an index is made again");
            None
        });
        match found {
            Some(pieces) => Ok(Some(pieces)),
            None => make_pool(source, (self.id, &path), layout).await,
        }
    }

    /// Removes the pool and what an earlier try left of one, but not one that is being made: who makes it removes it if
    /// it is not wanted any more. What does not carry this index file's id stays.
    pub fn remove(&self) {
        let path = self.file();
        let made = UNFINISHED.lock();
        for path in [path.with_extension("pool.tmp"), path] {
            if made.contains(&path) {
                continue;
            }
            if let Err(error) = self.remove_file(&path) {
                tracing::warn!(%error, path = %path.display(), "a copy of an index remains");
            }
        }
    }

    fn remove_file(&self, path: &Path) -> std::io::Result<()> {
        match std::fs::symlink_metadata(path) {
            // On a device there are no files.
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Ok(()),
            Err(error) => return Err(error),
            Ok(found) if !found.is_file() => return Ok(()),
            Ok(_) => {}
        }
        let found = Front::of_file(path)?;
        // Making one ended before anything was written. A pool that has its name is whole.
        let is_begun = path != self.file() && found == Front::Blank;
        match is_begun || found == front(self.id) {
            true => std::fs::remove_file(path),
            false => Ok(()),
        }
    }

    /// Makes the device free for another index, if it is one and has this index file's pool. It must not be mapped.
    pub fn free_device(&self) {
        if self.is_device()
            && let Err(error) = erase_pool(|| Region::open_devdax(&self.shelf, 1), self.id)
        {
            tracing::warn!(%error, path = %self.shelf.display(), "a copy of an index remains");
        }
    }
}

fn pool_id(of_file: u64) -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&of_file.to_le_bytes());
    id
}

/// The front of an index file's pool.
fn front(of_file: u64) -> Front {
    Front::Pool {
        layout: LAYOUT,
        pool_id: pool_id(of_file),
    }
}

/// Finds or makes the pool of an index file on a device that `open` opens. A device with anything else than that pool
/// or zeroes in its front is not this index file's, and an error.
async fn device_pool(
    open: impl Fn() -> Result<Region, TierError>,
    source: &impl GivesLeaves,
    id: u64,
    layout: &LeafLayout,
) -> Result<Option<Vec<Sealed>>> {
    let region = own_device(open()?, id)?;
    let is_blank = Front::of(region.bytes()) == Front::Blank;
    if is_blank {
        drop(region);
    } else {
        match open_pool(region, id, layout) {
            Ok(Some(pieces)) => return Ok(Some(pieces)),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the copy of an index is made again"),
        }
    }
    let region = own_device(open()?, id)?;
    let options = PoolOptions {
        overwrite: true,
        ..pool_options(id)
    };
    let mut pool = Pool::create(region, &options)?;
    match fill_pool(source, layout, &mut pool, |_| Ok(())).await? {
        true => Ok(Some(pieces_of(&mut pool)?)),
        false => Ok(None),
    }
}

fn own_device(region: Region, id: u64) -> Result<Region, TierError> {
    let found = match Front::of(region.bytes()) {
        Front::Blank => return Ok(region),
        own if own == front(id) => return Ok(region),
        Front::Pool { layout, pool_id } => {
            let [layout, pool_id] = [layout, pool_id].map(|id| id.escape_ascii().to_string());
            format!("pool {pool_id} of {layout}")
        }
        _ => "other bytes".into(),
    };
    Err(TierError::ForeignPool {
        path: region.path().to_path_buf(),
        what: "front",
        expected: format!("zeroes or the pool of index file {id:016x}"),
        found,
    })
}

/// Erases the pool of an index file on a device, if it has that.
fn erase_pool(open: impl Fn() -> Result<Region, TierError>, id: u64) -> Result<(), TierError> {
    let region = open()?;
    match Front::of(region.bytes()) == front(id) {
        true => Pool::erase(region),
        false => Ok(()),
    }
}

/// The pool of an earlier time, if there is a whole one of this index file.
fn find_pool(path: &Path, id: u64, layout: &LeafLayout) -> Result<Option<Vec<Sealed>>> {
    match std::fs::symlink_metadata(path) {
        Err(_) => return Ok(None),
        Ok(found) if !found.is_file() => return Err(not_a_file(path)),
        Ok(_) => {}
    }
    let region = Region::open_file(path, &FileOptions::default())?;
    open_pool(region, id, layout)
}

/// The pieces of a pool, if it is a whole one of this index file.
fn open_pool(region: Region, id: u64, layout: &LeafLayout) -> Result<Option<Vec<Sealed>>> {
    let mut pool = Pool::open(region, &LAYOUT, &WriterOptions::default())?;
    let found_bytes: u64 = pool.segments().iter().map(|piece| piece.len_bytes).sum();
    let is_whole = pool.id() == pool_id(id)
        && pool.segments().len() == layout.piece_count()
        && found_bytes == layout.end();
    match is_whole {
        true => Ok(Some(pieces_of(&mut pool)?)),
        false => Ok(None),
    }
}

/// Blocks have checksums of their own: they are not read here.
fn pieces_of(pool: &mut Pool<RegionOps>) -> Result<Vec<Sealed>, TierError> {
    let pieces = 0..pool.segments().len();
    pieces.map(|piece| pool.segment_unverified(piece)).collect()
}

fn not_a_file(path: &Path) -> StoreError {
    StoreError::io("use", path)(std::io::Error::new(
        InvalidInput,
        "it is not an ordinary file",
    ))
}

/// Pools that are being made, by the name they have until they are complete.
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// One of them.
struct Unfinished(PathBuf);

impl Unfinished {
    fn begin(pool: &Path) -> Self {
        let path = pool.with_extension("pool.tmp");
        UNFINISHED.lock().insert(path.clone());
        Self(path)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        UNFINISHED.lock().remove(&self.0);
    }
}

/// Makes a pool under another name, and gives it its own once it is complete.
async fn make_pool(
    source: &impl GivesLeaves,
    (id, path): (u64, &Path),
    layout: &LeafLayout,
) -> Result<Option<Vec<Sealed>>> {
    let options = FileOptions {
        len_bytes: Some(layout.len_bytes() + POOL_BYTES),
        ..FileOptions::default()
    };
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(not_a_file(path));
    }
    let made = Unfinished::begin(path);
    let unfinished = &made.0;
    // The name is this index file's alone: what has it is an earlier try.
    match std::fs::remove_file(unfinished) {
        Err(error) if error.kind() != NotFound => {
            return Err(StoreError::io("remove", unfinished)(error));
        }
        _ => {}
    }
    let region = Region::open_file(unfinished, &options)?;
    let mut pool = Pool::create(region, &pool_options(id))?;
    let rename = |_: &Pool<RegionOps>| {
        std::fs::rename(unfinished, path).map_err(StoreError::io("rename", unfinished))
    };
    let filled = fill_pool(source, layout, &mut pool, rename).await;
    match filled {
        Ok(true) => Ok(Some(pieces_of(&mut pool)?)),
        _ => {
            std::fs::remove_file(unfinished).ok();
            filled.map(|_| None)
        }
    }
}

fn pool_options(id: u64) -> PoolOptions {
    PoolOptions {
        layout: LAYOUT,
        pool_id: pool_id(id),
        ..PoolOptions::default()
    }
}

/// Copies leaves into an empty pool, and gives it its name when all of them are durable. False if nothing but the
/// copying needs them any more.
async fn fill_pool<O: PersistOps>(
    source: &impl GivesLeaves,
    layout: &LeafLayout,
    pool: &mut Pool<O>,
    name: impl FnOnce(&Pool<O>) -> Result<()>,
) -> Result<bool> {
    let is_whole = copy_leaves(source, layout, pool).await?;
    if is_whole {
        pool.publish()?;
        name(pool)?;
    }
    Ok(is_whole)
}

#[cfg(test)]
mod tests;
