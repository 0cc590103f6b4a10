//! The same question for ordinary files: which contents may a power cut leave under a name?
//!
//! Pessimistic where file systems differ: any sectors of an unsynced file may have reached the disk, its length may be
//! any shorter one, and a rename counts only once its folder is synced, though it may be there before.

use std::collections::BTreeMap;

use super::enumerate::{Promise, Report, Violation};
use crate::error::TierError;
use crate::persist::Note;
use crate::replace_file::FolderOps;

const SECTOR_BYTES: usize = 512;

/// One recorded operation on a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileEvent {
    /// A file was created or emptied and written.
    Write {
        /// Its name.
        name: String,
        /// Its content.
        bytes: Vec<u8>,
    },
    /// A file was synced.
    SyncFile {
        /// Its name.
        name: String,
    },
    /// A file got another name.
    Rename {
        /// Its old name.
        from: String,
        /// Its new name.
        to: String,
    },
    /// The folder was synced.
    SyncFolder,
    /// Where the program stands.
    Note(Note),
}

/// Records operations on a folder that exists nowhere.
#[derive(Debug, Clone, Default)]
pub struct FileTrace {
    /// What happened, in order.
    pub events: Vec<FileEvent>,
}

impl FolderOps for FileTrace {
    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), TierError> {
        let (name, bytes) = (name.to_owned(), bytes.to_vec());
        self.events.push(FileEvent::Write { name, bytes });
        Ok(())
    }

    fn sync_file(&mut self, name: &str) -> Result<(), TierError> {
        self.events.push(FileEvent::SyncFile {
            name: name.to_owned(),
        });
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), TierError> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.events.push(FileEvent::Rename { from, to });
        Ok(())
    }

    fn sync_folder(&mut self) -> Result<(), TierError> {
        self.events.push(FileEvent::SyncFolder);
        Ok(())
    }
}

/// A file's content: all of it certain, or not.
#[derive(Debug, Clone)]
struct Inode {
    bytes: Vec<u8>,
    synced: bool,
}

/// The folder as the program sees it, and the names that are certain.
#[derive(Debug, Default)]
struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    certain_names: BTreeMap<String, usize>,
}

/// Tries what a power cut may leave under `name` after every event. `check` gets the content, or `None` if there is no
/// such file, and what was promised.
pub fn enumerate_files(
    events: &[FileEvent],
    name: &str,
    mut check: impl FnMut(Option<&[u8]>, Promise) -> Result<(), String>,
) -> Report {
    let mut disk = Disk::default();
    let mut promise = Promise::default();
    let mut report = Report::default();
    for (event_idx, event) in events.iter().enumerate() {
        disk.apply(event);
        match event {
            FileEvent::Note(Note::Started(n)) => promise.started = *n,
            FileEvent::Note(Note::Acked(n)) => promise.acked = *n,
            _ => {}
        }
        report.moment_count += 1;
        for content in disk.contents(name) {
            report.state_count += 1;
            if let Err(reason) = check(content.as_deref(), promise) {
                report.violations.push(Violation {
                    event_idx: event_idx + 1,
                    reason,
                });
            }
        }
    }
    report
}

impl Disk {
    fn apply(&mut self, event: &FileEvent) {
        match event {
            FileEvent::Write { name, bytes } => {
                self.names.insert(name.clone(), self.inodes.len());
                self.inodes.push(Inode {
                    bytes: bytes.clone(),
                    synced: false,
                });
            }
            FileEvent::SyncFile { name } => {
                if let Some(inode) = self.names.get(name).and_then(|at| self.inodes.get_mut(*at)) {
                    inode.synced = true;
                }
            }
            FileEvent::Rename { from, to } => {
                if let Some(inode) = self.names.remove(from) {
                    self.names.insert(to.clone(), inode);
                }
            }
            FileEvent::SyncFolder => self.certain_names = self.names.clone(),
            FileEvent::Note(_) => {}
        }
    }

    fn contents(&self, name: &str) -> Vec<Option<Vec<u8>>> {
        let certain = self.certain_names.get(name);
        let possible = self.names.get(name).filter(|at| certain != Some(at));
        let mut contents = match certain {
            Some(at) => contents_of(&self.inodes[*at]),
            None => vec![None],
        };
        contents.extend(
            possible
                .into_iter()
                .flat_map(|at| contents_of(&self.inodes[*at])),
        );
        contents
    }
}

/// Every length at a sector boundary, with none, all, or all but one of the sectors before it written.
fn contents_of(inode: &Inode) -> Vec<Option<Vec<u8>>> {
    if inode.synced {
        return vec![Some(inode.bytes.clone())];
    }
    let sector_count = inode.bytes.len().div_ceil(SECTOR_BYTES);
    let mut contents = Vec::new();
    for kept_count in 0..=sector_count {
        let kept = &inode.bytes[..(kept_count * SECTOR_BYTES).min(inode.bytes.len())];
        contents.push(Some(kept.to_vec()));
        contents.push(Some(vec![0; kept.len()]));
        for missing in kept
            .chunks(SECTOR_BYTES)
            .enumerate()
            .map(|(at, _)| at * SECTOR_BYTES)
        {
            let mut holed = kept.to_vec();
            let end = (missing + SECTOR_BYTES).min(holed.len());
            holed[missing..end].fill(0);
            contents.push(Some(holed));
        }
    }
    contents
}
