//! Data files that live on a shelf with a file system of its own: another disk, or a file system on persistent memory.
//!
//! The file's name in its table's folder is then a symbolic link. A move writes a copy, makes it durable, and puts link
//! or copy in the place of what was there by one rename: at any instant the name leads to the whole file. Readers that
//! have the old one open keep it; the bytes are the same.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use hotshelf_tier::Corruption;
use parking_lot::Mutex;

use super::paths::FilePaths;
use crate::error::{Result, StoreError};
use crate::root::Root;

/// What the folder of a database on a shelf begins with; its number follows.
const FOLDER: &str = "hotshelf-";
/// Bytes copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// One move at a time: two of the same file would take each other's copy.
static MOVING: Mutex<()> = Mutex::new(());

/// The folder of a table's data files on a shelf. Its name tells a database from its copies, which have the same number:
/// none takes the files of another.
pub(crate) fn shelf_folder(
    root: &Root,
    shelf: &Path,
    database: u64,
    table_folder: &str,
) -> PathBuf {
    let name = format!("{FOLDER}{database:016x}-{:x}", root.inode());
    shelf.join(name).join(table_folder)
}

/// Whether a file is the data file of this name in a folder that this database made on a shelf.
fn is_ours(root: &Root, file: &Path, name: Option<&OsStr>) -> bool {
    let database = file.ancestors().nth(2).and_then(Path::file_name);
    let is_own = database.and_then(OsStr::to_str).is_some_and(|database| {
        let inode = database
            .strip_prefix(FOLDER)
            .and_then(|rest| rest.split_once('-'));
        inode.is_some_and(|(_, inode)| inode == format!("{:x}", root.inode()))
    });
    is_own && file.file_name() == name
}

/// The file that a name leads to, if the name is a link.
pub(crate) fn away(root: &Root, path: &Path) -> Option<PathBuf> {
    fs::read_link(root.real(path)).ok()
}

/// A file that is missing because its shelf is: an error that another try may not have.
pub(crate) fn missing(real: &Path, error: io::Error) -> io::Error {
    match fs::read_link(real) {
        Ok(target) if error.kind() == io::ErrorKind::NotFound => shelf_missing(&target),
        _ => error,
    }
}

/// Removes what a link leads to, if that is a data file of this name on a shelf, and the folders that are empty then.
/// True if it is gone, or its shelf is.
pub(crate) fn remove_away(root: &Root, path: &Path) -> bool {
    let Some(target) = away(root, path) else {
        return true;
    };
    !is_ours(root, &target, path.file_name()) || remove_file(root, &target)
}

/// Removes a data file from a shelf, and the folders that are empty then; whether it is gone.
fn remove_file(root: &Root, file: &Path) -> bool {
    let is_gone = root.remove(file);
    // Those that hold other files stay.
    for folder in file.ancestors().skip(1).take(2) {
        let _ = fs::remove_dir(folder);
    }
    is_gone
}

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
                self.copy(&target.with_extension("vortex.tmp"), target)?;
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

fn shelf_missing(at: &Path) -> io::Error {
    let text = format!("its shelf is not there: {}", at.display());
    io::Error::new(io::ErrorKind::NotConnected, text)
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
