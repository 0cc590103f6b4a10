//! The folder of a database: whether it is one, and who has it open.

use std::fs::File;
use std::path::Path;

use hotshelf_tier::profile::PROFILE_FILE;

use crate::error::{Result, StoreError};
use crate::folder::{file_name, read_folder};

/// Makes a new database's folder, or makes sure that there is a database in an old one.
pub fn prepare_folder(folder: &Path, create: bool) -> Result<()> {
    let is_database = folder.join("catalog.sqlite").exists();
    if !is_database {
        if !create {
            return Err(StoreError::NotADatabase {
                path: folder.to_owned(),
                what: "it has no catalog.sqlite".into(),
            });
        }
        if folder.is_file() {
            return Err(StoreError::NotADatabase {
                path: folder.to_owned(),
                what: "it is a file".into(),
            });
        }
        let foreign = folder.exists() && read_folder(folder)?.iter().any(|entry| !ours(entry));
        if foreign {
            return Err(StoreError::NotADatabase {
                path: folder.to_owned(),
                what: "it holds other files".into(),
            });
        }
    }
    let data = folder.join("data");
    std::fs::create_dir_all(&data).map_err(StoreError::io("create", &data))
}

/// Whether an entry may be there before the catalog is: what a first opening that crashed leaves.
fn ours(entry: &Path) -> bool {
    matches!(
        file_name(entry).as_str(),
        "LOCK"
            | "data"
            | PROFILE_FILE
            | "catalog.sqlite-wal"
            | "catalog.sqlite-shm"
            | "catalog.sqlite-journal"
    )
}

/// Locks a database's folder, for as long as the file is open.
pub fn lock_folder(folder: &Path) -> Result<File> {
    use std::io::{Read, Write};
    let path = folder.join("LOCK");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(StoreError::io("open", &path))?;
    if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut text = String::new();
        file.read_to_string(&mut text).ok();
        return Err(StoreError::Locked {
            path: folder.to_owned(),
            owner: text.trim().parse().ok(),
        });
    }
    file.set_len(0)
        .and_then(|()| write!(file, "{}", std::process::id()))
        .map_err(StoreError::io("write", &path))?;
    Ok(file)
}
