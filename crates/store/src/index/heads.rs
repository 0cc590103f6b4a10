//! Heads of Elfs in memory, on the budget: read when first asked, and dropped when others need the memory more.

use std::sync::Arc;
use std::time::Instant;

use hotshelf_cache::model::{ItemClass, ItemUse};
use hotshelf_cache::{CacheManager, Ledger, Lender, MissCost, Rung};
use hotshelf_elf::layout::packed::ElfHead;
use parking_lot::Mutex;

use super::file::{IndexFile, Stretch};
use super::unavailable::Unavailable;
use crate::recent::Recent;
use crate::reservation::Reservation;

/// A head in memory.
pub(crate) struct LoadedHead {
    pub head: Arc<ElfHead>,
    memory: Reservation,
}

/// The heads in memory. One for each database.
pub(crate) struct HeadStore {
    cache: Arc<CacheManager>,
    kept: Mutex<Recent<LoadedHead>>,
    /// Uses of heads, and what reading them took.
    ledger: Ledger,
}

impl HeadStore {
    /// Heads on the budget of this cache, which lends the memory of idle ones to others.
    pub fn new(cache: &Arc<CacheManager>) -> Arc<Self> {
        let heads = Arc::new(Self {
            cache: cache.clone(),
            kept: Mutex::default(),
            ledger: cache.ledger(ItemClass::IndexBlock),
        });
        let lender: Arc<dyn Lender> = heads.clone();
        cache.add_lender(Arc::downgrade(&lender));
        heads
    }

    /// Bytes of the heads in memory that are not in use.
    pub fn idle_bytes(&self) -> u64 {
        let kept = self.kept.lock();
        kept.idle().map(|head| head.memory.bytes()).sum()
    }

    /// The head of a stretch's Elf, from memory or by one read that all requests share, for a query of this weight.
    pub async fn get(
        &self,
        file: &IndexFile,
        stretch: &Stretch,
        weight: f64,
    ) -> Result<Arc<LoadedHead>, Unavailable> {
        if let Some(head) = self.find(stretch, weight) {
            return Ok(head);
        }
        let _reading = stretch.reading.lock().await;
        if let Some(head) = self.find(stretch, weight) {
            return Ok(head);
        }
        let needed_bytes = stretch.head_memory_bytes();
        let memory = Reservation::try_reserve(&self.cache, needed_bytes);
        let memory = memory.ok_or(Unavailable::Memory { needed_bytes })?;
        let begun = Instant::now();
        let head = file
            .read_head(stretch)
            .await
            .map_err(Unavailable::damaged)?;
        let cost = MissCost {
            seconds: begun.elapsed().as_secs_f64(),
            weight,
        };
        self.ledger.miss(stretch.head_item(), needed_bytes, cost);
        let head = Arc::new(LoadedHead {
            head: Arc::new(head),
            memory,
        });
        Ok(self.kept.lock().insert(stretch.key, head))
    }

    fn find(&self, stretch: &Stretch, weight: f64) -> Option<Arc<LoadedHead>> {
        let found = self.kept.lock().find(stretch.key)?;
        self.ledger.hit(stretch.head_item(), weight);
        Some(found)
    }

    /// The head of a stretch's Elf, if it is in memory. That is not a use.
    pub fn known(&self, stretch: &Stretch) -> Option<Arc<LoadedHead>> {
        self.kept.lock().find(stretch.key)
    }

    /// Whether the head of a stretch's Elf is in memory.
    pub fn is_resident(&self, stretch: &Stretch) -> bool {
        self.kept.lock().contains(stretch.key)
    }

    /// Forgets the head of an Elf whose file is going.
    pub fn forget(&self, stretch: &Stretch) {
        // Dropped without the lock: giving memory back may start reads.
        let head = self.kept.lock().remove(stretch.key);
        drop(head);
        self.ledger.forget(stretch.head_item());
    }
}

impl Lender for HeadStore {
    fn class(&self) -> ItemClass {
        ItemClass::IndexBlock
    }

    fn lent_bytes(&self) -> u64 {
        self.idle_bytes()
    }

    fn uses(&self) -> Vec<ItemUse> {
        self.ledger.uses()
    }

    fn cheapest(&self) -> Option<Rung> {
        let kept = self.kept.lock();
        let (key, head) = kept.oldest()?;
        Some(Rung {
            bytes: head.memory.bytes(),
            saved_s_per_byte_s: self.ledger.density(Stretch::head_item_of(key)),
        })
    }

    fn give_back(&self) -> bool {
        let oldest = self.kept.lock().take_oldest(1);
        for (key, _) in &oldest {
            self.ledger.gave_back(Stretch::head_item_of(*key));
        }
        !oldest.is_empty()
    }
}
