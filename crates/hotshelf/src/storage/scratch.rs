//! Folders for what lasts no longer than the process: spilled rows, and temporary databases.
//!
//! Each is made for one process, which holds a lock on it (that of a temporary database is the database's own). The
//! lock of a killed process is gone: the next one that opens beside it knows its folder by that, and removes it.

use std::fs::{DirBuilder, File};
use std::hash::BuildHasher;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::options::Options;

/// What the folders of spilled rows are called, before a number of their own.
const SPILL: &str = "hotshelf-spill-";
/// What the folders of temporary databases are called.
const TEMPORARY: &str = "hotshelf-";
/// Names are tried this often.
const TRIES: usize = 100;

/// The folders that go with the database.
pub(crate) struct Scratch {
    /// Where rows are spilled.
    spill: ScratchFolder,
    /// That of a temporary database.
    temporary: Option<ScratchFolder>,
}

impl Scratch {
    /// Makes the folder for the spilled rows of the database in `folder`: where the options say, beside the data, or
    /// where the system has its temporary files.
    pub fn create(
        folder: &Path,
        options: &Options,
        temporary: Option<ScratchFolder>,
    ) -> Result<Self> {
        let spill = match &options.spill_folder {
            Some(place) => ScratchFolder::create(place, SPILL)?,
            None => {
                let beside = ScratchFolder::create(&folder.join("spill"), SPILL);
                // The database may be on a medium that can only be read.
                beside.or_else(|_| ScratchFolder::create(&std::env::temp_dir(), SPILL))?
            }
        };
        Ok(Self { spill, temporary })
    }

    /// Where rows are spilled.
    pub fn spill(&self) -> &Path {
        self.spill.path()
    }

    /// Removes the folders, while threads may still work in them.
    pub fn remove(&self) {
        for folder in self.temporary.iter().chain([&self.spill]) {
            remove_busy_folder(folder.path());
        }
    }
}

/// A folder of this process alone. It goes when this is dropped.
#[derive(Debug)]
pub(crate) struct ScratchFolder {
    path: PathBuf,
    /// Held for its lock; a database locks its own folder.
    _folder: Option<File>,
}

impl ScratchFolder {
    /// Makes a folder in `place` that no other user can read, and removes the folders of that name there whose
    /// processes have died.
    fn create(place: &Path, name: &str) -> Result<Self> {
        std::fs::create_dir_all(place).map_err(Error::io("create", place))?;
        if name == SPILL {
            remove_abandoned(place, name);
        }
        let mut taken = None;
        for _ in 0..TRIES {
            let number = std::collections::hash_map::RandomState::new().hash_one(name);
            let path = place.join(format!("{name}{number:016x}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) if name != SPILL => {
                    return Ok(Self {
                        path,
                        _folder: None,
                    });
                }
                Ok(()) => {
                    if let Some(folder) = locked(&path)? {
                        return Ok(Self {
                            path,
                            _folder: Some(folder),
                        });
                    }
                }
                Err(error) => taken = Some(error),
            }
        }
        let error = taken.unwrap_or_else(|| std::io::ErrorKind::AlreadyExists.into());
        Err(Error::io("create a folder in", place)(error))
    }

    /// A folder for a temporary database.
    pub fn temporary() -> Result<Self> {
        Self::create(&std::env::temp_dir(), TEMPORARY)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        remove_busy_folder(&self.path);
    }
}

/// Opens a new folder and locks it, where folders can be locked. Elsewhere it stays: it may be in use. `None`: another
/// process found it before it was locked, and removes it.
fn locked(path: &Path) -> Result<Option<File>> {
    let folder = match File::open(path) {
        Ok(folder) => folder,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("open", path)(error)),
    };
    if flock(&folder, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Ok(None);
    }
    Ok(path.exists().then_some(folder))
}

fn remove_abandoned(place: &Path, name: &str) {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let found = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(name));
    for entry in found {
        let Ok(folder) = File::open(entry.path()) else {
            continue;
        };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove_busy_folder(&entry.path());
        }
    }
}

/// Removes a folder in which a thread may still make files: what appears meanwhile is removed in the next round.
fn remove_busy_folder(folder: &Path) {
    const ROUNDS_MAX: usize = 20;
    for _ in 0..ROUNDS_MAX {
        match std::fs::remove_dir_all(folder) {
            Err(_) if folder.exists() => {}
            _ => return,
        }
    }
    tracing::warn!(folder = %folder.display(), "a temporary folder cannot be removed");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_are_removed_and_those_of_the_living_kept() {
        let place = tempfile::tempdir().unwrap();
        let dead = place.path().join(format!("{SPILL}dead"));
        std::fs::create_dir(&dead).unwrap();
        std::fs::write(dead.join("rows"), "x").unwrap();
        let other = place.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let living = ScratchFolder::create(place.path(), SPILL).unwrap();
        std::fs::write(living.path().join("rows"), "x").unwrap();
        let second = ScratchFolder::create(place.path(), SPILL).unwrap();
        assert!(!dead.exists());
        assert!(other.exists() && living.path().join("rows").exists());
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists() && second.path().exists());
    }

    #[test]
    fn folders_that_are_made_at_once_stay() {
        let place = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let folder = ScratchFolder::create(place.path(), SPILL).unwrap();
                        std::fs::write(folder.path().join("rows"), "x").unwrap();
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
