//! Look-ups of build sides, kept for later queries that need the same. They are on the budget, are given back by what
//! they save, and are found only while the table has the files that they were made of.

mod recipe;
mod shelf;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use hotshelf_cache::model::{ItemClass, ItemUse};
use hotshelf_cache::{CacheManager, FileId, Ledger, Lender, MissCost, PolicyKind, Rung};
use hotshelf_store::index::file::Reservation;
use parking_lot::Mutex;

pub(crate) use recipe::{Recipe, Rows, Step};
pub(crate) use shelf::LookUpShelf;

/// Look-ups take at most one part in this many of the budget: the rest is the segments' and the operators'.
const BUDGET_SHARE: u64 = 8;
/// How many there may be: finding the one that saves least takes a look at each.
const COUNT_MAX: usize = 1024;

/// Recipes are not on the budget: those with long lists of values are not kept.
const RECIPE_BYTES_MAX: u64 = 8 << 10;

/// A look-up that could be kept.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub recipe: Recipe,
    pub bytes: u64,
    /// Of making it.
    pub cost: MissCost,
}

/// Something on the budget, until its last owner drops it.
pub(crate) struct OnBudget<T> {
    pub made: T,
    _memory: Reservation,
}

/// A look-up in memory, for later queries.
struct Kept {
    recipe: Recipe,
    /// An [`OnBudget`].
    one: Arc<dyn Any + Send + Sync>,
    bytes: u64,
}

impl Kept {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.one) == 1
    }

    fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<OnBudget<T>>> {
        self.one.clone().downcast().ok()
    }
}

/// Look-ups that are not kept any more. To be dropped without a lock: giving memory back may start reads.
#[must_use]
pub(crate) struct Outdated(#[allow(dead_code, reason = "dropping it is its use")] Vec<Kept>);

#[derive(Default)]
struct Shelf {
    by_number: HashMap<u64, Kept>,
    /// The files of each table as it is now.
    files: HashMap<i64, Vec<FileId>>,
}

/// The look-ups in memory. One for each database.
pub(crate) struct KeptLookUps {
    cache: Arc<CacheManager>,
    shelf: Mutex<Shelf>,
    /// Uses of look-ups, and what making them took.
    ledger: Ledger,
}

impl KeptLookUps {
    /// Look-ups on the budget of this cache, which lends the memory of idle ones to others.
    pub fn new(cache: &Arc<CacheManager>) -> Arc<Self> {
        let look_ups = Arc::new(Self {
            cache: cache.clone(),
            shelf: Mutex::default(),
            ledger: cache.ledger(ItemClass::LookUp),
        });
        let lender: Arc<dyn Lender> = look_ups.clone();
        cache.add_lender(Arc::downgrade(&lender));
        look_ups
    }

    /// A table has these files from here on. What was made of others is not kept any more.
    pub fn note_table(&self, table: i64, files: Vec<FileId>) -> Outdated {
        let mut shelf = self.shelf.lock();
        let outdated = match shelf.files.get(&table) {
            Some(known) if *known == files => Vec::new(),
            _ => self.take_out(&mut shelf, |recipe| recipe.rows.table == table),
        };
        shelf.files.insert(table, files);
        Outdated(outdated)
    }

    /// A table is gone.
    pub fn forget_table(&self, table: i64) -> Outdated {
        let mut shelf = self.shelf.lock();
        shelf.files.remove(&table);
        Outdated(self.take_out(&mut shelf, |recipe| recipe.rows.table == table))
    }

    /// Takes out the look-ups of recipes for which `which` holds, in use or not, for good.
    fn take_out(&self, shelf: &mut Shelf, which: impl Fn(&Recipe) -> bool) -> Vec<Kept> {
        let gone = shelf.by_number.extract_if(|_, kept| which(&kept.recipe));
        let gone = gone.map(|(number, kept)| {
            self.ledger.forget(number);
            kept
        });
        gone.collect()
    }

    /// The look-up of a recipe, if it is kept. That is a use by a query of this weight; without weight it leaves no
    /// trace.
    pub fn find<T: Send + Sync + 'static>(
        &self,
        recipe: &Recipe,
        weight: f64,
    ) -> Option<Arc<OnBudget<T>>> {
        let number = recipe.number();
        let shelf = self.shelf.lock();
        let kept = shelf.by_number.get(&number)?;
        let found = kept.get().filter(|_| kept.recipe == *recipe)?;
        self.ledger.hit(number, weight);
        Some(found)
    }

    /// What it took to make a look-up, in nanoseconds; `None` if that was never done.
    pub fn making_ns(&self, recipe: &Recipe) -> Option<f64> {
        let seconds = self.ledger.miss_s(recipe.number())?;
        Some(seconds * 1e9)
    }

    /// Keeps what was made by a recipe, if it saves more than what would go for it. `release` returns the memory that
    /// the query holds for it.
    ///
    /// # Errors
    /// What was made, if it is not worth its memory, or its table has changed.
    pub fn offer<T: Send + Sync + 'static>(
        &self,
        offer: Offer,
        made: T,
        release: impl FnOnce(),
    ) -> Result<Arc<OnBudget<T>>, T> {
        let number = offer.recipe.number();
        if !self.is_worth_keeping(number, &offer) {
            return Err(made);
        }
        let Offer { recipe, bytes, .. } = offer;
        let memory = Reservation::take_over(&self.cache, bytes, release);
        let one = Arc::new(OnBudget {
            made,
            _memory: memory,
        });
        let mut shelf = self.shelf.lock();
        if !recipe.is_current(&shelf.files) {
            self.ledger.forget(number);
            return Ok(one);
        }
        let kept = shelf.by_number.get(&number);
        let known = kept.filter(|kept| kept.recipe == recipe);
        if let Some(known) = known.and_then(Kept::get) {
            drop(shelf);
            return Ok(known);
        }
        self.ledger.took_back(number);
        let kept = Kept {
            recipe,
            bytes,
            one: one.clone(),
        };
        let former = shelf.by_number.insert(number, kept);
        drop(shelf);
        drop(former);
        Ok(one)
    }

    /// Whether a look-up of this many bytes could be kept at all.
    pub fn may_be_kept(&self, bytes: u64) -> bool {
        bytes <= self.share_bytes() && self.cache.policy() != PolicyKind::None
    }

    /// What look-ups may take together.
    fn share_bytes(&self) -> u64 {
        self.cache.budget().limit_bytes() / BUDGET_SHARE
    }

    /// Counts the use and its cost. Whether the look-up should be kept; then there is room in the share of look-ups.
    fn is_worth_keeping(&self, number: u64, offer: &Offer) -> bool {
        let Offer { recipe, bytes, .. } = offer;
        if !self.may_be_kept(*bytes) || recipe.memory_bytes() > RECIPE_BYTES_MAX {
            return false;
        }
        let shelf = self.shelf.lock();
        if !recipe.is_current(&shelf.files) {
            return false;
        }
        self.ledger.miss(number, *bytes, offer.cost);
        if !shelf.by_number.contains_key(&number) {
            self.ledger.gave_back(number);
        }
        drop(shelf);
        let saved = self.ledger.density(number);
        self.cache.should_stay(*bytes, saved) && self.make_room(self.share_bytes(), *bytes, saved)
    }

    /// Gives look-ups back that save less than this per byte, until others take no more than the share with this one.
    fn make_room(&self, share: u64, bytes: u64, saved: f64) -> bool {
        loop {
            let shelf = self.shelf.lock();
            let held: u64 = shelf.by_number.values().map(|kept| kept.bytes).sum();
            if held + bytes <= share && shelf.by_number.len() < COUNT_MAX {
                return true;
            }
            let least = self.least(&shelf);
            drop(shelf);
            if least.is_none_or(|(_, least)| least >= saved) || !self.give_back() {
                return false;
            }
        }
    }

    /// The idle look-up that saves least per byte, and how much.
    fn least(&self, shelf: &Shelf) -> Option<(u64, f64)> {
        let idle = shelf.by_number.iter().filter(|(_, kept)| kept.is_idle());
        let saved = idle.map(|(number, _)| (*number, self.ledger.density(*number)));
        saved.min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)))
    }

    /// What a look-up is called, if it is kept.
    pub fn name(&self, number: u64) -> Option<String> {
        let shelf = self.shelf.lock();
        shelf
            .by_number
            .get(&number)
            .map(|kept| kept.recipe.to_string())
    }
}

impl Lender for KeptLookUps {
    fn class(&self) -> ItemClass {
        ItemClass::LookUp
    }

    fn lent_bytes(&self) -> u64 {
        let shelf = self.shelf.lock();
        let idle = shelf.by_number.values().filter(|kept| kept.is_idle());
        idle.map(|kept| kept.bytes).sum()
    }

    fn uses(&self) -> Vec<ItemUse> {
        self.ledger.uses()
    }

    fn cheapest(&self) -> Option<Rung> {
        let shelf = self.shelf.lock();
        let (number, saved_s_per_byte_s) = self.least(&shelf)?;
        Some(Rung {
            bytes: shelf.by_number.get(&number)?.bytes,
            saved_s_per_byte_s,
        })
    }

    fn give_back(&self) -> bool {
        let mut shelf = self.shelf.lock();
        let least = self.least(&shelf);
        let given = least.and_then(|(number, _)| {
            self.ledger.gave_back(number);
            shelf.by_number.remove(&number)
        });
        drop(shelf);
        given.is_some()
    }

    fn clear(&self) {
        let gone = self.take_out(&mut self.shelf.lock(), |_| true);
        drop(gone);
    }
}

impl fmt::Debug for KeptLookUps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptLookUps")
            .field("bytes", &self.ledger.held_bytes())
            .finish_non_exhaustive()
    }
}
