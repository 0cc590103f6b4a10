//! Where an index file has its copy, once it is made.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::LeafCopy;
use crate::error::StoreError;
use crate::index::file::IndexFile;
use crate::index::place::IndexShelf;

/// Where a file's copy is, once it is made.
#[derive(Default)]
pub(in crate::index) struct CopySlot {
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

    /// Notes which file the copy has.
    pub(super) fn set_pool(&self, pool: PathBuf) {
        self.pool.set(pool).ok();
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
