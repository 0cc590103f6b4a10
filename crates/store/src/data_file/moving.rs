//! Data files that live on a shelf with a file system of its own: another disk, or a file system on persistent memory.
//!
//! The file's name in its table's folder is then a symbolic link. A move writes a copy, makes it durable, and puts link
//! or copy in the place of what was there by one rename: at any instant the name leads to the whole file. Readers that
//! have the old one open keep it; the bytes are the same.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use hotshelf_tier::Corruption;
use parking_lot::Mutex;

use super::paths::FilePaths;
use crate::error::{Result, StoreError};
use crate::links::{away, is_ours, remove_empty, remove_file, shelf_missing};

/// Bytes copied at a time.
const PIECE_BYTES: usize = 1 << 20;

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

    /// Moves the data file into a folder of a shelf, or back beside its checksums. Returns whether it was elsewhere.
    ///
    /// # Errors
    /// It cannot be read or written, or the copy is not what was written. The file is then where it was.
    pub fn move_to(&self, shelf_folder: Option<&Path>) -> Result<bool> {
        let _turn = MOVING.lock();
        let (root, data) = (self.root(), self.data());
        let before = self.away();
        let name = data.file_name().unwrap_or_default();
        let target = shelf_folder.map(|folder| folder.join(name));
        if before == target {
            return Ok(false);
        }
        match (&target, shelf_folder) {
            (Some(target), Some(folder)) => {
                make_folder(folder)?;
                let copied = self.copy(&target.with_extension("vortex.tmp"), target);
                copied.inspect_err(|_| remove_empty(target))?;
                for made in folder.ancestors().take(3) {
                    root.sync_folder(made)?;
                }
                self.link(target)?;
            }
            _ => self.copy(&self.data_temporary(), &data)?,
        }
        root.sync_folder(data.parent().unwrap_or(&data))?;
        if let Some(before) = before.filter(|before| is_ours(root, before, Some(name))) {
            remove_file(root, &before);
        }
        Ok(true)
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
    fn copy(&self, temporary: &Path, to: &Path) -> Result<()> {
        let copied = self.copy_bytes(temporary);
        let copied = copied.and_then(|()| self.root().rename(temporary, to));
        if copied.is_err() {
            self.root().remove(temporary);
        }
        copied
    }

    fn copy_bytes(&self, to: &Path) -> Result<()> {
        let (root, data) = (self.root(), self.data());
        let mut from = root.open_file(&data)?;
        let mut file = root.create(to)?;
        let mut sum = crc32fast::Hasher::new();
        read_all(&mut from, &data, |piece| {
            sum.update(piece);
            file.write_all(piece).map_err(StoreError::io("write", to))
        })?;
        root.sync(&file).map_err(StoreError::io("sync", to))?;
        let (expected, mut found) = (sum.finalize(), crc32fast::Hasher::new());
        read_all(&mut root.open_file(to)?, to, |piece| {
            found.update(piece);
            Ok(())
        })?;
        let found = found.finalize();
        match found == expected {
            true => Ok(()),
            false => Err(StoreError::Corruption(Corruption {
                file: to.to_owned(),
                offset: 0,
                what: "copy of a data file".into(),
                expected: format!("{expected:08x}"),
                found: format!("{found:08x}"),
            })),
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

/// Gives a file to `take`, piece by piece.
fn read_all(file: &mut File, path: &Path, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file
            .read(&mut piece)
            .map_err(StoreError::io("read", path))?
        {
            0 => return Ok(()),
            count => take(&piece[..count])?,
        }
    }
}
