//! Names of data files that are links to a shelf (`data_file/moving.rs` makes them).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::root::Root;

/// The name of a database's folder on a shelf. It has the device and the inode of the database's own folder, which tell
/// it from its copies: none takes or removes the files of another.
pub(crate) fn shelf_name(database: u64, device: u64, inode: u64) -> String {
    format!("hotshelf-{database:016x}-{device:x}-{inode:x}")
}

/// Whether a file is the data file of this name in a folder that this database made on a shelf.
fn is_ours(root: &Root, file: &Path, name: Option<&OsStr>) -> bool {
    let shelf = file.ancestors().nth(3);
    let own = shelf.and_then(|shelf| root.on_shelf(shelf));
    own.is_some_and(|own| file.ancestors().nth(2) == Some(&own)) && file.file_name() == name
}

/// The file that a name leads to, if the name is a link.
pub(crate) fn away(root: &Root, path: &Path) -> Option<PathBuf> {
    fs::read_link(root.real(path)).ok()
}

/// The same, if that is a data file of this name in a folder that this database made on a shelf.
pub(crate) fn shelved(root: &Root, path: &Path) -> Option<PathBuf> {
    away(root, path).filter(|target| is_ours(root, target, path.file_name()))
}

/// Whether a name leads to a file of the same name that this database put on a shelf, in the folder of a table. Its
/// device may have had another number then: the bytes are these, though they are not removed from there.
pub(crate) fn is_at(root: &Root, path: &Path, shelf: &Path, table_folder: &str) -> bool {
    let Some(target) = away(root, path) else {
        return false;
    };
    let mut folders = target.ancestors().skip(1);
    let is_table = folders.next().and_then(Path::file_name) == Some(table_folder.as_ref());
    let database = folders.next();
    let own = root.on_shelf(shelf);
    is_table
        && target.file_name() == path.file_name()
        && folders.next() == Some(shelf)
        && but_device(own.as_deref()).is_some_and(|own| but_device(database) == Some(own))
}

/// The numbers of the database and of its inode in the name of its folder on a shelf.
fn but_device(folder: Option<&Path>) -> Option<(&str, &str)> {
    let (rest, inode) = folder?.file_name()?.to_str()?.rsplit_once('-')?;
    Some((rest.split('-').nth(1)?, inode))
}

/// A file that is missing because its shelf is: an error that another try may not have. A file that is missing where
/// other files of the database are is lost.
pub(crate) fn missing(real: &Path, error: io::Error) -> io::Error {
    match fs::read_link(real) {
        Ok(target)
            if error.kind() == io::ErrorKind::NotFound
                && !target.ancestors().skip(1).take(2).any(Path::is_dir) =>
        {
            shelf_missing(&target)
        }
        _ => error,
    }
}

/// Removes what a link leads to, if that is a data file of this database on a shelf, and the folders that are empty
/// then. False if it could not be removed, or its shelf is not there.
pub(crate) fn remove_away(root: &Root, path: &Path) -> bool {
    let Some(target) = shelved(root, path) else {
        return true;
    };
    let shelf = target.ancestors().nth(3).unwrap_or(&target);
    let is_here = target.exists() || fs::read_dir(shelf).is_ok_and(|mut any| any.next().is_some());
    is_here && remove_file(root, &target)
}

/// Removes a data file from a shelf, and the folders that are empty then; whether it is gone for good. The shelf's file
/// system has a journal of its own: what it forgets with the power must not come back after the catalog forgot it.
pub(crate) fn remove_file(root: &Root, file: &Path) -> bool {
    let is_gone = root.remove(file);
    remove_empty(file);
    let rest = file.ancestors().skip(1).find(|folder| folder.is_dir());
    is_gone && rest.is_none_or(|folder| root.sync_folder(folder).is_ok())
}

/// Removes the folders of a table and of a database on a shelf, unless they hold files.
pub(crate) fn remove_empty(file: &Path) {
    for folder in file.ancestors().skip(1).take(2) {
        let _ = fs::remove_dir(folder);
    }
}

/// The error of a shelf that is not there.
pub(crate) fn shelf_missing(at: &Path) -> io::Error {
    let text = format!("its shelf is not there: {}", at.display());
    io::Error::new(io::ErrorKind::NotConnected, text)
}
