//! Leaf blocks of Elfs in memory, by page, on the budget. A policy decides which stay; others that need memory may take
//! them ([`Lender`]), by what they save.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use hotshelf_cache::model::{ItemClass, ItemUse};
use hotshelf_cache::policy::Slot;
use hotshelf_cache::{CacheManager, Ledger, Lender, MissCost, Rung};
use hotshelf_elf::layout::packed::{BlockReads, ElfHead, Frame, Paging};
use parking_lot::Mutex;

use super::IndexCache;
use super::file::Stretch;
use super::policy::{BlockPolicy, BlockPolicyKind, PageId};

/// Blocks take at most one part in this many of the budget.
const BUDGET_SHARE: u64 = 2;
/// The uses of fewer pages than this say little about what others of their Elf would save.
const PAGES_TO_JUDGE_BY: u64 = 64;
/// What finding and judging a page takes besides its blocks, in bytes.
const PAGE_OVERHEAD_BYTES: u64 = 96;

/// A page that was read, to be kept if the policy wants it.
#[derive(Debug)]
pub(crate) struct ReadPage {
    pub page: u32,
    /// What was read.
    pub frame: Arc<Frame>,
    /// How likely a look-up of a random row reads it, per byte.
    pub worth: f64,
    /// How many columns lead to its first rows.
    pub level: usize,
}

impl ReadPage {
    /// Some blocks of a page of an Elf.
    pub fn new(head: &ElfHead, page: u32, frame: Frame) -> Self {
        Self {
            page,
            worth: head.share_of_rows(page, frame.present()) / frame.size_bytes() as f64,
            level: head.level_of_page(page),
            frame: Arc::new(frame),
        }
    }
}

/// The blocks in memory: those of all indexes of a database, or of one that has a policy or a limit of its own.
pub struct BlockStore {
    cache: Arc<CacheManager>,
    kind: BlockPolicyKind,
    kept: Mutex<KeptBlock>,
    /// Uses of the pages of each Elf, and what an access to the shelf took.
    ledger: Ledger,
    /// Index files of which a static choice is being read, or was.
    chosen_of: Mutex<HashSet<u64>>,
}

struct KeptBlock {
    policy: Box<dyn BlockPolicy>,
    by_page: HashMap<PageId, Slot>,
    slots: Vec<Option<KeptPage>>,
    free: Vec<Slot>,
    /// Charged bytes of all pages, and of each Elf's.
    bytes: u64,
    stretch_bytes: HashMap<u64, u64>,
    limit_bytes: Option<u64>,
    reads: BlockReads,
    evict_count: u64,
}

struct KeptPage {
    id: PageId,
    frame: Arc<Frame>,
    bytes: u64,
}

/// What the blocks in memory are, and what was done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockStats {
    /// The policy.
    pub policy: BlockPolicyKind,
    /// Bytes of the blocks in memory, with what finding them takes.
    pub held_bytes: u64,
    /// Pages of which blocks are in memory.
    pub page_count: u64,
    /// Look-ups, and where their blocks came from.
    pub reads: BlockReads,
    /// Pages that made room for others, or gave their memory to others.
    pub evict_count: u64,
}

fn charge_of(frame: &Frame) -> u64 {
    frame.size_bytes() + PAGE_OVERHEAD_BYTES
}

impl KeptBlock {
    fn new(kind: BlockPolicyKind) -> Self {
        Self {
            policy: kind.build(),
            by_page: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            stretch_bytes: HashMap::new(),
            limit_bytes: None,
            reads: BlockReads::default(),
            evict_count: 0,
        }
    }

    fn insert(&mut self, page: KeptPage, worth: f64) {
        let slot = self.free.pop().unwrap_or(Slot(self.slots.len() as u32));
        if slot.idx() == self.slots.len() {
            self.slots.push(None);
        }
        self.bytes += page.bytes;
        *self.stretch_bytes.entry(page.id.stretch).or_default() += page.bytes;
        self.by_page.insert(page.id, slot);
        self.policy.insert(slot, page.id, worth);
        self.slots[slot.idx()] = Some(page);
    }

    /// Joins a page that is in memory with more of its blocks; returns what was there before.
    fn grow(
        &mut self,
        id: &PageId,
        read: &Frame,
        worth: f64,
        paging: Paging,
    ) -> Option<Arc<Frame>> {
        let slot = *self.by_page.get(id)?;
        let page = self.slots.get_mut(slot.idx())?.as_mut()?;
        let joined = Arc::new(page.frame.joined(read, paging));
        let (before, after) = (page.bytes, charge_of(&joined));
        page.bytes = after;
        let old = std::mem::replace(&mut page.frame, joined);
        self.bytes = self.bytes - before + after;
        let of_stretch = self.stretch_bytes.entry(id.stretch).or_default();
        *of_stretch = *of_stretch - before + after;
        self.policy.grow(slot, worth);
        Some(old)
    }

    /// Copies a page to memory whose blocks are searched where they lie, if it stays.
    fn hold(&mut self, id: &PageId, paging: Paging) {
        let slot = self.by_page.get(id).copied();
        let page = slot.and_then(|slot| self.slots.get_mut(slot.idx())?.as_mut());
        if let Some(page) = page
            && let Some(copied) = page.frame.copied(paging)
        {
            page.frame = Arc::new(copied);
        }
    }

    /// Takes a page out of everything but the policy.
    fn take(&mut self, slot: Slot) -> Option<KeptPage> {
        let page = self.slots.get_mut(slot.idx())?.take()?;
        self.by_page.remove(&page.id);
        self.free.push(slot);
        self.bytes -= page.bytes;
        if let Some(bytes) = self.stretch_bytes.get_mut(&page.id.stretch) {
            *bytes -= page.bytes;
        }
        Some(page)
    }

    fn remove(&mut self, slot: Slot) -> Option<KeptPage> {
        self.policy.remove(slot);
        self.take(slot)
    }

    fn remove_victim(&mut self) -> Option<KeptPage> {
        let slot = self.policy.victim()?;
        self.evict_count += 1;
        self.policy.evict(slot);
        self.take(slot)
    }

    /// The page that the policy would drop next.
    fn victim(&mut self) -> Option<&KeptPage> {
        let slot = self.policy.victim()?;
        self.slots.get(slot.idx())?.as_ref()
    }

    fn held_of(&self, stretch: u64) -> u64 {
        self.stretch_bytes.get(&stretch).copied().unwrap_or(0)
    }
}

impl BlockStore {
    /// Blocks on the budget of this cache, which lends their memory to others, with the policy and the limit that the
    /// user chose.
    pub fn new(cache: Arc<CacheManager>, chosen: IndexCache) -> Arc<Self> {
        let kind = chosen.policy.unwrap_or_default();
        let kept = KeptBlock {
            limit_bytes: chosen.limit_bytes,
            ..KeptBlock::new(kind)
        };
        let blocks = Arc::new(Self {
            cache: cache.clone(),
            kind,
            kept: Mutex::new(kept),
            ledger: cache.ledger(ItemClass::IndexBlock),
            chosen_of: Mutex::default(),
        });
        let lender: Arc<dyn Lender> = blocks.clone();
        cache.add_lender(Arc::downgrade(&lender));
        blocks
    }

    /// Bytes that blocks may take: half of the budget, or what was set if that is less.
    pub fn limit_bytes(&self) -> u64 {
        let own = self.kept.lock().limit_bytes.unwrap_or(u64::MAX);
        own.min(self.cache.budget().limit_bytes() / BUDGET_SHARE)
    }

    /// Which pages stay.
    pub fn policy(&self) -> BlockPolicyKind {
        self.kind
    }

    /// Whether a static choice of the blocks of a file is still to be read; from here on it is not. The file is named
    /// by its first stretch.
    pub(crate) fn begin_choice(&self, first_stretch: u64) -> bool {
        self.kind.is_static() && self.chosen_of.lock().insert(first_stretch)
    }

    /// What is in memory, and what was done.
    pub fn stats(&self) -> BlockStats {
        let kept = self.kept.lock();
        BlockStats {
            policy: self.kind,
            held_bytes: kept.bytes,
            page_count: kept.by_page.len() as u64,
            reads: kept.reads,
            evict_count: kept.evict_count,
        }
    }

    /// Bytes of an Elf's blocks in memory.
    pub fn held_bytes_of(&self, stretch: u64) -> u64 {
        self.kept.lock().held_of(stretch)
    }

    /// Counts what a query read.
    pub fn count(&self, reads: BlockReads) {
        self.kept.lock().reads += reads;
    }

    /// What is in memory of some pages of an Elf. Pages with blocks that are wanted count as used by a query of this
    /// weight.
    pub(crate) fn find(
        &self,
        stretch: u64,
        pages: &[(u32, u16)],
        weight: f64,
    ) -> Vec<Option<Arc<Frame>>> {
        let mut kept = self.kept.lock();
        let mut hit_count = 0u32;
        let frames = pages.iter().map(|(page, wanted)| {
            let id = PageId {
                stretch,
                page: *page,
            };
            let slot = *kept.by_page.get(&id)?;
            let frame = kept.slots[slot.idx()].as_ref()?.frame.clone();
            if frame.present() & wanted != 0 {
                kept.policy.hit(slot);
                hit_count += 1;
            }
            Some(frame)
        });
        let frames = frames.collect();
        drop(kept);
        if hit_count > 0 {
            let item = Stretch::blocks_item_of(stretch);
            self.ledger.hit(item, weight * f64::from(hit_count));
        }
        frames
    }

    /// How many of some pages of an Elf would have to be read for their blocks. That is not a use.
    pub(crate) fn missing_count(&self, stretch: u64, pages: &[(u32, u16)]) -> usize {
        let kept = self.kept.lock();
        let is_missing = |(page, wanted): &&(u32, u16)| {
            let id = PageId {
                stretch,
                page: *page,
            };
            let slot = kept.by_page.get(&id);
            let held = slot.and_then(|slot| kept.slots[slot.idx()].as_ref());
            wanted & !held.map_or(0, |held| held.frame.present()) != 0
        };
        pages.iter().filter(is_missing).count()
    }

    /// Keeps pages that were read, if the policy wants them: in more memory if they save more there than what would go,
    /// else in place of other pages. Blocks of the same page that are in memory stay with those that were read.
    /// `access` is the cost of one access to the shelf.
    pub(crate) fn keep(&self, of: &Stretch, paging: Paging, read: Vec<ReadPage>, access: MissCost) {
        let stretch = of.key;
        let read: Vec<ReadPage> = match self.kind.levels() {
            Some(levels) => read
                .into_iter()
                .filter(|page| page.level < levels)
                .collect(),
            None => read,
        };
        let bytes: u64 = read.iter().map(|read| charge_of(&read.frame)).sum();
        let mut limit_bytes = self.limit_bytes();
        if bytes > limit_bytes || bytes == 0 {
            return;
        }
        // Without the lock: the memory may come from here.
        let saved = self.density_of_more(stretch, bytes, read.len(), access);
        let is_reserved = self.cache.try_reserve_worth(bytes, saved);
        let reserved_bytes = if is_reserved { bytes } else { 0 };
        let (mut gone, mut joined) = (Vec::new(), Vec::new());
        let mut kept = self.kept.lock();
        let before = kept.bytes;
        if !is_reserved {
            limit_bytes = limit_bytes.min(before);
        }
        let lying = read.iter().filter(|read| read.frame.is_lying());
        let lying: Vec<u32> = lying.map(|read| read.page).collect();
        for ReadPage {
            page, frame, worth, ..
        } in read
        {
            let id = PageId { stretch, page };
            match kept.grow(&id, &frame, worth, paging) {
                Some(old) => joined.push(old),
                None => {
                    let bytes = charge_of(&frame);
                    kept.insert(KeptPage { id, frame, bytes }, worth);
                }
            }
        }
        while kept.bytes > limit_bytes {
            let Some(page) = kept.remove_victim() else {
                break;
            };
            gone.push(page);
        }
        // Only now: most policies take pages in by letting others go, which may be those just read.
        for page in lying {
            kept.hold(&PageId { stretch, page }, paging);
        }
        let after = kept.bytes;
        let held_bytes = kept.held_of(stretch);
        drop(kept);
        drop(joined);
        // Of pages that were joined less is held than was reserved.
        self.cache
            .budget()
            .release_operator((before + reserved_bytes).saturating_sub(after));
        let no_use = MissCost {
            weight: 0.0,
            ..access
        };
        self.ledger.miss(of.blocks_item(), held_bytes, no_use);
        self.note_gone(&gone);
    }

    /// What further pages of an Elf would save per byte and second: what those in memory do, once there are enough.
    fn density_of_more(&self, stretch: u64, bytes: u64, pages: usize, access: MissCost) -> f64 {
        let held_bytes = self.held_bytes_of(stretch);
        let page_bytes = bytes / pages.max(1) as u64;
        match held_bytes < PAGES_TO_JUDGE_BY * page_bytes {
            true => Ledger::density_of_new(page_bytes, access),
            false => self.ledger.density(Stretch::blocks_item_of(stretch)),
        }
    }

    /// Notes how much is still held of the Elfs that these pages belong to.
    fn note_gone(&self, gone: &[KeptPage]) {
        let mut stretches: Vec<u64> = gone.iter().map(|page| page.id.stretch).collect();
        stretches.sort_unstable();
        stretches.dedup();
        for stretch in stretches {
            let item = Stretch::blocks_item_of(stretch);
            match self.held_bytes_of(stretch) {
                0 => self.ledger.gave_back(item),
                held_bytes => self.ledger.resize(item, held_bytes),
            }
        }
    }

    fn release(&self, gone: Vec<KeptPage>) {
        let bytes = gone.iter().map(|page| page.bytes).sum();
        self.note_gone(&gone);
        // Giving memory back may start reads.
        drop(gone);
        self.cache.budget().release_operator(bytes);
    }

    /// Forgets the blocks of an Elf whose file is going.
    pub(crate) fn forget(&self, stretch: u64) {
        self.chosen_of.lock().remove(&stretch);
        let mut kept = self.kept.lock();
        if kept.stretch_bytes.contains_key(&stretch) {
            let pages = kept.by_page.iter().filter(|(id, _)| id.stretch == stretch);
            let slots: Vec<Slot> = pages.map(|(_, slot)| *slot).collect();
            let gone = slots.into_iter().filter_map(|slot| kept.remove(slot));
            let gone = gone.collect();
            kept.stretch_bytes.remove(&stretch);
            drop(kept);
            self.release(gone);
        }
        self.ledger.forget(Stretch::blocks_item_of(stretch));
    }
}

impl Lender for BlockStore {
    fn class(&self) -> ItemClass {
        ItemClass::IndexBlock
    }

    fn lent_bytes(&self) -> u64 {
        self.kept.lock().bytes
    }

    fn uses(&self) -> Vec<ItemUse> {
        self.ledger.uses()
    }

    fn cheapest(&self) -> Option<Rung> {
        let mut kept = self.kept.lock();
        let page = kept.victim()?;
        Some(Rung {
            bytes: page.bytes,
            saved_s_per_byte_s: self
                .ledger
                .density(Stretch::blocks_item_of(page.id.stretch)),
        })
    }

    fn give_back(&self) -> bool {
        let Some(page) = self.kept.lock().remove_victim() else {
            return false;
        };
        self.release(vec![page]);
        true
    }
}

impl Drop for BlockStore {
    fn drop(&mut self) {
        self.cache.budget().release_operator(self.kept.lock().bytes);
    }
}

impl fmt::Debug for BlockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockStore")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
