//! Where a data file lives.

use std::path::PathBuf;

use crate::error::Result;
use crate::root::Root;

/// Where a data file and its checksums live.
#[derive(Debug, Clone)]
pub struct FilePaths {
    root: Root,
    table_folder: String,
    folder: PathBuf,
    /// The file's number in its table.
    pub number: u64,
}

impl FilePaths {
    /// The data file of this number in a table's folder.
    pub fn new(root: &Root, table_folder: &str, number: u64) -> Self {
        Self {
            root: root.clone(),
            table_folder: table_folder.to_owned(),
            folder: root.table(table_folder),
            number,
        }
    }

    /// The database's folder.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The name of the table's folder.
    pub fn table_folder(&self) -> &str {
        &self.table_folder
    }

    /// The data file.
    pub fn data(&self) -> PathBuf {
        self.folder.join(format!("{}.vortex", self.number))
    }

    /// Its checksums.
    pub fn sums(&self) -> PathBuf {
        self.folder
            .join("sums")
            .join(format!("{}.crc", self.number))
    }

    /// A sample of its rows, if it has one.
    pub fn sample(&self) -> PathBuf {
        self.folder
            .join("sums")
            .join(format!("{}.sample", self.number))
    }

    /// The data file while it is being written.
    pub fn data_temporary(&self) -> PathBuf {
        self.folder.join(format!("{}.vortex.tmp", self.number))
    }

    /// Its checksums while they are being written.
    pub fn sums_temporary(&self) -> PathBuf {
        self.folder
            .join("sums")
            .join(format!("{}.crc.tmp", self.number))
    }

    /// Gives both files their final names and makes the names durable.
    pub fn rename(&self) -> Result<()> {
        self.root.rename(&self.sums_temporary(), &self.sums())?;
        self.root.rename(&self.data_temporary(), &self.data())?;
        self.root.sync_folder(&self.folder.join("sums"))?;
        self.root.sync_folder(&self.folder)
    }

    /// Removes the files of a failed write. A failure is harmless: the journal names the files.
    pub fn remove_temporary(&self) {
        self.root.remove(&self.data_temporary());
        self.root.remove(&self.sums_temporary());
        self.root.remove(&self.sample());
    }

    /// Removes the finished files of a change that was not committed.
    pub fn remove(&self) {
        self.root.remove(&self.data());
        self.root.remove(&self.sums());
        self.root.remove(&self.sample());
    }
}
