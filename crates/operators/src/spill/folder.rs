//! The folder of spilled batches: its limit, what was written, and what an earlier process left there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow_schema::SchemaRef;
use hotshelf_tier::io::IoEngine;
use parking_lot::Mutex;

use super::OnSpill;
use super::file::SpillFile;
use crate::{OperatorError, Result};

/// Names of our files. Others in the folder are left alone.
const NAME_START: &str = "hotshelf-";
const NAME_END: &str = ".spill";

/// Where to spill.
#[derive(Debug, Clone)]
pub struct SpillOptions {
    /// The folder. It is made if it does not exist. One process at a time may use it.
    pub path: PathBuf,
    /// How many bytes of the device all files together may occupy.
    pub limit_bytes: u64,
}

/// A folder of spilled batches, shared by all operators.
pub struct SpillFolder {
    path: PathBuf,
    engine: Arc<IoEngine>,
    next_file: AtomicU64,
    space: Mutex<FolderSpace>,
    written: Counter,
    read: Counter,
    raw_bytes: AtomicU64,
}

#[derive(Debug)]
struct FolderSpace {
    limit_bytes: u64,
    used_bytes: u64,
    used_bytes_max: u64,
}

#[derive(Debug, Default)]
struct Counter {
    count: AtomicU64,
    bytes: AtomicU64,
}

/// What a folder was used for since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpillStats {
    /// Bytes that files occupy now.
    pub used_bytes: u64,
    /// The most that files occupied at once.
    pub used_bytes_max: u64,
    /// What files may occupy.
    pub limit_bytes: u64,
    /// Batches written.
    pub written_count: u64,
    /// Bytes written, compressed, whole pages.
    pub written_bytes: u64,
    /// The same bytes before compression.
    pub raw_bytes: u64,
    /// Batches read.
    pub read_count: u64,
    /// Bytes read, compressed.
    pub read_bytes: u64,
}

impl SpillFolder {
    /// Opens the folder, and removes the files that a killed process left.
    ///
    /// # Errors
    /// [`OperatorError::Spill`] when the folder can be neither read nor made.
    pub fn open(options: SpillOptions, engine: Arc<IoEngine>) -> Result<Arc<Self>> {
        let SpillOptions { path, limit_bytes } = options;
        fs::create_dir_all(&path).map_err(failed(&path, "create"))?;
        for entry in fs::read_dir(&path).map_err(failed(&path, "list"))? {
            let entry = entry.map_err(failed(&path, "list"))?;
            if is_ours(&entry.file_name().to_string_lossy()) {
                tracing::info!(file = %entry.path().display(), "removing what a killed process spilled");
                fs::remove_file(entry.path()).map_err(failed(&entry.path(), "remove"))?;
            }
        }
        let space = FolderSpace {
            limit_bytes,
            used_bytes: 0,
            used_bytes_max: 0,
        };
        Ok(Arc::new(Self {
            path,
            engine,
            next_file: AtomicU64::new(0),
            space: Mutex::new(space),
            written: Counter::default(),
            read: Counter::default(),
            raw_bytes: AtomicU64::new(0),
        }))
    }

    /// An empty file for batches of this schema. It occupies nothing until it is written to. `spilled` counts what is
    /// written.
    ///
    /// # Errors
    /// [`OperatorError::Spill`], or [`OperatorError::Arrow`] for types that cannot be spilled.
    pub fn create_file(
        self: &Arc<Self>,
        schema: SchemaRef,
        spilled: &OnSpill,
    ) -> Result<Arc<SpillFile>> {
        let number = self.next_file.fetch_add(1, Relaxed);
        let name = format!("{NAME_START}{number}{NAME_END}");
        SpillFile::create(self, &self.path.join(name), schema, spilled)
    }

    /// Changes what files may occupy. What is there already stays.
    pub fn set_limit_bytes(&self, limit_bytes: u64) {
        self.space.lock().limit_bytes = limit_bytes;
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the folder was used for.
    pub fn stats(&self) -> SpillStats {
        let space = self.space.lock();
        SpillStats {
            used_bytes: space.used_bytes,
            used_bytes_max: space.used_bytes_max,
            limit_bytes: space.limit_bytes,
            written_count: self.written.count.load(Relaxed),
            written_bytes: self.written.bytes.load(Relaxed),
            raw_bytes: self.raw_bytes.load(Relaxed),
            read_count: self.read.count.load(Relaxed),
            read_bytes: self.read.bytes.load(Relaxed),
        }
    }

    pub(super) fn engine(&self) -> &Arc<IoEngine> {
        &self.engine
    }

    /// A file is about to occupy `more` bytes.
    pub(super) fn occupy(&self, more: u64) -> Result<()> {
        let mut space = self.space.lock();
        let used_bytes = space.used_bytes.saturating_add(more);
        if used_bytes > space.limit_bytes {
            return Err(OperatorError::SpillLimit {
                folder: self.path.clone(),
                limit_bytes: space.limit_bytes,
                used_bytes: space.used_bytes,
                needed_bytes: more,
            });
        }
        space.used_bytes = used_bytes;
        space.used_bytes_max = space.used_bytes_max.max(used_bytes);
        Ok(())
    }

    /// Whether files would occupy more than half of what they may with `more` bytes: then room counts for more
    /// than time.
    pub(super) fn is_short_of(&self, more: usize) -> bool {
        let space = self.space.lock();
        space.used_bytes.saturating_add(more as u64) > space.limit_bytes / 2
    }

    /// A file occupies `bytes` less.
    pub(super) fn vacate(&self, bytes: u64) {
        self.space.lock().used_bytes -= bytes;
    }

    pub(super) fn note_written(&self, stored_bytes: u64, raw_bytes: u64) {
        self.written.add(stored_bytes);
        self.raw_bytes.fetch_add(raw_bytes, Relaxed);
    }

    pub(super) fn note_read(&self, stored_bytes: u64) {
        self.read.add(stored_bytes);
    }

    /// What a failed write means.
    pub(super) fn write_error(
        &self,
        file: &Path,
        needed_bytes: u64,
        source: io::Error,
    ) -> OperatorError {
        use io::ErrorKind::{QuotaExceeded, StorageFull, WriteZero};
        match source.kind() {
            StorageFull | QuotaExceeded | WriteZero => OperatorError::DiskFull {
                folder: self.path.clone(),
                needed_bytes,
                used_bytes: self.space.lock().used_bytes,
            },
            _ => failed(file, "write")(source),
        }
    }
}

impl Counter {
    fn add(&self, bytes: u64) {
        self.count.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

fn is_ours(name: &str) -> bool {
    let number = name.strip_prefix(NAME_START);
    let number = number.and_then(|rest| rest.strip_suffix(NAME_END));
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}

pub(super) fn failed(
    path: &Path,
    operation: &'static str,
) -> impl FnOnce(io::Error) -> OperatorError {
    let path = path.to_path_buf();
    move |source| OperatorError::Spill {
        path,
        operation,
        source: Arc::new(source),
    }
}
