//! Making the copy of an index file.

use std::sync::Arc;

use hotshelf_tier::emulated::{DeviceModel, EmulatedTier};
use hotshelf_tier::region::{AnonymousOptions, Region, Sealed};
use parking_lot::Mutex;

use super::layout::{ALIGN, GivesLeaves, LeafLayout, PIECE_BYTES, copy_leaves};
use super::mapped::MappedLeaves;
use super::pool::PoolPlace;
use super::{CopyMemory, LeafCopy};
use crate::error::{Result, StoreError};
use crate::index::file::IndexFile;
use crate::shelf::Shelf;

/// Held while a copy is found or made and taken: an index that left its shelf and came back may have a pool of the same
/// name being made still.
static MAKING: Mutex<()> = Mutex::new(());

/// Begins to make the copy of a file, once, on a thread of its own. Queries read the file until it exists.
pub(in crate::index) fn begin(file: &Arc<IndexFile>, shelf: &Shelf) {
    if *shelf == Shelf::File || !file.copy().begin() {
        return;
    }
    let (file, shelf) = (file.clone(), shelf.clone());
    let make = move || {
        let _turn = MAKING.lock();
        match futures::executor::block_on(LeafCopy::of(&file, &shelf)) {
            Ok(Some(copy)) => file.copy().set(copy),
            Ok(None) => {}
            Err(error) => {
                let path = file.path().display();
                let what = "an index cannot be put on its shelf; its file is read";
                tracing::warn!(%error, %shelf, file = %path, "{what}");
            }
        }
    };
    let thread = std::thread::Builder::new().name("hotshelf-shelf".into());
    if let Err(error) = thread.spawn(make) {
        tracing::warn!(%error, "no thread to copy an index on");
    }
}

impl LeafCopy {
    /// Finds the copy of an index file on a shelf, or makes it: a pool from an earlier time is mapped, everything else
    /// is read from the file. Takes as long as reading it; `None` without leaves, or if the file is not used any more.
    async fn of(file: &Arc<IndexFile>, shelf: &Shelf) -> Result<Option<Self>> {
        let leaf_bytes = file.stretches.iter().map(|stretch| stretch.leaf_bytes());
        let layout = LeafLayout::new(leaf_bytes, PIECE_BYTES, ALIGN);
        let len = usize::try_from(layout.len_bytes()).unwrap_or(usize::MAX);
        if len == 0 {
            return Ok(None);
        }
        let mapped = |pieces: Option<Vec<Sealed>>| {
            pieces.map(|pieces| CopyMemory::Mapped(MappedLeaves::new(pieces, &layout)))
        };
        let memory = match shelf {
            Shelf::File | Shelf::Folder(_) => None,
            Shelf::Dram | Shelf::Node(_) => {
                let options = AnonymousOptions {
                    node: shelf.node(),
                    ..AnonymousOptions::default()
                };
                let mut region = Region::anonymous(len, &options)?;
                let is_whole = copy_leaves(file, &layout, &mut region).await?;
                let pieces = is_whole.then(|| layout.pieces_of(&region.seal()));
                mapped(pieces.transpose()?)
            }
            Shelf::Emulated(name) => {
                let mut device = Box::new(EmulatedTier::new(DeviceModel::named(name)?, len)?);
                let is_whole = copy_leaves(file, &layout, &mut *device).await?;
                is_whole.then_some(CopyMemory::Emulated(device))
            }
            Shelf::Dax(folder) => {
                let id = file.identity().ok_or_else(|| StoreError::NotSupported {
                    what: "a copy of an index that an earlier build made".into(),
                })?;
                let place = PoolPlace::new(folder, id);
                file.copy().set_pool(&place);
                mapped(place.find_or_make(file, &layout).await?)
            }
        };
        Ok(memory.map(|memory| Self { memory, layout }))
    }
}

impl GivesLeaves for Arc<IndexFile> {
    async fn leaves(
        &self,
        stretch_idx: usize,
        from: u64,
        len_bytes: u64,
    ) -> Result<Option<Vec<u8>>> {
        if Arc::strong_count(self) == 1 || self.copy().is_left() {
            return Ok(None);
        }
        let stretch = &self.stretches[stretch_idx];
        self.read_leaves(stretch, from, len_bytes).await.map(Some)
    }
}
