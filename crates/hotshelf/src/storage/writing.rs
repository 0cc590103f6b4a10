//! How rows are written, and the files of a change that is not finished: they are gone when it fails.

use std::path::PathBuf;

use hotshelf_store::StoreError;
use hotshelf_store::data_file::FilePaths;
use hotshelf_store::root::Root;
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// How rows are written to files.
pub(crate) struct Writing<'a> {
    /// Files whose rows these are.
    pub replaces: &'a [u64],
    /// One part in this many of the budget may be used.
    pub budget_parts: u64,
}

impl Writing<'_> {
    /// New rows.
    pub const NEW: Self = Self {
        replaces: &[],
        budget_parts: BUDGET_PARTS,
    };
}

/// Statements may hold one part in this many of the budget for what they write.
pub(crate) const BUDGET_PARTS: u64 = 2;

/// Files being written, or written and not yet renamed: gone when this is dropped before [`Self::finish`].
#[derive(Default)]
pub(super) struct UnfinishedFiles {
    pub paths: Mutex<Vec<FilePaths>>,
}

impl UnfinishedFiles {
    /// Gives all files their final names.
    pub fn finish(&self) -> Result<()> {
        let mut paths = self.paths.lock();
        for paths in paths.iter() {
            paths.rename()?;
        }
        paths.clear();
        Ok(())
    }
}

impl Drop for UnfinishedFiles {
    fn drop(&mut self) {
        for paths in self.paths.get_mut().iter() {
            paths.remove_temporary();
            paths.remove();
        }
    }
}

/// The folder of a table that is being made: gone when this is dropped before the table is in the catalog.
pub(super) struct UnfinishedFolder {
    root: Root,
    folder: Option<PathBuf>,
}

impl UnfinishedFolder {
    pub fn new(root: &Root, folder: &str) -> Self {
        Self {
            root: root.clone(),
            folder: Some(root.table(folder)),
        }
    }

    /// Keeps the folder if the change was committed, or may have been.
    pub fn keep_if(mut self, committed: Result<()>) -> Result<()> {
        if may_be_committed(&committed) {
            self.folder = None;
        }
        committed
    }
}

impl Drop for UnfinishedFolder {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            self.root.remove(folder);
        }
    }
}

/// Whether a change may be in the catalog: its files must stay then. The next opening knows.
pub(super) fn may_be_committed<R>(change: &Result<R>) -> bool {
    match change {
        Ok(_) => true,
        // On a full disk the end of the transaction was not written.
        Err(Error::Store(error @ StoreError::Commit(_))) => !error.is_disk_full(),
        Err(_) => false,
    }
}
