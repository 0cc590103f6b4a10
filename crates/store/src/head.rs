//! The last acknowledged change, outside the catalog: `data/HEAD`.
//!
//! A write-ahead log that lost its end looks like an older one. Each change that the catalog committed is written here
//! before it is reported, so that a catalog without it is noticed. It lies beside the data, not beside the catalog: a
//! catalog put back from a backup meets the number of the data it is put beside.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use hotshelf_tier::Corruption;

use crate::error::{Result, StoreError};
use crate::ids::random_id;
use crate::root::{FORMAT_VERSION, Root};

/// Its name in the data folder.
pub(crate) const HEAD: &str = "HEAD";
const MAGIC: &[u8; 8] = b"HSHEAD01";
/// Changes take turns between two slots in sectors of their own: a write that is torn leaves the change before.
const SLOT_BYTES: u64 = 4096;
const RECORD_BYTES: usize = 8 + 4 + 4 + 8 + 8 + 4;

/// A change of the catalog: its number, counted from 1, and a checksum over it and all before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Changes so far.
    pub number: u64,
    /// Checksum of this one and the one before.
    pub sum: u32,
}

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub database: u64,
    pub change: Change,
}

impl Acknowledged {
    /// A new database.
    pub fn first() -> Self {
        Self {
            database: random_id(),
            change: Change::default(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&(FORMAT_VERSION as u32).to_le_bytes());
        bytes.extend_from_slice(&self.change.sum.to_le_bytes());
        bytes.extend_from_slice(&self.change.number.to_le_bytes());
        bytes.extend_from_slice(&self.database.to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// The format's version and the record, if the bytes are one.
    fn decode(bytes: &[u8]) -> Option<(i64, Self)> {
        let record: &[u8; RECORD_BYTES] = bytes.get(..RECORD_BYTES)?.try_into().ok()?;
        let (body, sum) = record.split_at(RECORD_BYTES - 4);
        if !body.starts_with(MAGIC) || sum != crc32fast::hash(body).to_le_bytes() {
            return None;
        }
        let word =
            |at: usize| u32::from_le_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        let number = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let change = Change {
            sum: word(12),
            number: number(16),
        };
        let database = number(24);
        Some((word(8).into(), Self { database, change }))
    }
}

/// The file, open for writing.
#[derive(Debug)]
pub(crate) struct Head {
    file: File,
    path: PathBuf,
    is_temporary: bool,
}

impl Head {
    /// What the file says; `None` if there is none.
    pub fn read(root: &Root) -> Result<Option<Acknowledged>> {
        let path = root.data().join(HEAD);
        if !root.exists(&path) {
            return Ok(None);
        }
        let bytes = root.read(&path)?;
        let slots = [0, SLOT_BYTES as usize].map(|at| Acknowledged::decode(bytes.get(at..)?));
        let newest = slots
            .into_iter()
            .flatten()
            .max_by_key(|(_, found)| found.change.number);
        let Some((version, found)) = newest else {
            return Err(StoreError::Corruption(Corruption {
                file: path,
                offset: 0,
                what: "number of the last change".into(),
                expected: "one of two records whole".into(),
                found: format!("{} bytes without one", bytes.len()),
            }));
        };
        if version > FORMAT_VERSION {
            return Err(StoreError::NewerFormat {
                found: version,
                supported: FORMAT_VERSION,
            });
        }
        Ok(Some(found))
    }

    /// Opens the file for writing, or makes it, with both slots saying the same.
    pub fn open(root: &Root, last: Acknowledged) -> Result<Self> {
        let path = root.data().join(HEAD);
        let is_new = !root.exists(&path);
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false);
        let file = options
            .open(root.real(&path))
            .map_err(StoreError::io("open", &path))?;
        let head = Self {
            file,
            path,
            is_temporary: root.is_temporary(),
        };
        if is_new {
            head.put(1 - last.change.number % 2, &last)?;
            head.put(last.change.number % 2, &last)?;
            root.sync(&head.file)
                .map_err(StoreError::io("sync", &head.path))?;
            root.sync_folder(&root.data())?;
        }
        Ok(head)
    }

    /// Records a change. It is durable when this returns, unless the database is temporary.
    pub fn write(&self, last: &Acknowledged) -> Result<()> {
        self.put(last.change.number % 2, last)?;
        if self.is_temporary {
            return Ok(());
        }
        self.file
            .sync_data()
            .map_err(StoreError::io("sync", &self.path))
    }

    fn put(&self, slot: u64, record: &Acknowledged) -> Result<()> {
        let mut bytes = record.encode();
        // Whole slots, so that the file never grows again.
        bytes.resize(SLOT_BYTES as usize, 0);
        self.file
            .write_all_at(&bytes, slot * SLOT_BYTES)
            .map_err(StoreError::io("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.create_folder(&root.data()).unwrap();
        (folder, root)
    }

    fn record(number: u64) -> Acknowledged {
        let change = Change {
            number,
            sum: number as u32 * 7,
        };
        Acknowledged {
            database: 99,
            change,
        }
    }

    #[test]
    fn the_last_change_is_read_back() {
        let (_folder, root) = fixture();
        assert_eq!(Head::read(&root).unwrap(), None);
        let head = Head::open(&root, record(0)).unwrap();
        for number in 0..5 {
            head.write(&record(number)).unwrap();
            assert_eq!(Head::read(&root).unwrap(), Some(record(number)));
        }
    }

    #[test]
    fn a_torn_record_leaves_the_one_before_and_two_damaged_ones_are_an_error() {
        let (_folder, root) = fixture();
        let head = Head::open(&root, record(6)).unwrap();
        head.write(&record(7)).unwrap();
        let path = root.real(&root.data().join(HEAD));
        let whole = std::fs::read(&path).unwrap();
        for at in 0..RECORD_BYTES {
            let mut torn = whole.clone();
            torn[SLOT_BYTES as usize + at] ^= 4;
            std::fs::write(&path, &torn).unwrap();
            assert_eq!(Head::read(&root).unwrap(), Some(record(6)), "{at}");
            torn[at] ^= 4;
            std::fs::write(&path, &torn).unwrap();
            assert!(matches!(Head::read(&root), Err(StoreError::Corruption(_))));
        }
    }
}
