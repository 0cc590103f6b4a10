//! Part of the pages by what they are worth, the others by their use.

use hotshelf_cache::policy::Slot;

use super::queues::Sieve;
use super::ranked::ByWorth;
use super::{BlockPolicy, PageId};

/// Of how many pages one stays for what it is worth.
const WORTH_PARTS: usize = 2;

/// A page that comes is among those that stay for their worth; the least of these goes over to the others when they are
/// too many.
#[derive(Default)]
pub(super) struct Split {
    by_worth: ByWorth,
    by_use: Sieve,
    /// Of each slot its page, and whether it stays for its worth.
    pages: Vec<Option<(PageId, bool)>>,
    worth_count: usize,
    count: usize,
}

impl Split {
    fn is_by_worth(&self, slot: Slot) -> Option<bool> {
        let page = self.pages.get(slot.idx())?.as_ref();
        page.map(|(_, is_by_worth)| *is_by_worth)
    }

    /// Lets pages go over until those that stay for their worth are not too many.
    fn balance(&mut self) {
        while WORTH_PARTS * self.worth_count > self.count.max(1)
            && self.count > 1
            && let Some(slot) = self.by_worth.victim()
        {
            self.by_worth.remove(slot);
            self.worth_count -= 1;
            if let Some((page, is_by_worth)) = &mut self.pages[slot.idx()] {
                *is_by_worth = false;
                self.by_use.insert(slot, *page, 0.0);
            }
        }
    }
}

impl BlockPolicy for Split {
    fn insert(&mut self, slot: Slot, page: PageId, worth: f64) {
        if self.pages.len() <= slot.idx() {
            self.pages.resize(slot.idx() + 1, None);
        }
        self.pages[slot.idx()] = Some((page, true));
        self.worth_count += 1;
        self.count += 1;
        self.by_worth.insert(slot, page, worth);
        self.balance();
    }

    fn grow(&mut self, slot: Slot, worth: f64) {
        if self.is_by_worth(slot) == Some(true) {
            self.by_worth.grow(slot, worth);
        }
    }

    fn hit(&mut self, slot: Slot) {
        if self.is_by_worth(slot) == Some(false) {
            self.by_use.hit(slot);
        }
    }

    fn victim(&mut self) -> Option<Slot> {
        self.by_use.victim().or_else(|| self.by_worth.victim())
    }

    fn remove(&mut self, slot: Slot) {
        let page = self.pages.get_mut(slot.idx()).and_then(Option::take);
        let Some((_, is_by_worth)) = page else {
            return;
        };
        self.count -= 1;
        if is_by_worth {
            self.worth_count -= 1;
            self.by_worth.remove(slot);
        } else {
            self.by_use.remove(slot);
        }
        self.balance();
    }
}
