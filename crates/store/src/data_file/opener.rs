//! What opens the files of a database: their descriptors and footers, as many as there is room for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotshelf_cache::model::{ItemClass, ItemUse};
use hotshelf_cache::{CacheManager, Ledger, Lender, MissCost, Rung};
use parking_lot::Mutex;
use vortex::session::VortexSession;

use super::open::DataFile;
use super::table_shelves::TableShelves;
use crate::descriptors::Descriptors;
use crate::in_use::InUse;
use crate::recent::Recent;
use crate::reservation::Reservation;

/// Footers take at most one part in this many of the budget, unless those in use take more.
const BUDGET_SHARE: u64 = 16;
/// One in this many goes when there is no room for another: looking for the oldest takes time.
const DROPPED_SHARE: usize = 8;

/// Opens data and index files. One for each database.
pub struct Opener {
    pub(crate) cache: Arc<CacheManager>,
    pub(crate) session: VortexSession,
    pub(crate) in_use: Arc<InUse>,
    descriptors: Arc<Descriptors>,
    footers: Arc<Footers>,
    shelves: Arc<TableShelves>,
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
    /// Opens files through these descriptors and keeps their footers in the cache's memory.
    pub(crate) fn new(
        in_use: &Arc<InUse>,
        descriptors: Arc<Descriptors>,
        cache: &Arc<CacheManager>,
        session: VortexSession,
    ) -> Arc<Self> {
        let footers = Arc::new(Footers {
            cache: cache.clone(),
            kept: Mutex::default(),
            ledger: cache.ledger(ItemClass::Metadata),
            read_count: AtomicU64::new(0),
        });
        let lender: Arc<dyn Lender> = footers.clone();
        cache.add_lender(Arc::downgrade(&lender));
        Arc::new(Self {
            cache: cache.clone(),
            session,
            in_use: in_use.clone(),
            descriptors,
            footers,
            shelves: Arc::default(),
        })
    }

    /// The descriptors of the files.
    pub fn descriptors(&self) -> &Arc<Descriptors> {
        &self.descriptors
    }

    /// Where the tables are.
    pub fn shelves(&self) -> &Arc<TableShelves> {
        &self.shelves
    }

    /// The footers in memory.
    pub fn footers(&self) -> &Arc<Footers> {
        &self.footers
    }
}

/// Footers of data files, with what follows from them, in memory of the budget. Those that are not in use are dropped,
/// the oldest first, when there are too many or others need the memory.
pub struct Footers {
    cache: Arc<CacheManager>,
    kept: Mutex<KeptFooter>,
    /// Uses of footers, and what reading and checking them took.
    ledger: Ledger,
    read_count: AtomicU64,
}

#[derive(Default)]
struct KeptFooter {
    files: Recent<DataFile>,
    /// Memory of them all.
    bytes: u64,
}

impl KeptFooter {
    fn insert(&mut self, key: u64, file: DataFile) -> Arc<DataFile> {
        self.bytes += file.memory.bytes();
        self.files.insert(key, Arc::new(file))
    }

    fn remove(&mut self, key: u64) -> Option<Arc<DataFile>> {
        let file = self.files.remove(key)?;
        self.bytes -= file.memory.bytes();
        Some(file)
    }

    fn take_oldest(&mut self, count: usize) -> Vec<(u64, Arc<DataFile>)> {
        let taken = self.files.take_oldest(count);
        let bytes = taken.iter().map(|(_, file)| file.memory.bytes());
        self.bytes -= bytes.sum::<u64>();
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

    /// An open file, for a query of this weight.
    pub(super) fn find(&self, key: u64, weight: f64) -> Option<Arc<DataFile>> {
        let found = self.kept.lock().files.find(key)?;
        self.ledger.hit(key, weight);
        Some(found)
    }

    /// Adds the file that was just opened at this cost. There is none of this key.
    pub(super) fn keep(&self, key: u64, file: DataFile, cost: MissCost) -> Arc<DataFile> {
        self.read_count.fetch_add(1, Ordering::Relaxed);
        let bytes = file.memory.bytes();
        self.make_room(bytes);
        self.ledger.miss(key, bytes, cost);
        self.kept.lock().insert(key, file)
    }

    pub(super) fn forget(&self, key: u64) {
        self.ledger.forget(key);
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
            self.note_gone(&dropped);
        }
    }

    fn note_gone(&self, gone: &[(u64, Arc<DataFile>)]) {
        for (key, _) in gone {
            self.ledger.gave_back(*key);
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

    fn uses(&self) -> Vec<ItemUse> {
        self.ledger.uses()
    }

    fn cheapest(&self) -> Option<Rung> {
        let kept = self.kept.lock();
        let (key, file) = kept.files.oldest()?;
        Some(Rung {
            bytes: file.memory.bytes(),
            saved_s_per_byte_s: self.ledger.density(key),
        })
    }

    fn give_back(&self) -> bool {
        let oldest = self.kept.lock().take_oldest(1);
        self.note_gone(&oldest);
        !oldest.is_empty()
    }
}

/// Memory that a footer takes with what follows from it: the format keeps it as it is in the file, and as a tree.
pub(super) fn reserve(cache: &Arc<CacheManager>, footer_bytes: u64, map_bytes: u64) -> Reservation {
    Reservation::reserve(cache, 2 * footer_bytes + map_bytes)
}
