//! The Elfs of a database, asked where they lie: their heads and some of their blocks are in memory, on the budget.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotshelf_cache::{CacheManager, ColumnId};
use hotshelf_elf::keys::QueryBox;
use hotshelf_elf::layout::packed::Wanted;
use parking_lot::RwLock;

use super::IndexCache;
use super::blocks::BlockStore;
use super::choice;
use super::copies::making;
use super::file::{IndexFile, KeepsElfs, Stretch};
use super::heads::HeadStore;
pub use super::heads::{Asked, UnreadHead};
use super::shelf::OpenElf;
pub use super::unavailable::Unavailable;
use crate::reservation::Reservation;
use crate::shelf::Shelf;

/// Heads that are in use together take at most one part in this many of the budget: the rest is the segments' and the
/// operators'.
const BUDGET_SHARE: u64 = 2;

/// The Elfs of a database.
pub struct ElfStore {
    cache: Arc<CacheManager>,
    heads: Arc<HeadStore>,
    /// Of the indexes about which the user said nothing.
    shared: Arc<BlockStore>,
    /// Of the others, by number.
    own: RwLock<BTreeMap<i64, (IndexCache, Arc<BlockStore>)>>,
    /// Where leaves are read from, of the indexes for which that is not their file.
    shelves: RwLock<BTreeMap<i64, Shelf>>,
    /// Questions asked.
    query_count: AtomicU64,
}

impl fmt::Debug for ElfStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElfStore")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

impl ElfStore {
    /// Elfs on the budget of this cache, which lends the memory of idle ones to others.
    pub fn new(cache: Arc<CacheManager>) -> Arc<Self> {
        Arc::new(Self {
            heads: HeadStore::new(&cache),
            shared: BlockStore::new(cache.clone(), IndexCache::default()),
            own: RwLock::default(),
            shelves: RwLock::default(),
            query_count: AtomicU64::new(0),
            cache,
        })
    }

    /// Bytes that heads in use together may take.
    pub fn limit_bytes(&self) -> u64 {
        self.cache.budget().limit_bytes() / BUDGET_SHARE
    }

    /// Bytes of each column's segments, and those of them in memory.
    pub fn column_bytes(&self) -> (Arc<BTreeMap<ColumnId, u64>>, BTreeMap<ColumnId, u64>) {
        (self.cache.column_sizes(), self.cache.resident_bytes())
    }

    /// Whether the head of a stretch's Elf is in memory: asking it reads blocks only.
    pub fn has_head(&self, stretch: &Stretch) -> bool {
        self.heads.is_resident(stretch)
    }

    /// Levels of the head of a stretch's Elf that are in memory without the others.
    pub fn upper_level_count(&self, stretch: &Stretch) -> Option<usize> {
        self.heads.upper_level_count(stretch)
    }

    /// What a question to a stretch's Elf would read of its head.
    pub fn unread_head(&self, file: &IndexFile, stretch: &Stretch) -> UnreadHead {
        let levels = self.blocks_of(file.index()).policy().levels();
        self.heads.unread(stretch, levels)
    }

    /// Pages of blocks that a search in a stretch would read from storage now; `None` if the head is not in memory or
    /// the question is not one for this Elf.
    pub fn missing_pages(
        &self,
        file: &IndexFile,
        stretch: &Stretch,
        query: &QueryBox,
        wanted: Wanted,
    ) -> Option<usize> {
        let head = &self.heads.known(stretch)?.head;
        let mut search = head.search(query, wanted).ok()?;
        let blocks = search.next_part(usize::MAX).map(|part| part.blocks);
        let pages = head.paging().pages(&blocks.unwrap_or_default());
        let blocks = self.blocks_of(file.index());
        Some(blocks.missing_count(stretch.key, &pages))
    }

    /// The place of an index' blocks, for their policy and figures: that of all indexes, unless the user chose
    /// otherwise.
    pub fn blocks_of(&self, index: i64) -> Arc<BlockStore> {
        let own = self.own.read();
        own.get(&index)
            .map_or(&self.shared, |(_, blocks)| blocks)
            .clone()
    }

    /// Gives the blocks of an index a place of their own with the policy and the limit that the user chose, or lets
    /// them share that of all indexes. What was kept elsewhere is not kept any more, or leaves when it is not used.
    pub fn set_cache(&self, index: i64, chosen: IndexCache) {
        let known = self.own.read().get(&index).map(|(known, _)| *known);
        if known.unwrap_or_default() == chosen {
            return;
        }
        let blocks = BlockStore::new(self.cache.clone(), chosen);
        let before = match chosen.is_shared() {
            true => self.own.write().remove(&index),
            false => self.own.write().insert(index, (chosen, blocks)),
        };
        // Dropped without the lock: giving memory back may start reads.
        drop(before);
    }

    /// Reads the leaves of an index from this shelf from here on, once they exist there.
    pub fn set_shelf(&self, index: i64, shelf: &Shelf) {
        let mut shelves = self.shelves.write();
        match shelf {
            Shelf::File => shelves.remove(&index),
            other => shelves.insert(index, other.clone()),
        };
    }

    /// Elfs that were opened so far, one for each question to a stretch.
    pub fn query_count(&self) -> u64 {
        self.query_count.load(Ordering::Relaxed)
    }

    /// The Elf of a stretch, to be asked anything where it lies: see [`Self::open_for`].
    ///
    /// # Errors
    /// The same.
    pub async fn open(
        &self,
        file: &Arc<IndexFile>,
        stretch_idx: usize,
    ) -> Result<OpenElf, Unavailable> {
        self.open_for(file, stretch_idx, Asked::ANYTHING).await
    }

    /// The Elf of a stretch, to be asked a question where it lies, and to read rows back that it found. Its head, or
    /// the upper levels of it, are in memory from here on; its blocks are read as queries need them. Made for each
    /// query.
    ///
    /// # Errors
    /// When the head, or what the question needs of it, has no room in memory or is damaged.
    pub async fn open_for(
        &self,
        file: &Arc<IndexFile>,
        stretch_idx: usize,
        asked: Asked<'_>,
    ) -> Result<OpenElf, Unavailable> {
        if let Some(shelf) = self.shelves.read().get(&file.index()) {
            making::begin(file, shelf);
        }
        let stretch = &file.stretches[stretch_idx];
        let (blocks, cache) = (self.blocks_of(file.index()), &self.cache);
        let levels = blocks.policy().levels();
        let head = self.heads.get(file, stretch, asked, levels).await?;
        choice::begin(file, &self.heads, &blocks);
        self.query_count.fetch_add(1, Ordering::Relaxed);
        Ok(OpenElf::new(
            file,
            stretch_idx,
            asked.weight,
            head,
            &blocks,
            cache,
        ))
    }

    /// Memory of the budget that cannot be refused.
    pub fn hold(&self, bytes: u64) -> Reservation {
        Reservation::reserve(&self.cache, bytes)
    }
}

impl KeepsElfs for ElfStore {
    fn forget(&self, index: i64, stretches: &[Stretch]) {
        let own = self.blocks_of(index);
        for stretch in stretches {
            self.heads.forget(stretch);
            self.shared.forget(stretch.key);
            own.forget(stretch.key);
        }
    }
}
