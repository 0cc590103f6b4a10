//! Policies that keep pages in queues.

use hotshelf_cache::policy::{Ghosts, Slot, SlotList};

use super::{BlockPolicy, PageId};

/// What came first stays: the page that came last leaves.
#[derive(Default)]
pub(super) struct Naive {
    by_age: SlotList,
}

impl BlockPolicy for Naive {
    fn insert(&mut self, slot: Slot, _page: PageId, _worth: f64) {
        self.by_age.push_front(slot);
    }

    fn hit(&mut self, _slot: Slot) {}

    fn victim(&mut self) -> Option<Slot> {
        self.by_age.iter().next()
    }

    fn remove(&mut self, slot: Slot) {
        self.by_age.remove(slot);
    }
}

/// By recency.
#[derive(Default)]
pub(super) struct Lru {
    by_recency: SlotList,
}

impl BlockPolicy for Lru {
    fn insert(&mut self, slot: Slot, _page: PageId, _worth: f64) {
        self.by_recency.push_front(slot);
    }

    fn hit(&mut self, slot: Slot) {
        self.by_recency.move_to_front(slot);
    }

    fn victim(&mut self) -> Option<Slot> {
        self.by_recency.back()
    }

    fn remove(&mut self, slot: Slot) {
        self.by_recency.remove(slot);
    }
}

/// A queue whose hand moves from back to front, passes over what was used, and leaves it in place.
#[derive(Default)]
pub(super) struct Sieve {
    queue: SlotList,
    used: Vec<bool>,
    hand: Option<Slot>,
}

impl BlockPolicy for Sieve {
    fn insert(&mut self, slot: Slot, _page: PageId, _worth: f64) {
        if self.used.len() <= slot.idx() {
            self.used.resize(slot.idx() + 1, false);
        }
        self.used[slot.idx()] = false;
        self.queue.push_front(slot);
    }

    fn hit(&mut self, slot: Slot) {
        if let Some(used) = self.used.get_mut(slot.idx()) {
            *used = true;
        }
    }

    fn victim(&mut self) -> Option<Slot> {
        loop {
            let slot = self.hand.or_else(|| self.queue.back())?;
            if !std::mem::take(&mut self.used[slot.idx()]) {
                self.hand = Some(slot);
                return Some(slot);
            }
            self.hand = self.queue.before(slot);
        }
    }

    fn remove(&mut self, slot: Slot) {
        if self.hand == Some(slot) {
            self.hand = self.queue.before(slot);
        }
        self.queue.remove(slot);
    }
}

/// The ids of pages by their slots, and of those that left not long ago.
#[derive(Default)]
struct Known {
    pages: Vec<Option<PageId>>,
    ghosts: Ghosts<PageId>,
}

impl Known {
    /// Notes the page of a slot; says whether it was here not long ago.
    fn insert(&mut self, slot: Slot, page: PageId) -> bool {
        if self.pages.len() <= slot.idx() {
            self.pages.resize(slot.idx() + 1, None);
        }
        self.pages[slot.idx()] = Some(page);
        self.ghosts.take(page)
    }

    fn remove(&mut self, slot: Slot) -> Option<PageId> {
        self.pages.get_mut(slot.idx())?.take()
    }
}

/// Of how many pages at least one is in the first queue of 2Q before another leaves it.
const FIRST_PARTS: usize = 4;

/// 2Q (Johnson & Shasha, VLDB 1994): pages pass through a short queue; only those that are missed again soon after they
/// left it are kept by recency.
#[derive(Default)]
pub(super) struct TwoQueues {
    first: SlotList,
    by_recency: SlotList,
    known: Known,
}

impl BlockPolicy for TwoQueues {
    fn insert(&mut self, slot: Slot, page: PageId, _worth: f64) {
        match self.known.insert(slot, page) {
            true => self.by_recency.push_front(slot),
            false => self.first.push_front(slot),
        }
    }

    fn hit(&mut self, slot: Slot) {
        self.by_recency.move_to_front(slot);
    }

    fn victim(&mut self) -> Option<Slot> {
        let page_count = self.first.len() + self.by_recency.len();
        let is_first_full = FIRST_PARTS * self.first.len() >= page_count;
        let (one, other) = match is_first_full {
            true => (&self.first, &self.by_recency),
            false => (&self.by_recency, &self.first),
        };
        one.back().or_else(|| other.back())
    }

    fn evict(&mut self, slot: Slot) {
        let page_count = self.first.len() + self.by_recency.len();
        let page = self.known.remove(slot);
        if self.first.remove(slot)
            && let Some(page) = page
        {
            self.known.ghosts.push(page, page_count);
        }
        self.by_recency.remove(slot);
    }

    fn remove(&mut self, slot: Slot) {
        self.known.remove(slot);
        self.first.remove(slot);
        self.by_recency.remove(slot);
    }
}

/// Uses beyond this are not counted.
const USE_COUNT_MAX: u8 = 3;
/// Of how many pages at least one is in the small queue of S3-FIFO before another leaves it.
const SMALL_PARTS: usize = 10;

/// S3-FIFO (Yang et al., SOSP 2023): pages pass through a small queue and stay only if they were used there twice, or
/// are missed again soon.
#[derive(Default)]
pub(super) struct S3Fifo {
    small: SlotList,
    main: SlotList,
    use_counts: Vec<u8>,
    known: Known,
}

impl BlockPolicy for S3Fifo {
    fn insert(&mut self, slot: Slot, page: PageId, _worth: f64) {
        if self.use_counts.len() <= slot.idx() {
            self.use_counts.resize(slot.idx() + 1, 0);
        }
        self.use_counts[slot.idx()] = 0;
        match self.known.insert(slot, page) {
            true => self.main.push_front(slot),
            false => self.small.push_front(slot),
        }
    }

    fn hit(&mut self, slot: Slot) {
        if let Some(count) = self.use_counts.get_mut(slot.idx()) {
            *count = (*count + 1).min(USE_COUNT_MAX);
        }
    }

    fn victim(&mut self) -> Option<Slot> {
        loop {
            let page_count = self.small.len() + self.main.len();
            let is_small_full = SMALL_PARTS * self.small.len() >= page_count;
            if let Some(slot) = self.small.back()
                && (is_small_full || self.main.is_empty())
            {
                if self.use_counts[slot.idx()] <= 1 {
                    return Some(slot);
                }
                self.small.remove(slot);
                self.main.push_front(slot);
                self.use_counts[slot.idx()] = 0;
                continue;
            }
            let slot = self.main.back()?;
            match &mut self.use_counts[slot.idx()] {
                0 => return Some(slot),
                count => *count -= 1,
            }
            self.main.move_to_front(slot);
        }
    }

    fn evict(&mut self, slot: Slot) {
        let page_count = self.small.len() + self.main.len();
        let page = self.known.remove(slot);
        if self.small.remove(slot)
            && let Some(page) = page
        {
            self.known.ghosts.push(page, page_count);
        }
        self.main.remove(slot);
    }

    fn remove(&mut self, slot: Slot) {
        self.known.remove(slot);
        self.small.remove(slot);
        self.main.remove(slot);
    }
}
