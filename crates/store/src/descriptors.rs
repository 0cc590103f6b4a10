//! Descriptors of data and index files: opened when a read needs one, and a bounded number kept.
//!
//! A file that loses its descriptor is opened again from the descriptor of the database's folder, so that a folder that
//! is moved takes its files along. A read under way keeps the descriptor that it began with.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotshelf_tier::io::{IoEngine, IoFile};
use hotshelf_tier::{TierError, is_out_of_descriptors};
use parking_lot::Mutex;

use crate::links::missing;
use crate::recent::Recent;
use crate::root::Root;

/// Descriptors that are kept, however few the process may have.
const LIMIT_MIN: usize = 16;
/// And however many.
const LIMIT_MAX: usize = 1 << 16;
/// One in this many goes when there is no room for another: looking for the oldest takes time.
const CLOSED_SHARE: usize = 8;

/// The descriptors of a database's files.
pub struct Descriptors {
    engine: Arc<IoEngine>,
    limit: usize,
    open: Mutex<Recent<IoFile>>,
    next_key: AtomicU64,
    open_count: AtomicU64,
}

impl std::fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Descriptors")
            .field("limit", &self.limit)
            .field("kept", &self.kept_count())
            .finish_non_exhaustive()
    }
}

impl Descriptors {
    /// At most `limit` descriptors, besides those in use.
    pub fn new(engine: Arc<IoEngine>, limit: usize) -> Arc<Self> {
        Arc::new(Self {
            engine,
            limit: limit.max(1),
            open: Mutex::default(),
            next_key: AtomicU64::new(0),
            open_count: AtomicU64::new(0),
        })
    }

    /// How many are kept at most, besides those in use.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many are kept.
    pub fn kept_count(&self) -> usize {
        self.open.lock().len()
    }

    /// How often a file was opened so far.
    pub fn open_count(&self) -> u64 {
        self.open_count.load(Ordering::Relaxed)
    }

    /// A file to be read. It is not opened here.
    pub(crate) fn handle(self: &Arc<Self>, root: &Root, path: PathBuf) -> Handle {
        Handle {
            key: self.next_key.fetch_add(1, Ordering::Relaxed),
            root: root.clone(),
            path,
            descriptors: self.clone(),
        }
    }

    fn open(&self, handle: &Handle) -> Result<Arc<IoFile>, TierError> {
        self.make_room(self.limit);
        let open = || {
            self.engine
                .open_as(&handle.root.real(&handle.path), &handle.path)
        };
        let opened = match open() {
            Err(TierError::Io { source, .. }) if is_out_of_descriptors(&source) => {
                // The process has too many of them: files that are not read are closed.
                self.make_room(0);
                open()
            }
            Err(TierError::Io {
                path,
                operation,
                offset,
                source,
            }) if source.kind() == io::ErrorKind::NotFound => {
                let source = missing(&handle.root.real(&handle.path), source.kind().into());
                Err(TierError::Io {
                    path,
                    operation,
                    offset,
                    source: Arc::new(source),
                })
            }
            other => other,
        }?;
        self.open_count.fetch_add(1, Ordering::Relaxed);
        Ok(self.open.lock().insert(handle.key, opened))
    }

    /// Closes files that are not being read until fewer than `count` are open.
    fn make_room(&self, count: usize) {
        let mut open = self.open.lock();
        if open.len() >= count {
            let surplus = (open.len() - count).max(count / CLOSED_SHARE) + 1;
            let closed = open.take_oldest(surplus);
            drop(open);
            drop(closed);
        }
    }
}

/// A file that is opened when it is read.
#[derive(Debug)]
pub(crate) struct Handle {
    key: u64,
    root: Root,
    path: PathBuf,
    descriptors: Arc<Descriptors>,
}

impl Handle {
    /// The path that errors show.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What reads it.
    pub fn engine(&self) -> &Arc<IoEngine> {
        &self.descriptors.engine
    }

    /// The open file. It stays open while it is referenced.
    pub fn open(&self) -> Result<Arc<IoFile>, TierError> {
        let found = self.descriptors.open.lock().find(self.key);
        match found {
            Some(open) => Ok(open),
            None => self.descriptors.open(self),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let open = self.descriptors.open.lock().remove(self.key);
        drop(open);
    }
}

/// How many descriptors a database's files may have: half of what the process may have now.
pub(crate) fn limit_of_process() -> usize {
    use rustix::process::{Resource, getrlimit};
    let most = getrlimit(Resource::Nofile).current;
    let half = most.map_or(LIMIT_MAX, |most| (most / 2) as usize);
    half.clamp(LIMIT_MIN, LIMIT_MAX)
}
