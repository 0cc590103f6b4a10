//! Elfs in memory: read when first asked, held on the budget, least recently used out first.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotshelf_cache::{CacheManager, ColumnId};
use hotshelf_elf::layout::packed::PackedElf;
use parking_lot::Mutex;

use super::file::{IndexFile, Stretch};
use crate::error::StoreError;
use crate::held::Held;

/// Elfs take at most one part in this many of the budget: the rest is the segments' and the operators'.
const BUDGET_SHARE: u64 = 2;

/// An Elf in memory.
pub struct LoadedElf {
    /// The Elf.
    pub elf: PackedElf,
    bytes: u64,
    _memory: Held,
}

/// Why an Elf cannot be asked. The scan answers then.
#[derive(Debug, Clone)]
pub enum Unavailable {
    /// There is not so much memory.
    Memory {
        /// Bytes it would take.
        needed_bytes: u64,
    },
    /// Its bytes cannot be read or are not what was written.
    Damaged(String),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { needed_bytes } => {
                write!(
                    f,
                    "an Elf of {needed_bytes} bytes has no room in the budget"
                )
            }
            Self::Damaged(what) => f.write_str(what),
        }
    }
}

/// The Elfs of a database.
pub struct ElfStore {
    cache: Arc<CacheManager>,
    resident: Mutex<Resident>,
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

impl Resident {
    fn remove_oldest(&mut self) -> Option<Arc<LoadedElf>> {
        let oldest = self.by_key.iter().min_by_key(|(_, entry)| entry.used_at);
        let key = *oldest?.0;
        self.remove(key)
    }

    fn remove(&mut self, key: u64) -> Option<Arc<LoadedElf>> {
        let entry = self.by_key.remove(&key)?;
        self.bytes -= entry.elf.bytes;
        Some(entry.elf)
    }
}

impl ElfStore {
    /// Elfs on the budget of this cache.
    pub fn new(cache: Arc<CacheManager>) -> Self {
        Self {
            cache,
            resident: Mutex::default(),
            read_count: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            evict_count: AtomicU64::new(0),
            query_count: AtomicU64::new(0),
        }
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

    /// The Elf of a stretch, from memory or by one read that all askers share.
    pub async fn get(
        &self,
        file: &IndexFile,
        stretch: &Stretch,
    ) -> Result<Arc<LoadedElf>, Unavailable> {
        if let Some(elf) = self.find(stretch.key) {
            return Ok(elf);
        }
        let _reading = stretch.reading.lock().await;
        if let Some(elf) = self.find(stretch.key) {
            return Ok(elf);
        }
        let memory = self.make_room(stretch.memory_bytes())?;
        let elf = file.read(stretch).await.map_err(|error| {
            tracing::warn!(%error, "an index cannot be used; the table is scanned instead");
            Unavailable::Damaged(match error {
                StoreError::Corruption(found) => found.to_string(),
                other => other.to_string(),
            })
        })?;
        self.read_count.fetch_add(1, Ordering::Relaxed);
        self.read_bytes
            .fetch_add(stretch.file_bytes(), Ordering::Relaxed);
        let elf = Arc::new(LoadedElf {
            elf,
            bytes: stretch.memory_bytes(),
            _memory: memory,
        });
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

    fn find(&self, key: u64) -> Option<Arc<LoadedElf>> {
        let mut resident = self.resident.lock();
        resident.clock += 1;
        let now = resident.clock;
        let entry = resident.by_key.get_mut(&key)?;
        entry.used_at = now;
        Some(entry.elf.clone())
    }

    /// Reserves memory, evicting Elfs, and segments of the cache, until it is there.
    fn make_room(&self, bytes: u64) -> Result<Held, Unavailable> {
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
            if let Some(held) = Held::try_reserve(&self.cache, bytes) {
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
        self.evict_count
            .fetch_add(u64::from(evicted.is_some()), Ordering::Relaxed);
        evicted.is_some()
    }

    /// Memory of the budget that cannot be refused.
    pub fn hold(&self, bytes: u64) -> Held {
        Held::reserve(&self.cache, bytes)
    }

    /// Forgets the Elfs of a file that is going.
    pub fn forget(&self, stretches: &[Stretch]) {
        for stretch in stretches {
            let removed = self.resident.lock().remove(stretch.key);
            drop(removed);
        }
    }
}
