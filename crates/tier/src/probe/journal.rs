//! The record of a running probe, one JSON line per point, so that an interrupted probe resumes where it stopped.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::report::Outcome;
use crate::error::TierError;
use crate::topology::Fingerprint;

/// What the lines of a journal belong to: another probe's lines must not be taken for this one's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JournalHead {
    pub(super) tier: String,
    pub(super) quick: bool,
    pub(super) working_set_bytes: u64,
    pub(super) fingerprint: Fingerprint,
}

/// An open journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Opens a journal and returns what it holds, or begins a new one if it belongs to another probe.
    pub(super) fn open(path: &Path, head: &JournalHead) -> Result<(Self, Vec<Outcome>), TierError> {
        let io = |operation| move |source| TierError::io(path, operation, source);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(io("open"))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io("read"))?;
        let (kept_bytes, outcomes) = understood(&bytes, head);
        file.set_len(kept_bytes as u64).map_err(io("shorten"))?;
        file.seek(SeekFrom::End(0)).map_err(io("seek"))?;
        let mut journal = Self {
            file,
            path: path.to_path_buf(),
        };
        if kept_bytes == 0 {
            journal.line(head)?;
        }
        Ok((journal, outcomes))
    }

    /// What a journal holds for this probe, leaving it as it is.
    pub(super) fn kept(path: &Path, head: &JournalHead) -> Result<Vec<Outcome>, TierError> {
        let bytes = std::fs::read(path).map_err(|source| TierError::io(path, "read", source))?;
        Ok(understood(&bytes, head).1)
    }

    pub(super) fn append(&mut self, outcome: &Outcome) -> Result<(), TierError> {
        self.line(outcome)
    }

    /// Removes a journal that is no longer needed.
    pub(super) fn remove(self) -> Result<(), TierError> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(TierError::io(&self.path, "remove", error))
            }
            _ => Ok(()),
        }
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), TierError> {
        let io = |source| TierError::io(&self.path, "append to", source);
        let mut line = serde_json::to_vec(value).map_err(|error| io(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(io)
    }
}

/// The lines that make sense, and where they end: a cut last line is dropped.
fn understood(bytes: &[u8], head: &JournalHead) -> (usize, Vec<Outcome>) {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    if serde_json::from_slice::<JournalHead>(first).ok().as_ref() != Some(head) {
        return (0, Vec::new());
    }
    let mut kept_bytes = first.len();
    let mut outcomes = Vec::new();
    for line in lines {
        match serde_json::from_slice(line) {
            Ok(outcome) if line.ends_with(b"\n") => outcomes.push(outcome),
            _ => break,
        }
        kept_bytes += line.len();
    }
    (kept_bytes, outcomes)
}
