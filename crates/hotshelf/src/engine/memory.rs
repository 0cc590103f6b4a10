//! The operators' memory: DataFusion's pool on top of the one budget they share with the cache.

mod freed;
mod kind;
mod query;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use datafusion::common::resources_datafusion_err;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use hotshelf_cache::{Answer, Ask, CacheManager};
use parking_lot::Mutex;

use freed::{FreedMemory, Withheld};
pub(crate) use kind::OperatorKind;
use query::OperatorMemory;
pub(crate) use query::{QueryMemory, QueryPool};

/// The last part of the memory, one in this many, is for operators that have less than their share or cannot spill.
const KEPT_PARTS: u64 = 8;
/// Overdrafts may come to one part in this many of the memory, or to the second number of bytes (a few batches) if that
/// is more.
const OVERDRAFT_PARTS: u64 = 32;
const OVERDRAFT_BYTES_MIN: u64 = 4 << 20;

/// Every operator gets this much, whatever others hold.
const MINIMUM_BYTES: u64 = 64 << 10;
/// Operators that hold little and cannot do with less. The one that merges sorted partitions has one batch of each:
/// the sorts below it have taken what there was, and give it back only to the merge. One that hands rows on in order
/// has a batch of each partition, too. The heap has few first rows, the writer of a Parquet file a row group.
const MODEST: [&str; 4] = [
    "SortPreservingMergeExec[",
    "RepartitionExec[Merge ",
    "TopK[",
    "ParquetSink(",
];

/// Reservations evict cached segments until they fit (as Velox does), and fail when nothing remains to
/// evict, except below a floor that operators always have. An operator that can spill and has more than an equal share
/// fails a little earlier: else it would leave nothing to those that have yet to begin, and nothing to spill.
/// One that has less than its share may overdraw a little: DataFusion's merges of spilled runs, their cursors and
/// emptied aggregation tables cannot spill any further, and their refusal would end the query while others hold the
/// memory.
pub(crate) struct OperatorPool {
    cache: Arc<CacheManager>,
    /// What operators may use even if the budget is smaller, in bytes.
    floor_bytes: u64,
    reserved_bytes_max: AtomicU64,
    /// Operators that can spill.
    spiller_count: AtomicU64,
    /// Bytes per second with which spilled rows are written, if that was measured. Else as fast as they are read.
    write_bandwidth: Option<f64>,
    freed: Arc<FreedMemory>,
    queries: Queries,
}

/// The queries that run.
#[derive(Default)]
struct Queries(Mutex<Vec<Weak<QueryPool>>>);

impl Queries {
    fn join(&self, query: &Arc<QueryPool>) {
        let mut queries = self.0.lock();
        queries.retain(|query| query.strong_count() > 0);
        queries.push(Arc::downgrade(query));
    }

    fn running(&self) -> Vec<Arc<QueryPool>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl OperatorPool {
    pub fn new(
        cache: Arc<CacheManager>,
        floor_bytes: u64,
        owns_process: bool,
        write_bandwidth: Option<f64>,
    ) -> Self {
        let withheld = owns_process.then(|| Withheld::new(cache.clone()));
        Self {
            cache,
            floor_bytes,
            reserved_bytes_max: AtomicU64::new(0),
            spiller_count: AtomicU64::new(0),
            write_bandwidth,
            freed: FreedMemory::new(withheld),
            queries: Queries::default(),
        }
    }

    /// What the operators of running queries have, a row for each name in each query.
    pub fn operators(&self) -> Vec<OperatorMemory> {
        let running = self.queries.running();
        running.iter().flat_map(|query| query.operators()).collect()
    }

    /// What operators hold. Blocks, footers and look-ups are charged as theirs, but those that are idle make room for
    /// them.
    fn reserved_bytes(&self) -> u64 {
        let budget = self.cache.budget();
        let charged = budget.snapshot().operator_bytes;
        charged.saturating_sub(budget.lent_bytes())
    }

    /// The most that operators ever held at once, in bytes.
    pub fn reserved_bytes_max(&self) -> u64 {
        self.reserved_bytes_max.load(Ordering::Relaxed)
    }

    /// What operators may hold together, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.cache.budget().limit_bytes().max(self.floor_bytes)
    }

    /// Whether a reservation that can spill would stay within an equal share.
    fn is_within_its_share(&self, reservation: &MemoryReservation, additional: u64) -> bool {
        let spillers = self.spiller_count.load(Ordering::Relaxed).max(1);
        reservation.size() as u64 + additional <= self.limit_bytes() / spillers
    }

    /// Whether as much may be reserved though operators hold all they may.
    fn may_overdraw(&self, additional: u64) -> bool {
        let limit = self.limit_bytes();
        let overdraft = OVERDRAFT_BYTES_MIN.max(limit / OVERDRAFT_PARTS);
        self.reserved_bytes() + additional <= limit + overdraft
    }

    /// Whether an operator should spill what it has held for this long, because the memory that it asks for saves more
    /// time where it is now. It grows while writing and reading its bytes again would take longer than its memory costs
    /// by the published price, over as long again.
    fn is_outbid(&self, additional: u64, held: Duration, weight: f64) -> bool {
        if additional <= self.cache.budget().free_bytes() {
            return false;
        }
        let ask = self.instead_of_spilling(additional, held, weight);
        ask.is_some_and(|ask| self.cache.ask(&ask) == Answer::Refuse)
    }

    /// What an operator asks that would write bytes and read them again. `None`: it is not known what that takes.
    fn instead_of_spilling(&self, bytes: u64, held: Duration, weight: f64) -> Option<Ask> {
        let read_bandwidth = self.cache.price_board().read().tiers.storage_bandwidth;
        if read_bandwidth <= 0.0 {
            return None;
        }
        let write_bandwidth = self.write_bandwidth.unwrap_or(read_bandwidth);
        let held_s = held.as_secs_f64();
        Some(Ask {
            weight,
            ..Ask::instead_of_spilling(bytes, write_bandwidth, read_bandwidth, held_s)
        })
    }

    /// What a byte saves that an operator has had for this long and would otherwise spill.
    fn saved_s_per_byte_s(&self, held: Duration, weight: f64) -> Option<f64> {
        let ask = self.instead_of_spilling(1, held, weight)?;
        Some(ask.saved_s_per_byte_s())
    }

    fn note_growth(&self) {
        self.freed.look(self.limit_bytes());
        self.reserved_bytes_max
            .fetch_max(self.reserved_bytes(), Ordering::Relaxed);
    }
}

impl MemoryPool for OperatorPool {
    fn name(&self) -> &str {
        "hotshelf"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        let spiller = u64::from(consumer.can_spill());
        self.spiller_count.fetch_add(spiller, Ordering::Relaxed);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let spiller = u64::from(consumer.can_spill());
        self.spiller_count.fetch_sub(spiller, Ordering::Relaxed);
    }

    fn grow(&self, _reservation: &MemoryReservation, additional: usize) {
        self.cache.budget().reserve_operator(additional as u64);
        self.note_growth();
    }

    fn shrink(&self, _reservation: &MemoryReservation, shrink: usize) {
        self.cache.budget().release_operator(shrink as u64);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let additional = additional as u64;
        let limit = self.limit_bytes();
        let can_spill = reservation.consumer().can_spill();
        let is_modest = can_spill && self.is_within_its_share(reservation, additional);
        let kept = limit / KEPT_PARTS;
        if can_spill && !is_modest && self.reserved_bytes() + additional > limit - kept {
            return Err(resources_datafusion_err!(
                "operator '{}' has more than an equal share of the memory, and the rest is kept for others",
                reservation.consumer().name()
            ));
        }
        if let Err(shortage) = self.cache.budget().try_reserve_operator(additional) {
            let withheld = self.freed.withheld_bytes();
            let reserved = self.reserved_bytes().saturating_sub(withheld);
            let is_below_floor = reserved + additional <= self.floor_bytes;
            let is_little = reservation.size() as u64 + additional <= MINIMUM_BYTES;
            let name = reservation.consumer().name();
            let is_needed = MODEST.iter().any(|modest| name.starts_with(modest));
            if !(is_below_floor
                || is_little
                || is_needed
                || is_modest && self.may_overdraw(additional))
            {
                return Err(resources_datafusion_err!(
                    "operator '{}': {shortage}",
                    reservation.consumer().name()
                ));
            }
            self.cache.budget().reserve_operator(additional);
        }
        self.note_growth();
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.reserved_bytes() as usize
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit_bytes() as usize)
    }
}

impl fmt::Debug for OperatorPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorPool")
            .field("floor_bytes", &self.floor_bytes)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for OperatorPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}(budget: {} bytes)",
            self.name(),
            self.cache.budget().limit_bytes()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotshelf_cache::model::ItemClass;
    use hotshelf_cache::{CacheOptions, Lender, Rung};

    fn pool(budget_bytes: u64, floor_bytes: u64) -> Arc<dyn MemoryPool> {
        let cache = CacheManager::new(CacheOptions {
            budget_bytes,
            ..CacheOptions::default()
        });
        Arc::new(OperatorPool::new(cache, floor_bytes, false, None))
    }

    #[test]
    fn reservations_fail_beyond_budget_and_floor() {
        let pool = pool(1000 << 10, 0);
        let reservation = MemoryConsumer::new("sort").register(&pool);
        reservation.try_grow(900 << 10).unwrap();
        let refused = reservation.try_grow(200 << 10).unwrap_err().to_string();
        assert!(refused.contains("sort"), "{refused}");
        drop(reservation);
        assert_eq!(pool.reserved(), 0);
    }

    /// Has idle blocks of this many bytes.
    struct Blocks {
        cache: Arc<CacheManager>,
        bytes: AtomicU64,
    }

    impl Lender for Blocks {
        fn class(&self) -> ItemClass {
            ItemClass::IndexBlock
        }

        fn lent_bytes(&self) -> u64 {
            self.bytes.load(Ordering::Relaxed)
        }

        fn cheapest(&self) -> Option<Rung> {
            let bytes = self.lent_bytes();
            (bytes > 0).then_some(Rung {
                bytes,
                saved_s_per_byte_s: 0.0,
            })
        }

        fn give_back(&self) -> bool {
            let bytes = self.bytes.swap(0, Ordering::Relaxed);
            self.cache.budget().release_operator(bytes);
            bytes > 0
        }
    }

    #[test]
    fn idle_blocks_of_an_index_make_room_for_operators() {
        let cache = CacheManager::new(CacheOptions {
            budget_bytes: 1000 << 10,
            ..CacheOptions::default()
        });
        let blocks = Arc::new(Blocks {
            cache: cache.clone(),
            bytes: AtomicU64::new(600 << 10),
        });
        cache.budget().reserve_operator(600 << 10);
        let lender: Arc<dyn Lender> = blocks.clone();
        cache.add_lender(Arc::downgrade(&lender));
        let pool: Arc<dyn MemoryPool> = Arc::new(OperatorPool::new(cache, 0, false, None));
        let spilling = |name: &str| {
            let consumer = MemoryConsumer::new(name).with_can_spill(true);
            consumer.register(&pool)
        };
        let (greedy, _other) = (spilling("greedy"), spilling("other"));
        greedy.try_grow(800 << 10).unwrap();
        assert_eq!(blocks.lent_bytes(), 0);
        assert_eq!(pool.reserved(), 800 << 10);
    }

    #[test]
    fn who_needs_little_gets_it_whatever_others_hold() {
        let pool = pool(1000 << 10, 0);
        let fixed = MemoryConsumer::new("fixed").register(&pool);
        fixed.try_grow(1000 << 10).unwrap();
        let little = MemoryConsumer::new("little").register(&pool);
        little.try_grow(MINIMUM_BYTES as usize).unwrap();
        assert!(little.try_grow(1).is_err());
        let merge = MemoryConsumer::new("SortPreservingMergeExec[0]").register(&pool);
        merge.try_grow(300 << 10).unwrap();
        for name in ["RepartitionExec[Merge 1]", "TopK[1]"] {
            let modest = MemoryConsumer::new(name).register(&pool);
            modest.try_grow(300 << 10).unwrap();
        }
    }

    #[test]
    fn the_floor_is_granted_whatever_the_budget() {
        let pool = pool(10, 500 << 10);
        let reservation = MemoryConsumer::new("join").register(&pool);
        reservation.try_grow(500 << 10).unwrap();
        assert!(reservation.try_grow(1).is_err());
    }

    #[test]
    fn who_has_less_than_a_share_may_overdraw_a_little() {
        let pool = pool(0, 10 << 20);
        let spilling = |name: &str| {
            let consumer = MemoryConsumer::new(name).with_can_spill(true);
            consumer.register(&pool)
        };
        let fixed = MemoryConsumer::new("fixed").register(&pool);
        fixed.try_grow(10 << 20).unwrap();
        let (merge, other) = (spilling("merge"), spilling("other"));
        merge.try_grow(3 << 20).unwrap();
        assert_eq!(pool.reserved(), 13 << 20);
        assert!(merge.try_grow(3 << 20).is_err(), "more than its share");
        assert!(other.try_grow(2 << 20).is_err(), "more than the overdraft");
        other.try_grow(1 << 20).unwrap();
        assert!(fixed.try_grow(1).is_err(), "cannot spill");
        drop((fixed, merge, other));
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn who_can_spill_leaves_something_to_the_others() {
        let pool = pool(1000 << 10, 0);
        let spilling = |name: &str| {
            let consumer = MemoryConsumer::new(name).with_can_spill(true);
            consumer.register(&pool)
        };
        let (greedy, late) = (spilling("greedy"), spilling("late"));
        greedy.try_grow(870 << 10).unwrap();
        let refused = greedy.try_grow(20 << 10).unwrap_err().to_string();
        assert!(refused.contains("greedy"), "{refused}");
        late.try_grow(100 << 10).unwrap();
        let fixed = MemoryConsumer::new("fixed").register(&pool);
        fixed.try_grow(30 << 10).unwrap();
        // Alone, one may have everything.
        drop((late, fixed));
        greedy.free();
        greedy.try_grow(1000 << 10).unwrap();
    }
}
