//! Replacing a whole file so that a power cut leaves the old or the new content: write aside, sync, rename, sync the
//! folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::TierError;

/// What replacing a file needs of a folder.
pub trait FolderOps {
    /// Creates or empties a file and writes it.
    ///
    /// # Errors
    /// What the operating system says.
    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), TierError>;

    /// Waits until a file's content is durable.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync_file(&mut self, name: &str) -> Result<(), TierError>;

    /// Gives a file another name, replacing what had it.
    ///
    /// # Errors
    /// What the operating system says.
    fn rename(&mut self, from: &str, to: &str) -> Result<(), TierError>;

    /// Waits until the folder's names are durable.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync_folder(&mut self) -> Result<(), TierError>;
}

/// Gives the file `name` this content, durably, or leaves it as it was.
///
/// # Errors
/// What the operating system says. A leftover `name.new` may remain and is overwritten by the next attempt.
pub fn replace_file(
    folder: &mut impl FolderOps,
    name: &str,
    bytes: &[u8],
) -> Result<(), TierError> {
    let aside = format!("{name}.new");
    folder.write(&aside, bytes)?;
    folder.sync_file(&aside)?;
    folder.rename(&aside, name)?;
    folder.sync_folder()
}

/// A folder of the file system.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder at `path`.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl FolderOps for Folder {
    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), TierError> {
        let path = self.at(name);
        fs::write(&path, bytes).map_err(|source| TierError::io(&path, "write", source))
    }

    fn sync_file(&mut self, name: &str) -> Result<(), TierError> {
        let path = self.at(name);
        let synced = File::open(&path).and_then(|file| file.sync_all());
        synced.map_err(|source| TierError::io(&path, "sync", source))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), TierError> {
        let path = self.at(from);
        fs::rename(&path, self.at(to)).map_err(|source| TierError::io(&path, "rename", source))
    }

    fn sync_folder(&mut self) -> Result<(), TierError> {
        let synced = File::open(&self.path).and_then(|file| file.sync_all());
        synced.map_err(|source| TierError::io(&self.path, "sync", source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_has_the_new_content_and_nothing_is_left_aside() {
        let folder = tempfile::tempdir().unwrap();
        let mut ops = Folder::new(folder.path());
        replace_file(&mut ops, "a.json", b"old and longer").unwrap();
        replace_file(&mut ops, "a.json", b"new").unwrap();
        assert_eq!(fs::read(folder.path().join("a.json")).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_folder_is_named_in_the_error() {
        let mut ops = Folder::new(Path::new("/no/such/folder"));
        let error = replace_file(&mut ops, "a", b"").unwrap_err();
        assert!(
            error.to_string().contains("/no/such/folder/a.new"),
            "{error}"
        );
    }
}
