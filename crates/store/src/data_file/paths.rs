//! Where a data file lives.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hotshelf_tier::Corruption;
use vortex::file::Footer;
use vortex::session::VortexSession;

use super::footer;
use super::sums::Sums;
use crate::error::{Result, StoreError};
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

    /// Reads the footer by itself, after comparing it with its checksum.
    pub(crate) fn read_footer(&self, sums: &Sums, session: &VortexSession) -> Result<Footer> {
        let path = self.data();
        let file = self.root.open_file(&path)?;
        let found = file
            .metadata()
            .map_err(StoreError::io("measure", &path))?
            .len();
        check_length(&path, found, sums, sums.file_bytes)?;
        self.parse_footer(&file, sums, session)
    }

    /// Reads the footer of the open file, whose length is right.
    pub(super) fn parse_footer(
        &self,
        file: &File,
        sums: &Sums,
        session: &VortexSession,
    ) -> Result<Footer> {
        let path = self.data();
        let mut bytes = vec![0; (sums.file_bytes - sums.footer_offset) as usize];
        file.read_exact_at(&mut bytes, sums.footer_offset)
            .map_err(StoreError::io("read", &path))?;
        footer::parse(&path, sums, &bytes, session)
    }

    /// Gives both files their final names and makes the names durable.
    pub fn rename(&self) -> Result<()> {
        self.root.rename(&self.sums_temporary(), &self.sums())?;
        self.root.rename(&self.data_temporary(), &self.data())?;
        self.root.sync_folder(&self.folder.join("sums"))?;
        self.root.sync_folder(&self.folder)
    }

    /// Removes what a failed write left. Failing to is harmless: the journal names the file.
    pub fn remove_temporary(&self) {
        self.root.remove(&self.data_temporary());
        self.root.remove(&self.sums_temporary());
    }

    /// Removes the finished files of a change that was not committed.
    pub fn remove(&self) {
        self.root.remove(&self.data());
        self.root.remove(&self.sums());
    }
}

/// The file must be as long as its checksums and the catalog say.
pub(super) fn check_length(path: &Path, found: u64, sums: &Sums, expected: u64) -> Result<()> {
    if found == sums.file_bytes && sums.file_bytes == expected && sums.footer_offset <= found {
        return Ok(());
    }
    Err(wrong_length(path, expected, found).into())
}

/// The damage that a file of another length is.
pub(super) fn wrong_length(path: &Path, expected: u64, found: u64) -> Corruption {
    Corruption {
        file: path.to_owned(),
        offset: found.min(expected),
        what: "file length".into(),
        expected: format!("{expected} bytes"),
        found: format!("{found} bytes"),
    }
}
