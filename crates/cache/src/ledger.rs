//! How often things that are not columns are used, and what it takes to obtain them again: index blocks, footers,
//! look-ups.
//!
//! A [`Lender`](crate::Lender), which keeps such things in memory, has a [`Ledger`] and tells it of each use. What was
//! given back stays in the ledger for a while, so that the tuner knows what more memory would save.

use crate::clock::UseClock;
use crate::key::Map;
use crate::model::{ItemClass, ItemId, ItemUse, SHELF_COUNT_MAX};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// Seconds of the cache's use after which a use counts for 1/e.
const FADE_S: f64 = 60.0;

/// Items that are remembered although they are not in memory. Beyond that the least useful half is forgotten.
const GHOSTS_MAX: usize = 16_384;

/// How much a further read changes what reading an item is known to take.
const LEARNING: f64 = 0.3;

/// What it took to have an item in memory that was not there.
#[derive(Debug, Clone, Copy)]
pub struct MissCost {
    /// The time, waiting included.
    pub seconds: f64,
    /// The weight of the query that needed it ([`query_weight`](crate::CacheManager::query_weight)); 1 is normal.
    pub weight: f64,
}

/// The items of one class, their uses and costs. Any number of threads may write to it.
pub struct Ledger {
    class: ItemClass,
    clock: Arc<UseClock>,
    accounts: Mutex<Accounts>,
}

impl Ledger {
    /// An empty ledger. Its uses move the clock on; a cache has one clock for all its ledgers
    /// ([`CacheManager::ledger`](crate::CacheManager::ledger)).
    pub fn new(class: ItemClass, clock: Arc<UseClock>) -> Self {
        Self {
            class,
            clock,
            accounts: Mutex::default(),
        }
    }

    /// What it counts.
    pub fn class(&self) -> ItemClass {
        self.class
    }

    /// An item was used and was in memory. `weight` is that of the query
    /// ([`query_weight`](crate::CacheManager::query_weight)); 1 is normal.
    pub fn hit(&self, number: u64, weight: f64) {
        let now_s = self.clock.note_use();
        self.accounts.lock().hit(number, weight, now_s);
    }

    /// An item was used and was not in memory: having it again took this long. It is in memory from here on, with this
    /// many bytes.
    pub fn miss(&self, number: u64, bytes: u64, cost: MissCost) {
        let now_s = self.clock.note_use();
        let mut accounts = self.accounts.lock();
        accounts.miss(number, bytes, cost, now_s);
    }

    /// Of an item, another part is in memory than before.
    pub fn resize(&self, number: u64, bytes: u64) {
        self.accounts.lock().resize(number, bytes);
    }

    /// An item was dropped from memory and may be wanted again.
    pub fn gave_back(&self, number: u64) {
        self.accounts.lock().gave_back(number, self.clock.now_s());
    }

    /// An item that was given back is in memory again, without another use.
    pub fn took_back(&self, number: u64) {
        self.accounts.lock().took_back(number);
    }

    /// An item exists no more.
    pub fn forget(&self, number: u64) {
        self.accounts.lock().forget(number);
    }

    /// What an item saves in memory, in seconds per byte and second.
    pub fn density(&self, number: u64) -> f64 {
        let accounts = self.accounts.lock();
        let account = accounts.by_number.get(&number);
        account.map_or(0.0, |account| account.density(self.clock.now_s()))
    }

    /// What it took to have an item that was not in memory, in seconds, as later reads corrected it.
    pub fn miss_s(&self, number: u64) -> Option<f64> {
        let accounts = self.accounts.lock();
        accounts
            .by_number
            .get(&number)
            .map(|account| account.miss_s)
    }

    /// What something new would save that was just used, by a query of this weight: as much as if it were used once in
    /// the time in which uses fade. Having it again takes this long.
    pub fn density_of_new(bytes: u64, cost: MissCost) -> f64 {
        sane(cost.weight) * sane(cost.seconds) / FADE_S / bytes.max(1) as f64
    }

    /// Bytes of all items in memory.
    pub fn held_bytes(&self) -> u64 {
        self.accounts.lock().held_bytes
    }

    /// All items that are in memory or lately were.
    pub fn uses(&self) -> Vec<ItemUse> {
        let now_s = self.clock.now_s();
        self.accounts.lock().uses(self.class, now_s)
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("class", &self.class)
            .field("accounts", &self.accounts)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Accounts {
    by_number: Map<u64, Account>,
    held_bytes: u64,
    ghost_count: usize,
}

/// What is known about one item.
#[derive(Debug)]
struct Account {
    bytes: u64,
    is_held: bool,
    /// What having it again takes, in seconds.
    miss_s: f64,
    /// Uses, faded, as of `seen_s`.
    weight: f64,
    seen_s: f64,
}

impl Account {
    fn faded(&self, now_s: f64) -> f64 {
        self.weight * (-(now_s - self.seen_s).max(0.0) / FADE_S).exp()
    }

    fn uses_per_s(&self, now_s: f64) -> f64 {
        self.faded(now_s) / FADE_S
    }

    fn density(&self, now_s: f64) -> f64 {
        self.uses_per_s(now_s) * self.miss_s / self.bytes.max(1) as f64
    }

    fn used(&mut self, weight: f64, now_s: f64) {
        self.weight = self.faded(now_s) + sane(weight);
        self.seen_s = now_s;
    }
}

fn sane(value: f64) -> f64 {
    if value.is_finite() {
        value.max(0.0)
    } else {
        0.0
    }
}

impl Accounts {
    fn hit(&mut self, number: u64, weight: f64, now_s: f64) {
        if let Some(account) = self.by_number.get_mut(&number) {
            account.used(weight, now_s);
        }
    }

    fn miss(&mut self, number: u64, bytes: u64, cost: MissCost, now_s: f64) {
        let seconds = sane(cost.seconds);
        let known = self.remove(number);
        let mut account = known.unwrap_or(Account {
            bytes,
            is_held: true,
            miss_s: seconds,
            weight: 0.0,
            seen_s: now_s,
        });
        account.miss_s += LEARNING * (seconds - account.miss_s);
        account.bytes = bytes;
        account.is_held = true;
        account.used(cost.weight, now_s);
        self.held_bytes += bytes;
        self.by_number.insert(number, account);
    }

    fn resize(&mut self, number: u64, bytes: u64) {
        let account = self.by_number.get_mut(&number);
        if let Some(account) = account.filter(|account| account.is_held) {
            self.held_bytes = self.held_bytes - account.bytes + bytes;
            account.bytes = bytes;
        }
    }

    fn gave_back(&mut self, number: u64, now_s: f64) {
        let Some(account) = self.by_number.get_mut(&number) else {
            return;
        };
        if std::mem::take(&mut account.is_held) {
            self.held_bytes -= account.bytes;
            self.ghost_count += 1;
        }
        if self.ghost_count > GHOSTS_MAX {
            self.forget_ghosts(now_s);
        }
    }

    fn took_back(&mut self, number: u64) {
        let account = self.by_number.get_mut(&number);
        if let Some(account) = account.filter(|account| !account.is_held) {
            account.is_held = true;
            self.held_bytes += account.bytes;
            self.ghost_count -= 1;
        }
    }

    fn forget(&mut self, number: u64) {
        self.remove(number);
    }

    fn remove(&mut self, number: u64) -> Option<Account> {
        let account = self.by_number.remove(&number)?;
        match account.is_held {
            true => self.held_bytes -= account.bytes,
            false => self.ghost_count -= 1,
        }
        Some(account)
    }

    /// Forgets the half of the items out of memory that save least.
    fn forget_ghosts(&mut self, now_s: f64) {
        let ghosts = self
            .by_number
            .iter()
            .filter(|(_, account)| !account.is_held);
        let mut ghosts: Vec<(f64, u64)> = ghosts
            .map(|(number, account)| (account.density(now_s), *number))
            .collect();
        ghosts.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, number) in &ghosts[..ghosts.len() / 2] {
            self.forget(*number);
        }
    }

    /// By number.
    fn uses(&self, class: ItemClass, now_s: f64) -> Vec<ItemUse> {
        let item = |(number, account): (&u64, &Account)| {
            let mut use_s = [account.miss_s; SHELF_COUNT_MAX];
            use_s[0] = 0.0;
            ItemUse {
                id: ItemId {
                    class,
                    number: *number,
                },
                bytes: account.bytes,
                held_bytes: if account.is_held { account.bytes } else { 0 },
                home: 1,
                uses_per_s: account.uses_per_s(now_s),
                use_s,
            }
        };
        let mut uses: Vec<ItemUse> = self.by_number.iter().map(item).collect();
        uses.sort_unstable_by_key(|item| item.id);
        uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(seconds: f64, weight: f64) -> MissCost {
        MissCost { seconds, weight }
    }

    #[test]
    fn uses_are_rates_that_fade_and_costs_are_learned() {
        let mut accounts = Accounts::default();
        accounts.miss(7, 100, cost(0.01, 1.0), 0.0);
        (1..=600).for_each(|step| accounts.hit(7, 1.0, f64::from(step)));
        let item = accounts.uses(ItemClass::IndexBlock, 600.0)[0];
        // A use per second.
        assert!((item.uses_per_s - 1.0).abs() < 0.02, "{item:?}");
        assert!((item.density() / 1e-4 - 1.0).abs() < 0.02, "{item:?}");
        let later = accounts.uses(ItemClass::IndexBlock, 660.0)[0];
        assert!((later.uses_per_s / item.uses_per_s - (-1f64).exp()).abs() < 1e-9);
        (0..50).for_each(|_| accounts.miss(7, 100, cost(0.05, 1.0), 660.0));
        let slower = accounts.uses(ItemClass::IndexBlock, 660.0)[0];
        assert!((slower.use_s[1] / 0.05 - 1.0).abs() < 1e-6);
        assert_eq!(accounts.held_bytes, 100);
    }

    #[test]
    fn what_was_given_back_is_still_valued_and_what_is_gone_is_not() {
        let ledger = Ledger::new(ItemClass::Metadata, Arc::default());
        ledger.miss(1, 10, cost(0.1, 1.0));
        ledger.miss(2, 20, cost(0.1, 2.0));
        ledger.gave_back(1);
        ledger.gave_back(1);
        let held: Vec<_> = ledger.uses().iter().map(|item| item.held_bytes).collect();
        assert_eq!((held, ledger.held_bytes()), (vec![0, 20], 20));
        assert!(ledger.density(1) > 0.0);
        let saved = ledger.density(1);
        ledger.took_back(1);
        ledger.took_back(1);
        assert_eq!(ledger.held_bytes(), 30);
        assert!(ledger.density(1) <= saved, "it was not used");
        ledger.miss(1, 12, cost(0.1, 1.0));
        assert_eq!(ledger.held_bytes(), 32);
        ledger.forget(2);
        ledger.hit(2, 1.0);
        assert_eq!((ledger.uses().len(), ledger.held_bytes()), (1, 12));
        assert_eq!(ledger.density(2), 0.0);
    }

    #[test]
    fn an_item_of_which_a_part_stays_saves_more_per_byte() {
        let ledger = Ledger::new(ItemClass::IndexBlock, Arc::default());
        ledger.miss(1, 100, cost(0.1, 1.0));
        let whole = ledger.density(1);
        ledger.resize(1, 25);
        assert_eq!(ledger.held_bytes(), 25);
        assert!((ledger.density(1) / whole - 4.0).abs() < 0.01);
        ledger.gave_back(1);
        ledger.resize(1, 50);
        ledger.resize(2, 50);
        assert_eq!(ledger.held_bytes(), 0);
    }

    #[test]
    fn priorities_and_times_that_are_no_numbers_count_for_nothing() {
        let mut accounts = Accounts::default();
        accounts.miss(1, 10, cost(f64::NAN, f64::INFINITY), 0.0);
        let item = accounts.uses(ItemClass::LookUp, 0.0)[0];
        assert_eq!((item.uses_per_s, item.use_s[1]), (0.0, 0.0));
    }

    #[test]
    fn of_the_items_out_of_memory_the_most_useful_are_remembered() {
        let mut accounts = Accounts::default();
        for number in 0..=GHOSTS_MAX as u64 {
            accounts.miss(number, 10, cost(1e-3 * number as f64, 1.0), 0.0);
        }
        let count = accounts.by_number.len() as u64;
        (0..count).for_each(|number| accounts.gave_back(number, 0.0));
        assert!(accounts.by_number.len() <= GHOSTS_MAX);
        assert!(accounts.by_number.contains_key(&(count - 1)));
        assert!(!accounts.by_number.contains_key(&0));
        assert_eq!(accounts.held_bytes, 0);
    }
}
