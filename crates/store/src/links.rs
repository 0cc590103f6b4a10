//! Names of data files that are links to a shelf (`data_file/moving.rs` makes them).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::root::Root;

/// What the folder of a database on a shelf begins with; its number follows.
const FOLDER: &str = "hotshelf-";

/// The folder of a table's data files on a shelf. Its name tells a database from its copies, which have the same
/// number: none takes the files of another.
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
pub(crate) fn is_ours(root: &Root, file: &Path, name: Option<&OsStr>) -> bool {
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
pub(crate) fn remove_file(root: &Root, file: &Path) -> bool {
    let is_gone = root.remove(file);
    remove_empty(file);
    is_gone
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
