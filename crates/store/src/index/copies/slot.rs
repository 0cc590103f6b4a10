//! Where an index file has its copy, once it is made.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::LeafCopy;
use super::pool::PoolPlace;
use crate::error::StoreError;
use crate::shelf::Shelf;

/// Where a file's copy is, once it is made.
#[derive(Default)]
pub(in crate::index) struct CopySlot {
    copy: OnceLock<LeafCopy>,
    /// Where its pool is, if its shelf has pools.
    pool: OnceLock<PoolPlace>,
    /// Whether it was begun to be made, whether it turned out damaged, and whether the index has left its shelf.
    is_begun: AtomicBool,
    is_damaged: AtomicBool,
    is_left: AtomicBool,
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

    /// Notes where the pool of the copy is, or would be.
    pub(super) fn set_pool(&self, pool: &PoolPlace) {
        self.pool.get_or_init(|| pool.clone());
    }

    /// Notes on which shelf the copy is to be, also if nothing asks for it.
    pub fn put_on(&self, shelf: &Shelf, id: Option<u64>) {
        if let (Shelf::Dax(folder), Some(id)) = (shelf, id) {
            self.set_pool(&PoolPlace::new(folder, id));
        }
    }

    /// Removes the pool of the copy, if it has one, and does not make it again: the index leaves the shelf.
    pub fn leave(&self) {
        self.is_left.store(true, SeqCst);
        self.remove_pool();
    }

    /// Whether the index has left the shelf: its copy is not wanted any more.
    pub(super) fn is_left(&self) -> bool {
        self.is_left.load(SeqCst)
    }

    fn remove_pool(&self) {
        if let Some(pool) = self.pool.get() {
            pool.remove();
        }
    }

    /// Ends the use of the copy. Its pool goes if the index file does, and a device is given back that the index has
    /// left or whose blocks are damaged.
    pub fn end(&mut self, is_ending: bool) {
        // A device that is mapped cannot be opened again.
        drop(self.copy.take());
        if is_ending {
            self.remove_pool();
        }
        let is_over = is_ending || *self.is_left.get_mut() || *self.is_damaged.get_mut();
        if let Some(pool) = self.pool.get().filter(|_| is_over) {
            pool.free_device();
        }
    }

    /// Whether a copy is to be made: that was not begun, and the index has not left its shelf. From here on it is not.
    pub(super) fn begin(&self) -> bool {
        !self.is_left() && !self.is_begun.swap(true, Relaxed)
    }

    /// Takes the copy that was made.
    pub(super) fn set(&self, copy: LeafCopy) {
        // It may have got its name after the others were removed.
        match self.is_left() {
            true => self.remove_pool(),
            false => drop(self.copy.set(copy)),
        }
    }
}
