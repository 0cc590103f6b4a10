//! Data files that live on a shelf with a file system of its own: another disk, or a file system on persistent memory.
//!
//! The file's name in its table's folder is then a symbolic link. A move writes a copy, makes it durable, and puts link
//! or copy in the place of what was there by one rename: at any instant the name leads to the whole file. Readers that
//! have the old one open keep it; the bytes are the same.

use std::fs;
use std::io::{Read, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::check::sum_of;
use super::paths::FilePaths;
use super::sums::mismatch;
use crate::error::{Result, StoreError};
use crate::links::{away, is_at, remove_empty, remove_file, shelf_missing, shelved};
use crate::shelf_use::ShelfUse;

/// Bytes copied at a time where nothing was measured, and at least and at most.
const PIECE_BYTES: usize = 1 << 20;
const PIECES: RangeInclusive<usize> = 4 << 10..=16 << 20;

/// One move at a time: two of the same file would take each other's copy.
static MOVING: Mutex<()> = Mutex::new(());

/// Refuses to write to the folder of a table whose files are there and cannot be seen: what is written to a place where
/// another disk belongs is hidden by it.
///
/// # Errors
/// [`StoreError::Io`] that another try may not have.
pub fn ensure_there<'a>(
    folder: &Path,
    mut files: impl Iterator<Item = &'a FilePaths>,
) -> Result<()> {
    let is_there = |paths: &FilePaths| paths.away().is_some_and(|away| away.starts_with(folder));
    match !folder.is_dir() && files.any(is_there) {
        true => Err(StoreError::io("write to", folder)(shelf_missing(folder))),
        false => Ok(()),
    }
}

impl FilePaths {
    /// The data file on its shelf, if it is on one.
    pub fn away(&self) -> Option<PathBuf> {
        away(self.root(), &self.data())
    }

    /// The name of the link while it is being made.
    fn link_temporary(&self) -> PathBuf {
        self.data().with_extension("vortex.link")
    }

    /// The same, if this database has put it there.
    pub fn shelved(&self) -> Option<PathBuf> {
        shelved(self.root(), &self.data())
    }

    /// Whether the data file is on a shelf with a file system; on none, whether this database has not put it on one.
    pub fn is_on(&self, shelf: Option<&Path>) -> bool {
        match shelf {
            Some(shelf) => is_at(self.root(), &self.data(), shelf, self.table_folder()),
            None => self.shelved().is_none(),
        }
    }

    /// Moves the data file into a folder of a shelf, or back beside its checksums.
    ///
    /// # Errors
    /// It cannot be read or written, or the copy is not what was written. The file is then where it was.
    pub fn move_to(&self, shelf_folder: Option<&Path>, how: &ShelfUse) -> Result<()> {
        let piece_bytes = how.piece_bytes.unwrap_or(PIECE_BYTES);
        let piece_bytes = piece_bytes.clamp(*PIECES.start(), *PIECES.end());
        let _turn = MOVING.lock();
        let (root, data) = (self.root(), self.data());
        let name = data.file_name().unwrap_or_default();
        let target = shelf_folder.map(|folder| (folder, folder.join(name)));
        let is_there = match target.as_ref() {
            Some((folder, _)) => self.is_on(folder.ancestors().nth(2)),
            None => self.away().is_none(),
        };
        if is_there {
            return Ok(());
        }
        let before = self.shelved();
        match target {
            Some((folder, target)) => {
                make_folder(folder)?;
                let copied = self.copy(&target.with_extension("vortex.tmp"), &target, piece_bytes);
                copied.inspect_err(|_| remove_empty(&target))?;
                for made in folder.ancestors().take(3) {
                    root.sync_folder(made)?;
                }
                self.link(&target)?;
            }
            None => self.copy(&self.data_temporary(), &data, piece_bytes)?,
        }
        root.sync_folder(data.parent().unwrap_or(&data))?;
        if let Some(before) = before {
            remove_file(root, &before);
        }
        Ok(())
    }

    /// Puts a link in the place of the file's name.
    fn link(&self, target: &Path) -> Result<()> {
        let (root, link) = (self.root(), self.link_temporary());
        root.remove(&link);
        std::os::unix::fs::symlink(target, root.real(&link))
            .map_err(StoreError::io("link", &link))?;
        root.rename(&link, &self.data())
    }

    /// Makes a durable copy of the data file, compared with it, which gets its name when it is whole.
    fn copy(&self, temporary: &Path, to: &Path, piece_bytes: usize) -> Result<()> {
        let copied = self.copy_bytes(temporary, piece_bytes);
        let copied = copied.and_then(|()| self.root().rename(temporary, to));
        if copied.is_err() {
            self.root().remove(temporary);
        }
        copied
    }

    fn copy_bytes(&self, to: &Path, piece_bytes: usize) -> Result<()> {
        let (root, data) = (self.root(), self.data());
        let mut from = root.open_file(&data)?;
        let mut file = root.create_readable(to)?;
        let (mut piece, mut sum, mut len) = (vec![0; piece_bytes], crc32fast::Hasher::new(), 0);
        loop {
            let read = from.read(&mut piece);
            let count = read.map_err(StoreError::io("read", &data))?;
            if count == 0 {
                break;
            }
            sum.update(&piece[..count]);
            file.write_all(&piece[..count])
                .map_err(StoreError::io("write", to))?;
            len += count as u64;
        }
        root.sync(&file).map_err(StoreError::io("sync", to))?;
        let found = sum_of(&file, to, 0..len, &mut piece)?;
        match mismatch(to, 0, "copy of a data file", sum.finalize(), found) {
            Some(corruption) => Err(corruption.into()),
            None => Ok(()),
        }
    }
}

/// Makes the folder of a table on a shelf that is there.
fn make_folder(folder: &Path) -> Result<()> {
    let shelf = folder.ancestors().nth(2).unwrap_or(folder);
    if !shelf.is_dir() {
        return Err(StoreError::io("write to", shelf)(shelf_missing(shelf)));
    }
    fs::create_dir_all(folder).map_err(StoreError::io("create", folder))
}
