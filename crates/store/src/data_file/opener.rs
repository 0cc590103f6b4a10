//! What opens the files of a database: their descriptors and footers, as many as there is room for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotshelf_cache::model::ItemClass;
use hotshelf_cache::{CacheManager, Lender, Rung};
use hotshelf_tier::io::IoEngine;
use parking_lot::Mutex;
use vortex::session::VortexSession;

use super::open::DataFile;
use crate::descriptors::{Descriptors, limit_of_process};
use crate::held::Held;
use crate::in_use::InUse;
use crate::recent::Recent;
use crate::store::Store;

/// Footers take at most one part in this many of the budget, unless those in use take more.
const BUDGET_SHARE: u64 = 16;
/// One in this many goes when there is no room for another: looking for the oldest takes time.
const DROPPED_SHARE: usize = 8;
/// What it takes to read and check a small file's footer again, in seconds.
const READ_S: f64 = 300e-6;

/// Opens data and index files. One for each database.
pub struct Opener {
    pub(crate) cache: Arc<CacheManager>,
    pub(crate) session: VortexSession,
    pub(crate) in_use: Arc<InUse>,
    descriptors: Arc<Descriptors>,
    footers: Arc<Footers>,
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opener")
            .field("descriptors", &self.descriptors)
            .field("footers", &self.footers.kept_count())
            .finish_non_exhaustive()
    }
}

impl Opener {
    /// Opens the files of a store; half of the descriptors that the process may have are theirs.
    pub fn new(
        store: &Store,
        engine: &Arc<IoEngine>,
        cache: &Arc<CacheManager>,
        session: VortexSession,
    ) -> Arc<Self> {
        Self::with_descriptors(store, engine, cache, session, limit_of_process())
    }

    /// The same with at most this many descriptors, but for those in use.
    pub fn with_descriptors(
        store: &Store,
        engine: &Arc<IoEngine>,
        cache: &Arc<CacheManager>,
        session: VortexSession,
        limit: usize,
    ) -> Arc<Self> {
        let footers = Arc::new(Footers {
            cache: cache.clone(),
            kept: Mutex::default(),
            read_count: AtomicU64::new(0),
        });
        let lender: Arc<dyn Lender> = footers.clone();
        cache.add_lender(Arc::downgrade(&lender));
        Arc::new(Self {
            cache: cache.clone(),
            session,
            in_use: store.in_use().clone(),
            descriptors: Descriptors::new(engine.clone(), limit),
            footers,
        })
    }

    /// The descriptors of the files.
    pub fn descriptors(&self) -> &Arc<Descriptors> {
        &self.descriptors
    }

    /// The footers in memory.
    pub fn footers(&self) -> &Arc<Footers> {
        &self.footers
    }
}

/// Footers of data files, with what follows from them, in memory of the budget. Those that nobody uses go, the oldest
/// first, when there are too many or others need the memory.
pub struct Footers {
    cache: Arc<CacheManager>,
    kept: Mutex<Kept>,
    read_count: AtomicU64,
}

#[derive(Default)]
struct Kept {
    files: Recent<DataFile>,
    /// Memory of them all.
    bytes: u64,
}

impl Kept {
    fn insert(&mut self, key: u64, file: DataFile) -> Arc<DataFile> {
        self.bytes += file.memory.bytes();
        self.files.insert(key, Arc::new(file))
    }

    fn remove(&mut self, key: u64) -> Option<Arc<DataFile>> {
        let file = self.files.remove(key)?;
        self.bytes -= file.memory.bytes();
        Some(file)
    }

    fn take_oldest(&mut self, count: usize) -> Vec<Arc<DataFile>> {
        let taken = self.files.take_oldest(count);
        self.bytes -= taken.iter().map(|file| file.memory.bytes()).sum::<u64>();
        taken
    }
}

impl Footers {
    /// How many are in memory.
    pub fn kept_count(&self) -> usize {
        self.kept.lock().files.len()
    }

    /// How many were read so far.
    pub fn read_count(&self) -> u64 {
        self.read_count.load(Ordering::Relaxed)
    }

    pub(super) fn find(&self, key: u64) -> Option<Arc<DataFile>> {
        self.kept.lock().files.find(key)
    }

    /// Adds the file that was just opened. There is none of this key.
    pub(super) fn keep(&self, key: u64, file: DataFile) -> Arc<DataFile> {
        self.read_count.fetch_add(1, Ordering::Relaxed);
        self.make_room(file.memory.bytes());
        self.kept.lock().insert(key, file)
    }

    pub(super) fn forget(&self, key: u64) {
        // Dropped without the lock: giving memory back may start reads.
        let file = self.kept.lock().remove(key);
        drop(file);
    }

    fn make_room(&self, bytes: u64) {
        let limit = self.cache.budget().limit_bytes() / BUDGET_SHARE;
        let mut kept = self.kept.lock();
        if kept.bytes + bytes > limit {
            let count = kept.files.len() / DROPPED_SHARE + 1;
            let dropped = kept.take_oldest(count);
            drop(kept);
            drop(dropped);
        }
    }
}

impl Lender for Footers {
    fn class(&self) -> ItemClass {
        ItemClass::Metadata
    }

    fn lent_bytes(&self) -> u64 {
        let kept = self.kept.lock();
        kept.files.idle().map(|file| file.memory.bytes()).sum()
    }

    /// A footer is as likely to be used again as its last use is recent.
    fn cheapest(&self) -> Option<Rung> {
        let kept = self.kept.lock();
        let (file, used_at) = kept.files.oldest()?;
        let bytes = file.memory.bytes();
        let idle_s = used_at.elapsed().as_secs_f64().max(READ_S);
        Some(Rung {
            bytes,
            saved_s_per_byte_s: READ_S / (bytes.max(1) as f64 * idle_s),
        })
    }

    fn give_back(&self) -> bool {
        let oldest = self.kept.lock().take_oldest(1);
        !oldest.is_empty()
    }
}

/// Memory that a footer takes with what follows from it: the format keeps it as it is in the file, and as a tree.
pub(super) fn reserve(cache: &Arc<CacheManager>, footer_bytes: u64, map_bytes: u64) -> Held {
    Held::reserve(cache, 2 * footer_bytes + map_bytes)
}
