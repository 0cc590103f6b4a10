//! Names of index files.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::root::Root;

/// Where the index file of a data file lives.
#[derive(Debug, Clone)]
pub struct IndexPaths {
    pub(super) root: Root,
    pub(super) table_folder: String,
    folder: PathBuf,
    pub(super) file_number: u64,
    pub(super) index_id: i64,
}

impl IndexPaths {
    /// The index.
    pub fn index_id(&self) -> i64 {
        self.index_id
    }

    /// The index file of an index over a data file of a table's folder.
    pub fn new(root: &Root, table_folder: &str, file_number: u64, index_id: i64) -> Self {
        Self {
            root: root.clone(),
            table_folder: table_folder.to_owned(),
            folder: root.table(table_folder).join("elf"),
            file_number,
            index_id,
        }
    }

    /// The file.
    pub fn file(&self) -> PathBuf {
        self.folder.join(self.name())
    }

    /// The file while it is being written; `number` is new, so that the journal names the file.
    pub fn temporary(&self, number: u64) -> PathBuf {
        let (file, index) = (self.file_number, self.index_id);
        self.folder.join(format!("{file}-{index}-{number}.tmp"))
    }

    /// The name in the folder.
    pub fn name(&self) -> String {
        format!("{}-{}.elf", self.file_number, self.index_id)
    }

    /// Makes the folder of index files.
    pub fn create_folder(&self) -> Result<()> {
        if !self.root.exists(&self.folder) {
            self.root.create_folder(&self.folder)?;
            let table = self.folder.parent();
            table.map_or(Ok(()), |table| self.root.sync_folder(table))?;
        }
        Ok(())
    }

    /// The database's folder.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Gives the file its final name and makes the name durable.
    pub fn rename(&self, temporary: &Path) -> Result<()> {
        self.root.rename(temporary, &self.file())?;
        self.root.sync_folder(&self.folder)
    }

    /// Removes the file of a change that was not committed.
    pub fn remove(&self) {
        self.root.remove(&self.file());
    }
}
