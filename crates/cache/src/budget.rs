//! One memory budget for cached segments, reads under way, bytes in use, and the query engine's operators.
//!
//! `used = cached + detached + in_flight + operators`, kept in one word so that admission is one
//! compare-and-swap. `used <= limit`, except for
//! * operators that cannot be refused ([`Budget::reserve_operator`]), and
//! * reads, up to a few segments beside what operators hold, and one at a time while nothing else is being read and
//!   nothing can be evicted, so that queries advance under any budget (counted: [`BudgetSnapshot::overcommit_count`]).

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use thiserror::Error;

/// What keeps memory of a budget and can return it: the cache. Called without any lock of the budget.
pub(crate) trait Evictor: Send + Sync {
    /// Bytes that lenders besides the cache could return.
    fn lent_bytes(&self) -> u64;

    /// Drops the least valuable thing. False: everything is in use.
    fn evict_one(&self) -> bool;

    /// Starts the reads that wait for memory and now fit.
    fn start_waiting_reads(self: Arc<Self>);
}

/// The memory budget shared by the cache and the operators.
pub struct Budget {
    limit_bytes: AtomicU64,
    transit_bytes: Option<u64>,
    used_bytes: AtomicU64,
    cached_bytes: AtomicU64,
    /// The part of `cached_bytes` that is metadata.
    metadata_bytes: AtomicU64,
    detached_bytes: AtomicU64,
    in_flight_bytes: AtomicU64,
    operator_bytes: AtomicU64,
    overcommit_count: AtomicU64,
    used_bytes_max: AtomicU64,
    /// The latest peak of reads under way and detached bytes.
    transit_bytes_max: AtomicU64,
    /// Reads that wait for memory.
    waiting_count: AtomicUsize,
    holder: Weak<dyn Evictor>,
}

/// What the budget is spent on. The parts are read one after the other, so under concurrency their sum may
/// differ a little from `used_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetSnapshot {
    /// The budget.
    pub limit_bytes: u64,
    /// `cached + detached + in_flight + operator`.
    pub used_bytes: u64,
    /// Segments the cache holds, in use or not.
    pub cached_bytes: u64,
    /// The part of `cached_bytes` that is metadata.
    pub metadata_bytes: u64,
    /// Segments in use that the cache does not hold, or no longer holds.
    pub detached_bytes: u64,
    /// Reads under way.
    pub in_flight_bytes: u64,
    /// Memory of the query engine's operators.
    pub operator_bytes: u64,
    /// How often a read was admitted beyond the budget because nothing else could advance.
    pub overcommit_count: u64,
    /// The highest `used_bytes` ever.
    pub used_bytes_max: u64,
    /// Reads that wait for memory.
    pub waiting_count: usize,
}

/// A reservation of an operator that does not fit, even after eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "cannot reserve {requested} bytes: {available} available \
     (cached {cached}, in use {detached}, being read {in_flight}, operators {operators})"
)]
pub struct Shortage {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes that are free now.
    pub available: u64,
    /// Bytes of cached segments (those in use cannot be evicted).
    pub cached: u64,
    /// Bytes in use that the cache does not hold.
    pub detached: u64,
    /// Bytes of reads under way.
    pub in_flight: u64,
    /// Bytes of operators.
    pub operators: u64,
}

impl Budget {
    pub(crate) fn new(
        limit_bytes: u64,
        transit_bytes: Option<u64>,
        holder: Weak<dyn Evictor>,
    ) -> Self {
        Self {
            limit_bytes: limit_bytes.into(),
            transit_bytes,
            used_bytes: 0.into(),
            cached_bytes: 0.into(),
            metadata_bytes: 0.into(),
            detached_bytes: 0.into(),
            in_flight_bytes: 0.into(),
            operator_bytes: 0.into(),
            overcommit_count: 0.into(),
            used_bytes_max: 0.into(),
            transit_bytes_max: 0.into(),
            waiting_count: 0.into(),
            holder,
        }
    }

    /// The budget in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(SeqCst)
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        self.limit_bytes()
            .saturating_sub(self.used_bytes.load(SeqCst))
    }

    /// How much of the budget may be *kept* segments: what operators and transit do not take. Transit is the share
    /// set aside for reads under way and bytes in use.
    pub fn capacity_bytes(&self) -> u64 {
        self.limit_bytes()
            .saturating_sub(self.transit_bytes())
            .saturating_sub(self.operator_bytes.load(Relaxed))
    }

    /// The share of the budget set aside for reads under way and bytes in use that are not kept. Unless it was
    /// configured, what these lately needed at most and an eighth more, between 1/32 and 1/4 of the budget.
    pub fn transit_bytes(&self) -> u64 {
        let limit_bytes = self.limit_bytes();
        let peak_bytes = self.transit_bytes_max.load(Relaxed);
        let needed_bytes = peak_bytes.saturating_add(peak_bytes / 8);
        let measured_bytes = needed_bytes.clamp(limit_bytes / 32, limit_bytes / 4);
        self.transit_bytes.unwrap_or(measured_bytes)
    }

    /// Forgets a little of the peak of transit. Called at each step of the tuner.
    pub(crate) fn decay_transit(&self) {
        let now_bytes = self.transit_now_bytes();
        let decayed = |peak: u64| Some((peak - peak / 64).max(now_bytes));
        let _ = self
            .transit_bytes_max
            .fetch_update(Relaxed, Relaxed, decayed);
    }

    fn transit_now_bytes(&self) -> u64 {
        self.in_flight_bytes.load(Relaxed) + self.detached_bytes.load(Relaxed)
    }

    /// What the budget is spent on.
    pub fn snapshot(&self) -> BudgetSnapshot {
        BudgetSnapshot {
            limit_bytes: self.limit_bytes(),
            used_bytes: self.used_bytes.load(SeqCst),
            cached_bytes: self.cached_bytes.load(Relaxed),
            metadata_bytes: self.metadata_bytes(),
            detached_bytes: self.detached_bytes.load(Relaxed),
            in_flight_bytes: self.in_flight_bytes.load(Relaxed),
            operator_bytes: self.operator_bytes.load(Relaxed),
            overcommit_count: self.overcommit_count.load(Relaxed),
            used_bytes_max: self.used_bytes_max.load(Relaxed),
            waiting_count: self.waiting_count.load(Relaxed),
        }
    }

    /// Whether [`Budget::try_reserve_operator`] would find room for this many bytes, as things are.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        self.could_fit(bytes.saturating_sub(self.lent_bytes()))
    }

    /// Reserves memory for an operator, evicting idle segments, least valuable first, until it fits.
    ///
    /// # Errors
    /// [`Shortage`] if it does not fit however much is evicted; then little or nothing was evicted.
    pub fn try_reserve_operator(&self, bytes: u64) -> Result<(), Shortage> {
        loop {
            if self.try_charge(bytes) {
                self.operator_bytes.fetch_add(bytes, Relaxed);
                return Ok(());
            }
            if !self.has_room_for(bytes) || !self.evict_one() {
                self.memory_may_be_free();
                return Err(self.shortage(bytes));
            }
        }
    }

    /// Reserves memory for an operator that cannot be refused. Evicts what it can and over-commits the rest.
    pub fn reserve_operator(&self, bytes: u64) {
        if self.try_reserve_operator(bytes).is_ok() {
            return;
        }
        self.charge(bytes);
        self.operator_bytes.fetch_add(bytes, Relaxed);
        while self.used_bytes.load(SeqCst) > self.limit_bytes() && self.evict_one() {}
    }

    /// Counts memory as an operator's that another is about to return. Evicts nothing, and does not count as a peak of
    /// what was used.
    pub fn hold_operator(&self, bytes: u64) {
        self.used_bytes.fetch_add(bytes, SeqCst);
        self.operator_bytes.fetch_add(bytes, Relaxed);
    }

    /// Returns memory reserved by [`Budget::try_reserve_operator`], [`Budget::reserve_operator`] or
    /// [`Budget::hold_operator`].
    pub fn release_operator(&self, bytes: u64) {
        subtract(&self.operator_bytes, bytes);
        self.release(bytes);
    }

    fn shortage(&self, requested: u64) -> Shortage {
        let now = self.snapshot();
        Shortage {
            requested,
            available: now.limit_bytes.saturating_sub(now.used_bytes),
            cached: now.cached_bytes,
            detached: now.detached_bytes,
            in_flight: now.in_flight_bytes,
            operators: now.operator_bytes,
        }
    }

    /// Bytes of the operators' that lenders, such as an index with idle blocks, could return.
    pub fn lent_bytes(&self) -> u64 {
        let holder = self.holder.upgrade();
        holder.map_or(0, |holder| holder.lent_bytes())
    }

    fn evict_one(&self) -> bool {
        let holder = self.holder.upgrade();
        holder.is_some_and(|holder| holder.evict_one())
    }

    pub(crate) fn set_limit_bytes(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, SeqCst);
    }

    pub(crate) fn cached_bytes(&self) -> u64 {
        self.cached_bytes.load(Relaxed)
    }

    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.metadata_bytes.load(Relaxed)
    }

    pub(crate) fn add_metadata(&self, bytes: u64) {
        self.metadata_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn remove_metadata(&self, bytes: u64) {
        subtract(&self.metadata_bytes, bytes);
    }

    /// Whether bytes would fit if everything cached were evicted.
    pub(crate) fn could_fit(&self, bytes: u64) -> bool {
        let used_bytes = self.used_bytes.load(SeqCst);
        let fixed_bytes = used_bytes.saturating_sub(self.cached_bytes());
        fixed_bytes.saturating_add(bytes) <= self.limit_bytes()
    }

    /// What segments take, read or under way.
    pub(crate) fn segment_bytes(&self) -> u64 {
        let used_bytes = self.used_bytes.load(SeqCst);
        used_bytes.saturating_sub(self.operator_bytes.load(Relaxed))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.used_bytes.load(SeqCst) > self.limit_bytes()
    }

    /// Charges a read about to start, if it fits.
    pub(crate) fn try_charge_in_flight(&self, bytes: u64) -> bool {
        let charged = self.try_charge(bytes);
        if charged {
            self.in_flight_bytes.fetch_add(bytes, Relaxed);
            let transit_bytes = self.transit_now_bytes();
            self.transit_bytes_max.fetch_max(transit_bytes, Relaxed);
        }
        charged
    }

    /// Charges a read about to start that must be admitted, fit or not.
    pub(crate) fn charge_in_flight(&self, bytes: u64) {
        self.charge(bytes);
        self.in_flight_bytes.fetch_add(bytes, Relaxed);
        if self.is_over() {
            self.overcommit_count.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn release_in_flight(&self, bytes: u64) {
        subtract(&self.in_flight_bytes, bytes);
        self.release(bytes);
    }

    pub(crate) fn in_flight_to_detached(&self, bytes: u64) {
        self.detached_bytes.fetch_add(bytes, Relaxed);
        subtract(&self.in_flight_bytes, bytes);
    }

    pub(crate) fn detached_to_cached(&self, bytes: u64) {
        self.cached_bytes.fetch_add(bytes, Relaxed);
        subtract(&self.detached_bytes, bytes);
    }

    pub(crate) fn cached_to_detached(&self, bytes: u64) {
        self.detached_bytes.fetch_add(bytes, Relaxed);
        subtract(&self.cached_bytes, bytes);
    }

    pub(crate) fn release_detached(&self, bytes: u64) {
        subtract(&self.detached_bytes, bytes);
        subtract(&self.used_bytes, bytes);
        // No wake-up here: this runs inside evictions. Code that drops bytes outside calls `memory_may_be_free`
        // afterwards.
    }

    pub(crate) fn add_waiting(&self) {
        self.waiting_count.fetch_add(1, SeqCst);
    }

    pub(crate) fn remove_waiting(&self) {
        self.waiting_count.fetch_sub(1, SeqCst);
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting_count.load(SeqCst) > 0
    }

    /// Starts waiting reads that fit now. Called, without holding any lock of this crate, after memory was
    /// returned or became evictable.
    pub(crate) fn memory_may_be_free(&self) {
        if self.has_waiting()
            && let Some(holder) = self.holder.upgrade()
        {
            holder.start_waiting_reads();
        }
    }

    fn try_charge(&self, bytes: u64) -> bool {
        let limit_bytes = self.limit_bytes();
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= limit_bytes);
        let before = self.used_bytes.fetch_update(SeqCst, SeqCst, fits);
        if let Ok(used_bytes) = before {
            self.used_bytes_max.fetch_max(used_bytes + bytes, Relaxed);
        }
        before.is_ok()
    }

    fn charge(&self, bytes: u64) {
        let used_bytes = self.used_bytes.fetch_add(bytes, SeqCst);
        self.used_bytes_max
            .fetch_max(used_bytes.saturating_add(bytes), Relaxed);
    }

    fn release(&self, bytes: u64) {
        subtract(&self.used_bytes, bytes);
        self.memory_may_be_free();
    }
}

fn subtract(counter: &AtomicU64, bytes: u64) {
    let before = counter.fetch_sub(bytes, SeqCst);
    debug_assert!(before >= bytes, "returned {bytes} bytes of {before}");
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::OnceLock;

    /// Things of 10 bytes each that are charged as an operator's.
    #[derive(Default)]
    struct Things {
        budget: OnceLock<Arc<Budget>>,
        count: Mutex<u64>,
    }

    impl Evictor for Things {
        fn lent_bytes(&self) -> u64 {
            10 * *self.count.lock()
        }

        fn evict_one(&self) -> bool {
            let mut count = self.count.lock();
            if *count == 0 {
                return false;
            }
            *count -= 1;
            drop(count);
            self.budget.get().unwrap().release_operator(10);
            true
        }

        fn start_waiting_reads(self: Arc<Self>) {
            panic!("no read waits in these tests");
        }
    }

    #[test]
    fn an_operator_gets_memory_only_while_enough_can_be_evicted() {
        let things = Arc::new(Things::default());
        let evictor: Weak<dyn Evictor> = Arc::downgrade(&things) as Weak<dyn Evictor>;
        let budget = Arc::new(Budget::new(100, Some(0), evictor));
        things.budget.set(Arc::clone(&budget)).unwrap();
        *things.count.lock() = 5;
        budget.reserve_operator(50);
        assert!(budget.try_reserve_operator(101).is_err());
        assert_eq!(
            *things.count.lock(),
            5,
            "nothing is evicted if that would not be enough"
        );
        budget.try_reserve_operator(75).unwrap();
        assert_eq!(*things.count.lock(), 2);
        assert_eq!(budget.free_bytes(), 5);
    }
}
