//! Heads of Elfs in memory, on the budget: read when first asked, and dropped when others need the memory more, down to
//! their upper levels first.

use std::sync::Arc;
use std::time::Instant;

use hotshelf_cache::model::{ItemClass, ItemUse};
use hotshelf_cache::{CacheManager, Ledger, Lender, MissCost, Rung};
use hotshelf_elf::keys::QueryBox;
use hotshelf_elf::layout::packed::{ElfHead, HeadPlaces, UpperHead};
use parking_lot::Mutex;

use super::file::{IndexFile, Stretch};
use super::unavailable::Unavailable;
use crate::recent::Recent;
use crate::reservation::Reservation;

/// Memory for the pieces of a head while its upper levels are read.
const MAKING_BYTES: u64 = 128 << 10;
/// What a question reads of a head of which the upper levels are in memory, about.
const PART_BYTES: u64 = 64 << 10;
/// Upper levels take about one part in this many of a head.
const UPPER_SHARE: u64 = 16;

/// What an Elf is asked, and the weight of the query that asks. Without a query and keys it may be asked anything.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The box that is searched.
    pub query: Option<&'a QueryBox>,
    /// Keys that are looked up, one after the other.
    pub keys: Option<&'a [u32]>,
    /// 1 is normal.
    pub weight: f64,
}

impl Asked<'_> {
    /// Anything.
    pub const ANYTHING: Self = Self {
        query: None,
        keys: None,
        weight: 1.0,
    };
}

/// What a question would read of a head before its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnreadHead {
    /// How much, about.
    pub bytes: u64,
    /// Reads that wait for each other, about.
    pub depth: u64,
}

/// A head in memory: all of it, or what one question needs.
pub(crate) struct LoadedHead {
    pub head: Arc<ElfHead>,
    /// If it is whole.
    whole: Option<WholeHead>,
    memory: Reservation,
}

impl LoadedHead {
    /// Whether a whole head has no more levels than are to stay.
    fn is_for(&self, levels: Option<usize>) -> bool {
        let level_count = self.whole.as_ref().map_or(0, |whole| whole.level_count);
        levels.is_none_or(|levels| levels >= level_count)
    }
}

/// What is known about a whole head: it would take a walk to find its levels.
struct WholeHead {
    level_count: usize,
    places: HeadPlaces,
}

/// The upper levels of a head in memory.
struct LoadedUpper {
    upper: UpperHead,
    memory: Reservation,
}

impl LoadedUpper {
    /// Whether it has the levels that are to stay.
    fn is_for(&self, levels: Option<usize>) -> bool {
        levels.is_none_or(|levels| levels == self.upper.level_count())
    }
}

/// The heads in memory. One for each database.
pub(crate) struct HeadStore {
    cache: Arc<CacheManager>,
    whole: Mutex<Recent<LoadedHead>>,
    /// Of heads that are not there whole.
    upper: Mutex<Recent<LoadedUpper>>,
    /// Uses of heads, and what reading them took.
    ledger: Ledger,
}

impl HeadStore {
    /// Heads on the budget of this cache, which lends the memory of idle ones to others.
    pub fn new(cache: &Arc<CacheManager>) -> Arc<Self> {
        let heads = Arc::new(Self {
            cache: cache.clone(),
            whole: Mutex::default(),
            upper: Mutex::default(),
            ledger: cache.ledger(ItemClass::IndexBlock),
        });
        let lender: Arc<dyn Lender> = heads.clone();
        cache.add_lender(Arc::downgrade(&lender));
        heads
    }

    /// Bytes of the heads in memory that are not in use.
    pub fn idle_bytes(&self) -> u64 {
        let whole = self.whole.lock();
        let bytes: u64 = whole.idle().map(|head| head.memory.bytes()).sum();
        drop(whole);
        let upper = self.upper.lock();
        bytes + upper.idle().map(|upper| upper.memory.bytes()).sum::<u64>()
    }

    /// The head of a stretch's Elf for a question: from memory, or by one read that all requests share. Where there is
    /// no memory for all of it, or only this many `levels` are to stay, what the question needs is read for it alone.
    pub async fn get(
        &self,
        file: &IndexFile,
        stretch: &Stretch,
        asked: Asked<'_>,
        levels: Option<usize>,
    ) -> Result<Arc<LoadedHead>, Unavailable> {
        if let Some(head) = self.find(stretch, asked.weight, levels) {
            return Ok(head);
        }
        let reading = stretch.reading.lock().await;
        if let Some(head) = self.find(stretch, asked.weight, levels) {
            return Ok(head);
        }
        if levels.is_none()
            && let Some(head) = self.load(file, stretch, asked.weight).await?
        {
            return Ok(head);
        }
        let upper = match self.find_upper(stretch, levels) {
            Some(upper) => Some(upper),
            None => self.load_upper(file, stretch, asked.weight, levels).await?,
        };
        let Some(upper) = upper else {
            // It has no levels to leave out.
            let needed_bytes = stretch.head_memory_bytes();
            let head = self.load(file, stretch, asked.weight).await?;
            return head.ok_or(Unavailable::Memory { needed_bytes });
        };
        drop(reading);
        self.load_part(file, stretch, &upper, asked).await
    }

    /// Reads a head that is to stay; `None` if there is no memory for it.
    async fn load(
        &self,
        file: &IndexFile,
        stretch: &Stretch,
        weight: f64,
    ) -> Result<Option<Arc<LoadedHead>>, Unavailable> {
        let needed_bytes = stretch.head_memory_bytes();
        let Some(memory) = Reservation::try_reserve(&self.cache, needed_bytes) else {
            return Ok(None);
        };
        let begun = Instant::now();
        let read = file.read_head(stretch).await;
        let (head, places) = read.map_err(Unavailable::damaged)?;
        self.note_miss(stretch, needed_bytes, begun, weight);
        let whole = WholeHead {
            level_count: head.head_level_count(),
            places,
        };
        let head = Arc::new(LoadedHead {
            head: Arc::new(head),
            whole: Some(whole),
            memory,
        });
        // Dropped without the lock: giving memory back may start reads.
        let upper = self.upper.lock().remove(stretch.key);
        drop(upper);
        Ok(Some(self.whole.lock().insert(stretch.key, head)))
    }

    /// Reads the upper levels of a head, which are to stay without the others; `None` if there are no others.
    async fn load_upper(
        &self,
        file: &IndexFile,
        stretch: &Stretch,
        weight: f64,
        levels: Option<usize>,
    ) -> Result<Option<Arc<LoadedUpper>>, Unavailable> {
        let needed_bytes = stretch.head_memory_bytes();
        let making_bytes = needed_bytes / UPPER_SHARE + MAKING_BYTES.min(needed_bytes / 4);
        let memory = Reservation::try_reserve(&self.cache, making_bytes)
            .ok_or(Unavailable::Memory { needed_bytes })?;
        let begun = Instant::now();
        let read = file.read_upper(stretch, levels).await;
        let Some(upper) = read.map_err(Unavailable::damaged)? else {
            return Ok(None);
        };
        self.note_miss(stretch, upper.size_bytes(), begun, weight);
        let whole = self.whole.lock().remove(stretch.key);
        drop(whole);
        Ok(Some(self.keep_upper(stretch.key, upper, || drop(memory))))
    }

    /// Keeps upper levels, in memory of their own in place of what `release` gives back.
    fn keep_upper(&self, key: u64, upper: UpperHead, release: impl FnOnce()) -> Arc<LoadedUpper> {
        let memory = Reservation::take_over(&self.cache, upper.size_bytes(), release);
        let upper = Arc::new(LoadedUpper { upper, memory });
        self.upper.lock().insert(key, upper)
    }

    /// Reads what a question needs beside the upper levels.
    async fn load_part(
        &self,
        file: &IndexFile,
        stretch: &Stretch,
        upper: &LoadedUpper,
        asked: Asked<'_>,
    ) -> Result<Arc<LoadedHead>, Unavailable> {
        let needed_bytes = stretch.head_memory_bytes();
        if asked.query.is_none() && asked.keys.is_none() {
            return Err(Unavailable::Memory { needed_bytes });
        }
        let keys = asked.keys.unwrap_or_default();
        let part = upper.upper.part_for(asked.query, keys);
        let part = part.map_err(|error| Unavailable::damaged(error.into()))?;
        // They are here twice while they are put together.
        let needed_bytes = 2 * part.head_bytes;
        let memory = Reservation::try_reserve(&self.cache, needed_bytes)
            .ok_or(Unavailable::Memory { needed_bytes })?;
        let begun = Instant::now();
        let head = file.read_head_part(stretch, &upper.upper, &part).await;
        let head = Arc::new(head.map_err(Unavailable::damaged)?);
        self.note_miss(stretch, upper.memory.bytes(), begun, asked.weight);
        let memory = Reservation::take_over(&self.cache, head.head_bytes(), || drop(memory));
        Ok(Arc::new(LoadedHead {
            head,
            whole: None,
            memory,
        }))
    }

    fn note_miss(&self, stretch: &Stretch, held_bytes: u64, begun: Instant, weight: f64) {
        let cost = MissCost {
            seconds: begun.elapsed().as_secs_f64(),
            weight,
        };
        self.ledger.miss(stretch.head_item(), held_bytes, cost);
    }

    fn find(
        &self,
        stretch: &Stretch,
        weight: f64,
        levels: Option<usize>,
    ) -> Option<Arc<LoadedHead>> {
        let found = self.known(stretch).filter(|head| head.is_for(levels))?;
        self.ledger.hit(stretch.head_item(), weight);
        Some(found)
    }

    fn find_upper(&self, stretch: &Stretch, levels: Option<usize>) -> Option<Arc<LoadedUpper>> {
        let found = self.upper.lock().find(stretch.key)?;
        if !found.is_for(levels) {
            let other = self.upper.lock().remove(stretch.key);
            drop(other);
            return None;
        }
        Some(found)
    }

    /// The head of a stretch's Elf, if it is in memory. That is not a use.
    pub fn known(&self, stretch: &Stretch) -> Option<Arc<LoadedHead>> {
        self.whole.lock().find(stretch.key)
    }

    /// Whether the head of a stretch's Elf is in memory.
    pub fn is_resident(&self, stretch: &Stretch) -> bool {
        self.whole.lock().contains(stretch.key)
    }

    /// Levels of the head of a stretch's Elf that are in memory alone, without the others.
    pub fn upper_level_count(&self, stretch: &Stretch) -> Option<usize> {
        let upper = self.upper.lock().find(stretch.key);
        upper.map(|upper| upper.upper.level_count())
    }

    /// What a question to a stretch's Elf would read of the head, of which this many `levels` are to stay.
    pub fn unread(&self, stretch: &Stretch, levels: Option<usize>) -> UnreadHead {
        let head_bytes = stretch.head_bytes();
        let part_bytes = PART_BYTES.min(head_bytes);
        if self.known(stretch).is_some_and(|head| head.is_for(levels)) {
            return UnreadHead::default();
        }
        let upper = self.upper.lock().find(stretch.key);
        if upper.is_some_and(|upper| upper.is_for(levels)) {
            return UnreadHead {
                bytes: part_bytes,
                depth: 1,
            };
        }
        let budget = self.cache.budget();
        if levels.is_none() && budget.has_room_for(stretch.head_memory_bytes()) {
            return UnreadHead {
                bytes: head_bytes,
                depth: 1,
            };
        }
        // For where levels begin, for the upper ones, and for the question.
        UnreadHead {
            bytes: 2 * head_bytes + part_bytes,
            depth: UpperHead::read_depth(head_bytes) + 1,
        }
    }

    /// Forgets the head of an Elf whose file is going.
    pub fn forget(&self, stretch: &Stretch) {
        // Dropped without the lock: giving memory back may start reads.
        let head = self.whole.lock().remove(stretch.key);
        let upper = self.upper.lock().remove(stretch.key);
        drop((head, upper));
        self.ledger.forget(stretch.head_item());
    }

    /// Keeps the upper levels of a head that goes, where it has others.
    fn shrink(&self, key: u64, head: Arc<LoadedHead>) {
        let item = Stretch::head_item_of(key);
        let whole = head.whole.as_ref();
        let upper = whole.and_then(|whole| UpperHead::of(&head.head, &whole.places, None));
        match upper {
            Some(upper) => {
                self.ledger.resize(item, upper.size_bytes());
                self.keep_upper(key, upper, || drop(head));
            }
            None => self.ledger.gave_back(item),
        }
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
        let rung = |key: u64, bytes: u64| Rung {
            bytes,
            saved_s_per_byte_s: self.ledger.density(Stretch::head_item_of(key)),
        };
        let whole = self.whole.lock();
        if let Some((key, head)) = whole.oldest() {
            let bytes = head.memory.bytes();
            return Some(rung(key, bytes - bytes / UPPER_SHARE));
        }
        drop(whole);
        let upper = self.upper.lock();
        let (key, upper) = upper.oldest()?;
        Some(rung(key, upper.memory.bytes()))
    }

    /// Upper levels stay until no whole head is idle.
    fn give_back(&self) -> bool {
        let oldest = self.whole.lock().take_oldest(1).pop();
        if let Some((key, head)) = oldest {
            self.shrink(key, head);
            return true;
        }
        let oldest = self.upper.lock().take_oldest(1);
        for (key, _) in &oldest {
            self.ledger.gave_back(Stretch::head_item_of(*key));
        }
        !oldest.is_empty()
    }
}
