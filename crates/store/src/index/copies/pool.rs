//! Copies in pools: found again when a database is opened, and made under another name, so that none is half there.

use std::path::{Path, PathBuf};

use hotshelf_tier::TierError;
use hotshelf_tier::persist::{RegionOps, WriterOptions};
use hotshelf_tier::pool::{LayoutId, Pool, PoolOptions};
use hotshelf_tier::region::{FileOptions, Region, Sealed};

use super::layout::{GivesLeaves, LeafLayout, copy_leaves};
use crate::error::{Result, StoreError};

/// What such a pool is for.
const LAYOUT: LayoutId = *b"hotshelf leaves1";
/// Room for a pool's header and directories, beyond its leaves.
const POOL_BYTES: u64 = 1 << 20;

/// Where the pool of an index file is in a folder.
pub(super) fn path(folder: &Path, id: u64) -> PathBuf {
    folder.join(format!("hotshelf-{id:016x}.pool"))
}

fn pool_id(of_file: u64) -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&of_file.to_le_bytes());
    id
}

/// Finds the pool of an earlier time, or makes it. `None` if nothing but the copying needs it any more.
pub(super) async fn find_or_make(
    source: &impl GivesLeaves,
    (id, path): (u64, &Path),
    layout: &LeafLayout,
) -> Result<Option<Vec<Sealed>>> {
    let found = find_pool(path, id, layout).unwrap_or_else(|error| {
        tracing::warn!(%error, path = %path.display(), "the copy of an index is made again");
        None
    });
    match found {
        Some(pieces) => Ok(Some(pieces)),
        None => make_pool(source, (id, path), layout).await,
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
    let kind = std::io::ErrorKind::InvalidInput;
    StoreError::io("use", path)(std::io::Error::new(kind, "it is not an ordinary file"))
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
    let copied = copy_leaves(source, layout, &mut pool).await;
    if !matches!(copied, Ok(true)) {
        std::fs::remove_file(&unfinished).ok();
        return copied.map(|_| None);
    }
    pool.publish()?;
    std::fs::rename(&unfinished, path).map_err(StoreError::io("rename", &unfinished))?;
    Ok(Some(pieces_of(&mut pool)?))
}
