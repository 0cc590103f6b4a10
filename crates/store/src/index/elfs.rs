//! Elfs in memory: read when first asked, held on the budget, least recently used out first. Others that need memory
//! may take those not in use ([`Lender`]), by what they save.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use hotshelf_cache::model::{ItemClass, ItemUse};
use hotshelf_cache::{CacheManager, ColumnId, Ledger, Lender, Rung};
use hotshelf_elf::layout::packed::PackedElf;
use parking_lot::Mutex;

use super::blocks::BlockStore;
use super::file::{IndexFile, KeepsElfs, Stretch};
use super::heads::HeadStore;
use super::shelf::OpenElf;
pub use super::unavailable::Unavailable;
use crate::reservation::Reservation;

/// Elfs take at most one part in this many of the budget: the rest is the segments' and the operators'.
const BUDGET_SHARE: u64 = 2;

/// An Elf in memory.
pub struct LoadedElf {
    /// The Elf.
    pub elf: PackedElf,
    bytes: u64,
    _memory: Reservation,
}

/// The Elfs of a database.
pub struct ElfStore {
    cache: Arc<CacheManager>,
    resident: Mutex<Resident>,
    heads: Arc<HeadStore>,
    blocks: Arc<BlockStore>,
    /// Uses of Elfs, and what reading them took.
    ledger: Ledger,
    /// Elfs read.
    pub read_count: AtomicU64,
    /// Their bytes.
    pub read_bytes: AtomicU64,
    /// Elfs evicted.
    pub evict_count: AtomicU64,
    /// Questions asked.
    pub query_count: AtomicU64,
}

impl fmt::Debug for ElfStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElfStore")
            .field("resident_bytes", &self.resident_bytes())
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Resident {
    by_key: HashMap<u64, Entry>,
    bytes: u64,
    clock: u64,
}

struct Entry {
    elf: Arc<LoadedElf>,
    used_at: u64,
}

impl Entry {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.elf) == 1
    }
}

impl Resident {
    /// The idle Elf that has not been used for longest.
    fn oldest_idle(&self) -> Option<(u64, &Entry)> {
        let idle = self.by_key.iter().filter(|(_, entry)| entry.is_idle());
        let oldest = idle.min_by_key(|(_, entry)| entry.used_at)?;
        Some((*oldest.0, oldest.1))
    }

    fn remove_oldest(&mut self) -> Option<(u64, Arc<LoadedElf>)> {
        let oldest = self.by_key.iter().min_by_key(|(_, entry)| entry.used_at);
        let key = *oldest?.0;
        Some((key, self.remove(key)?))
    }

    fn remove(&mut self, key: u64) -> Option<Arc<LoadedElf>> {
        let entry = self.by_key.remove(&key)?;
        self.bytes -= entry.elf.bytes;
        Some(entry.elf)
    }
}

impl ElfStore {
    /// Elfs on the budget of this cache, which lends the memory of idle ones to others.
    pub fn new(cache: Arc<CacheManager>) -> Arc<Self> {
        let elfs = Arc::new(Self {
            cache: cache.clone(),
            resident: Mutex::default(),
            heads: HeadStore::new(&cache),
            blocks: BlockStore::new(cache.clone()),
            ledger: Ledger::new(ItemClass::IndexBlock),
            read_count: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            evict_count: AtomicU64::new(0),
            query_count: AtomicU64::new(0),
        });
        let lender: Weak<Self> = Arc::downgrade(&elfs);
        cache.add_lender(lender);
        elfs
    }

    /// Bytes that Elfs may take.
    pub fn limit_bytes(&self) -> u64 {
        self.cache.budget().limit_bytes() / BUDGET_SHARE
    }

    /// Bytes of each column's segments, and those of them in memory.
    pub fn column_bytes(&self) -> (Arc<BTreeMap<ColumnId, u64>>, BTreeMap<ColumnId, u64>) {
        (self.cache.column_sizes(), self.cache.resident_bytes())
    }

    /// Bytes that Elfs take.
    pub fn resident_bytes(&self) -> u64 {
        self.resident.lock().bytes
    }

    /// Whether the Elf of a stretch is in memory.
    pub fn is_resident(&self, stretch: &Stretch) -> bool {
        self.resident.lock().by_key.contains_key(&stretch.key)
    }

    /// Whether the head of a stretch's Elf is in memory: asking it reads blocks only.
    pub fn has_head(&self, stretch: &Stretch) -> bool {
        self.heads.is_resident(stretch)
    }

    /// The blocks in memory, for their policy and figures.
    pub fn blocks(&self) -> &Arc<BlockStore> {
        &self.blocks
    }

    /// The Elf of a stretch, to be asked where it lies: its head is in memory from here on, its blocks are read as
    /// queries need them. Made for each query.
    ///
    /// # Errors
    /// When the head has no room in memory or is damaged.
    pub async fn open(
        &self,
        file: &Arc<IndexFile>,
        stretch_idx: usize,
    ) -> Result<OpenElf, Unavailable> {
        self.open_for(file, stretch_idx, 1.0).await
    }

    /// The same for a query of this weight.
    ///
    /// # Errors
    /// The same.
    pub async fn open_for(
        &self,
        file: &Arc<IndexFile>,
        stretch_idx: usize,
        weight: f64,
    ) -> Result<OpenElf, Unavailable> {
        let stretch = &file.stretches[stretch_idx];
        let head = self.heads.get(file, stretch, weight).await?;
        let asked = (stretch_idx, weight);
        let (blocks, cache) = (&self.blocks, &self.cache);
        Ok(OpenElf::new(file, asked, head, blocks, cache))
    }

    /// The Elf of a stretch, from memory or by one read that all requests share, for a query of this weight.
    pub async fn get(
        &self,
        file: &IndexFile,
        stretch: &Stretch,
        weight: f64,
    ) -> Result<Arc<LoadedElf>, Unavailable> {
        if let Some(elf) = self.find(stretch.key, weight) {
            return Ok(elf);
        }
        let _reading = stretch.reading.lock().await;
        if let Some(elf) = self.find(stretch.key, weight) {
            return Ok(elf);
        }
        let memory = self.make_room(stretch.memory_bytes())?;
        let begun = Instant::now();
        let elf = file.read(stretch).await.map_err(Unavailable::damaged)?;
        self.read_count.fetch_add(1, Ordering::Relaxed);
        self.read_bytes
            .fetch_add(stretch.file_bytes(), Ordering::Relaxed);
        let elf = Arc::new(LoadedElf {
            elf,
            bytes: stretch.memory_bytes(),
            _memory: memory,
        });
        let read_s = begun.elapsed().as_secs_f64();
        self.ledger.miss(stretch.key, elf.bytes, read_s, weight);
        let mut resident = self.resident.lock();
        resident.clock += 1;
        resident.bytes += elf.bytes;
        let entry = Entry {
            elf: elf.clone(),
            used_at: resident.clock,
        };
        resident.by_key.insert(stretch.key, entry);
        Ok(elf)
    }

    fn find(&self, key: u64, weight: f64) -> Option<Arc<LoadedElf>> {
        let mut resident = self.resident.lock();
        resident.clock += 1;
        let now = resident.clock;
        let entry = resident.by_key.get_mut(&key)?;
        entry.used_at = now;
        self.ledger.hit(key, weight);
        Some(entry.elf.clone())
    }

    /// Reserves memory, evicting Elfs and segments of the cache until it fits.
    fn make_room(&self, bytes: u64) -> Result<Reservation, Unavailable> {
        let refused = Unavailable::Memory {
            needed_bytes: bytes,
        };
        if bytes > self.limit_bytes() {
            return Err(refused);
        }
        while self.resident_bytes() + bytes > self.limit_bytes() {
            if !self.evict() {
                return Err(refused);
            }
        }
        loop {
            if let Some(held) = Reservation::try_reserve(&self.cache, bytes) {
                return Ok(held);
            }
            if !self.evict() {
                return Err(refused);
            }
        }
    }

    fn evict(&self) -> bool {
        // Dropped after the lock: giving memory back may start reads.
        let evicted = self.resident.lock().remove_oldest();
        self.note_gone(evicted)
    }

    /// Drops an Elf that was taken out, if there is one.
    fn note_gone(&self, gone: Option<(u64, Arc<LoadedElf>)>) -> bool {
        let Some((key, _)) = gone else {
            return false;
        };
        self.ledger.gave_back(key);
        self.evict_count.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Memory of the budget that cannot be refused.
    pub fn hold(&self, bytes: u64) -> Reservation {
        Reservation::reserve(&self.cache, bytes)
    }
}

impl KeepsElfs for ElfStore {
    fn forget(&self, stretches: &[Stretch]) {
        for stretch in stretches {
            let removed = self.resident.lock().remove(stretch.key);
            drop(removed);
            self.ledger.forget(stretch.key);
            self.heads.forget(stretch);
            self.blocks.forget(stretch.key);
        }
    }
}

impl Lender for ElfStore {
    fn class(&self) -> ItemClass {
        ItemClass::IndexBlock
    }

    fn lent_bytes(&self) -> u64 {
        let resident = self.resident.lock();
        let idle = resident.by_key.values().filter(|entry| entry.is_idle());
        idle.map(|entry| entry.elf.bytes).sum()
    }

    fn uses(&self) -> Vec<ItemUse> {
        self.ledger.uses()
    }

    fn cheapest(&self) -> Option<Rung> {
        let resident = self.resident.lock();
        let (key, entry) = resident.oldest_idle()?;
        Some(Rung {
            bytes: entry.elf.bytes,
            saved_s_per_byte_s: self.ledger.density(key),
        })
    }

    fn give_back(&self) -> bool {
        let mut resident = self.resident.lock();
        let key = resident.oldest_idle().map(|(key, _)| key);
        let given = key.and_then(|key| Some((key, resident.remove(key)?)));
        drop(resident);
        self.note_gone(given)
    }
}
