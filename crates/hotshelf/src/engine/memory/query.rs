//! What one query takes of the memory that all share, how much its time counts, and what it is refused because others
//! make more of it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::resources_datafusion_err;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use parking_lot::Mutex;

use super::OperatorPool;
use super::kind::OperatorKind;

/// An operator that holds less than this gets memory whatever it is worth: many small spills are slow.
const PRICED_BYTES_MIN: u64 = 16 << 20;

/// Lends what the shared pool has, by the query's weight, and keeps an account of it. Operators that can spill are
/// refused what saves others more time than it saves them.
pub(crate) struct QueryPool {
    shared: Arc<OperatorPool>,
    /// The query's number.
    query: u64,
    weight: f64,
    account: Mutex<Account>,
}

/// What the operators of a query took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct QueryMemory {
    /// The most that they held at once, in bytes.
    pub bytes_max: u64,
    /// The most that those of each kind held at once, in bytes, in the order of [`OperatorKind::ALL`].
    pub bytes_max_by_kind: [u64; OperatorKind::COUNT],
    /// Bytes times the seconds for which they were held.
    pub byte_s: f64,
    /// How often they were refused more and spilled or did with less.
    pub refusal_count: u64,
    /// How often of these because others make more of the memory.
    pub outbid_count: u64,
}

/// What the operators of one name in a running query have now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OperatorMemory {
    /// The query's number.
    pub query: u64,
    /// Under which name they borrow, without the numbers of partitions.
    pub name: String,
    pub bytes: u64,
    /// What a byte saves that they have, or would have more, in weighted seconds per byte and second: spilling it, over
    /// the time for which the latest of them has held some. `None`: they cannot spill it, or no price is known.
    pub saved_s_per_byte_s: Option<f64>,
}

#[derive(Debug, Default)]
struct Account {
    held_bytes: u64,
    held_by_kind: [u64; OperatorKind::COUNT],
    changed_at: Option<Instant>,
    total: QueryMemory,
    /// By the consumer's number.
    operators: HashMap<usize, OperatorAccount>,
    /// Whether the query gets what there is, whatever others make of it.
    is_unpriced: bool,
}

/// An operator of the query.
#[derive(Debug)]
struct OperatorAccount {
    name: String,
    kind: OperatorKind,
    began: Instant,
    held_bytes: u64,
    /// An aggregation gives everything back before it merges what it spilled, or answers. From there on it cannot
    /// spill.
    has_given_all_back: bool,
}

impl OperatorAccount {
    fn can_spill(&self) -> bool {
        match self.kind {
            OperatorKind::Sort | OperatorKind::Join => true,
            OperatorKind::Aggregation => !self.has_given_all_back,
            OperatorKind::Other => false,
        }
    }

    /// For how long it has held what it has, if it can spill that and holds enough.
    fn priced(&self, now: Instant) -> Option<Duration> {
        let is_priced = self.can_spill() && self.held_bytes >= PRICED_BYTES_MIN;
        is_priced.then(|| now.duration_since(self.began))
    }
}

impl Account {
    /// Charges what was held since the last change.
    fn settle(&mut self, now: Instant) {
        let since = self.changed_at.replace(now);
        let seconds = since.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
        self.total.byte_s += self.held_bytes as f64 * seconds;
    }

    fn begin(&mut self, id: usize, name: &str, kind: OperatorKind, now: Instant) {
        let operator = OperatorAccount {
            name: name.split('[').next().unwrap_or(name).to_owned(),
            kind,
            began: now,
            held_bytes: 0,
            has_given_all_back: false,
        };
        self.operators.insert(id, operator);
    }

    fn add(&mut self, id: usize, bytes: usize, now: Instant) {
        self.settle(now);
        self.held_bytes += bytes as u64;
        self.total.bytes_max = self.total.bytes_max.max(self.held_bytes);
        if let Some(operator) = self.operators.get_mut(&id) {
            operator.held_bytes += bytes as u64;
            let kind = operator.kind as usize;
            self.held_by_kind[kind] += bytes as u64;
            let most = &mut self.total.bytes_max_by_kind[kind];
            *most = self.held_by_kind[kind].max(*most);
        }
    }

    fn take(&mut self, id: usize, bytes: usize, now: Instant) {
        self.settle(now);
        self.held_bytes = self.held_bytes.saturating_sub(bytes as u64);
        if let Some(operator) = self.operators.get_mut(&id) {
            operator.held_bytes = operator.held_bytes.saturating_sub(bytes as u64);
            operator.has_given_all_back |= operator.held_bytes == 0;
            let of_kind = &mut self.held_by_kind[operator.kind as usize];
            *of_kind = of_kind.saturating_sub(bytes as u64);
        }
    }

    /// For how long the memory has been held to which more would be added, if it has a price.
    fn priced(&self, id: usize, now: Instant) -> Option<Duration> {
        let operator = self.operators.get(&id).filter(|_| !self.is_unpriced);
        operator.and_then(|operator| operator.priced(now))
    }

    fn refuse(&mut self, is_outbid: bool) {
        self.total.refusal_count += 1;
        self.total.outbid_count += u64::from(is_outbid);
    }
}

impl QueryPool {
    /// For the query with this number, of this weight.
    pub fn open(shared: Arc<OperatorPool>, query: u64, weight: f64) -> Arc<Self> {
        let pool = Arc::new(Self {
            shared: shared.clone(),
            query,
            weight,
            account: Mutex::default(),
        });
        shared.queries.join(&pool);
        pool
    }

    /// What its operators have now, by name.
    pub fn operators(&self) -> Vec<OperatorMemory> {
        let now = Instant::now();
        let mut by_name: BTreeMap<String, (u64, Option<Duration>)> = BTreeMap::new();
        for operator in self.account.lock().operators.values() {
            if operator.held_bytes == 0 {
                continue;
            }
            let held = now.duration_since(operator.began);
            let held = operator.can_spill().then_some(held);
            let (bytes, least) = by_name.entry(operator.name.clone()).or_default();
            *bytes += operator.held_bytes;
            *least = least.iter().copied().chain(held).min();
        }
        let row = |(name, (bytes, held)): (String, (u64, Option<Duration>))| OperatorMemory {
            query: self.query,
            name,
            bytes,
            saved_s_per_byte_s: held
                .and_then(|held| self.shared.saved_s_per_byte_s(held, self.weight)),
        };
        by_name.into_iter().map(row).collect()
    }

    /// What was taken up to now.
    pub fn taken(&self) -> QueryMemory {
        let mut account = self.account.lock();
        account.settle(Instant::now());
        account.total
    }

    /// From here on the query gets what there is. It has failed for lack of memory and begins again.
    pub fn forget_prices(&self) {
        self.account.lock().is_unpriced = true;
    }

    /// Whether the memory that an operator asks for saves others more time.
    fn is_outbid(&self, reservation: &MemoryReservation, additional: u64) -> bool {
        let id = reservation.consumer().id();
        let held = self.account.lock().priced(id, Instant::now());
        held.is_some_and(|held| self.shared.is_outbid(additional, held, self.weight))
    }
}

impl MemoryPool for QueryPool {
    fn name(&self) -> &str {
        self.shared.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.shared.register(consumer);
        let kind = OperatorKind::of(consumer);
        let now = Instant::now();
        self.account
            .lock()
            .begin(consumer.id(), consumer.name(), kind, now);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.account.lock().operators.remove(&consumer.id());
        self.shared.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.shared.grow(reservation, additional);
        let id = reservation.consumer().id();
        self.account.lock().add(id, additional, Instant::now());
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.shared.shrink(reservation, shrink);
        let id = reservation.consumer().id();
        self.account.lock().take(id, shrink, Instant::now());
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let consumer = reservation.consumer();
        if self.is_outbid(reservation, additional as u64) {
            self.account.lock().refuse(true);
            return Err(resources_datafusion_err!(
                "operator '{}': what is in memory saves others more time",
                consumer.name()
            ));
        }
        let granted = self.shared.try_grow(reservation, additional);
        let mut account = self.account.lock();
        match &granted {
            Ok(()) => account.add(consumer.id(), additional, Instant::now()),
            Err(_) => account.refuse(false),
        }
        granted
    }

    fn reserved(&self) -> usize {
        self.shared.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.shared.memory_limit()
    }
}

impl fmt::Debug for QueryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryPool")
            .field("shared", &self.shared)
            .field("account", &*self.account.lock())
            .finish()
    }
}

impl fmt::Display for QueryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.shared, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotshelf_cache::{CacheManager, CacheOptions, Prices};

    const MB: usize = 1 << 20;

    #[test]
    fn an_account_charges_bytes_for_the_time_they_are_held() {
        let mut account = Account::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        account.begin(1, "join", OperatorKind::Join, at(0));
        account.begin(2, "Sort", OperatorKind::Sort, at(0));
        account.add(1, 100, at(0));
        account.add(2, 50, at(2));
        account.take(1, 100, at(3));
        account.take(2, 50, at(3));
        account.add(1, 10, at(9));
        assert_eq!(
            account.total,
            QueryMemory {
                bytes_max: 150,
                bytes_max_by_kind: [50, 100, 0, 0],
                byte_s: 350.0,
                refusal_count: 0,
                outbid_count: 0,
            }
        );
    }

    /// A pool of 100 MB of which 60 are somebody's, where displacing a byte costs this much.
    fn town(refill_s_per_byte: f64, write_bandwidth: Option<f64>) -> Arc<OperatorPool> {
        let cache = CacheManager::new(CacheOptions {
            budget_bytes: 100 * MB as u64,
            ..CacheOptions::default()
        });
        let mut prices = Prices {
            confidence: 1.0,
            ..Prices::default()
        };
        prices.tiers.storage_bandwidth = 1e9;
        prices.shelves[0].refill_s_per_byte = refill_s_per_byte;
        cache.price_board().publish(&prices);
        cache.budget().reserve_operator(60 * MB as u64);
        Arc::new(OperatorPool::new(cache, 0, false, write_bandwidth))
    }

    /// An operator of a query of this weight that has 40 MB and asks for one more.
    fn asks(pool: &Arc<OperatorPool>, name: &str, weight: f64) -> (bool, QueryMemory) {
        let query = QueryPool::open(pool.clone(), 1, weight);
        let lender: Arc<dyn MemoryPool> = query.clone();
        let consumer = MemoryConsumer::new(name).with_can_spill(true);
        let operator = consumer.register(&lender);
        operator.try_grow(40 * MB).unwrap();
        let granted = operator.try_grow(MB).is_ok();
        (granted, query.taken())
    }

    #[test]
    fn a_query_is_charged_for_what_it_was_granted_and_the_shared_pool_keeps_its_limit() {
        let shared = town(0.0, None);
        let query = QueryPool::open(shared.clone(), 1, 1.0);
        let pool: Arc<dyn MemoryPool> = query.clone();
        let reservation = MemoryConsumer::new("other").register(&pool);
        reservation.try_grow(30 * MB).unwrap();
        assert!(reservation.try_grow(30 * MB).is_err());
        assert_eq!(shared.reserved(), 90 * MB);
        drop(reservation);
        assert_eq!(shared.reserved(), 60 * MB);
        let taken = query.taken();
        assert_eq!((taken.bytes_max, taken.refusal_count), (30 << 20, 1));
    }

    #[test]
    fn whoever_can_spill_does_it_for_others_unless_the_query_weighs_more() {
        // Bringing a byte back costs more than ten times what spilling it does.
        let pool = town(300e-9, None);
        for name in [
            "Sort[0]",
            "ExternalSorter[3]",
            "join",
            "aggregation",
            "FinalHashAggregateStream[1]",
            "SingleHashAggregateStream[1]",
        ] {
            let (granted, taken) = asks(&pool, name, 1.0);
            assert_eq!((granted, taken.outbid_count), (false, 1), "{name}");
            assert!(asks(&pool, name, 25.0).0, "{name}");
        }
        for name in ["PartialHashAggregateStream[0]", "HashJoinInput[0]"] {
            assert!(asks(&pool, name, 1.0).0, "{name}");
        }
    }

    #[test]
    fn what_operators_have_is_listed_by_name_while_they_have_it() {
        let pool = town(0.0, None);
        let query = QueryPool::open(pool.clone(), 7, 1.0);
        let lender: Arc<dyn MemoryPool> = query.clone();
        let operator = |name: &str| {
            let consumer = MemoryConsumer::new(name).with_can_spill(true);
            consumer.register(&lender)
        };
        let (one, two, idle) = (operator("Sort[0]"), operator("Sort[1]"), operator("join"));
        let other = operator("RepartitionExec[1]");
        one.try_grow(3 * MB).unwrap();
        two.try_grow(2 * MB).unwrap();
        other.try_grow(MB).unwrap();
        let listed = pool.operators();
        let names = listed
            .iter()
            .map(|row| (row.query, row.name.as_str(), row.bytes));
        let expected = [
            (7, "RepartitionExec", MB as u64),
            (7, "Sort", 5 * MB as u64),
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        assert_eq!(listed[0].saved_s_per_byte_s, None, "it cannot spill");
        assert!(listed[1].saved_s_per_byte_s > Some(0.0));
        drop((one, two, idle, other));
        assert_eq!(pool.operators(), []);
        drop((query, lender));
        assert_eq!(pool.queries.running().len(), 0);
    }

    #[test]
    fn writing_costs_what_the_profile_says() {
        assert!(!asks(&town(23e-9, None), "join", 1.0).0);
        assert!(asks(&town(23e-9, Some(4e8)), "join", 1.0).0);
    }

    #[test]
    fn an_aggregation_that_merges_and_a_query_that_begins_again_are_not_priced() {
        let pool = town(300e-9, None);
        let query = QueryPool::open(pool, 1, 1.0);
        let lender: Arc<dyn MemoryPool> = query.clone();
        let operator = |name: &str| {
            let consumer = MemoryConsumer::new(name).with_can_spill(true);
            consumer.register(&lender)
        };
        let aggregation = operator("FinalHashAggregateStream[0]");
        aggregation.try_grow(40 * MB).unwrap();
        assert!(aggregation.try_grow(MB).is_err());
        aggregation.free();
        aggregation.try_grow(40 * MB).unwrap();
        aggregation.try_grow(MB).unwrap();
        aggregation.free();
        let join = operator("join");
        join.try_grow(40 * MB).unwrap();
        join.free();
        join.try_grow(40 * MB).unwrap();
        assert!(join.try_grow(MB).is_err());
        query.forget_prices();
        join.try_grow(MB).unwrap();
        assert_eq!(query.taken().outbid_count, 2);
    }
}
