//! What queries of a trace use besides columns: index blocks, footers, look-ups. They are in the memory that the
//! cache's columns are in, valued by the product's [`Ledger`] and given back in its order of eviction.

use super::{Trace, TraceQuery};
use crate::policy::mix;
use hotshelf_cache::model::{ItemClass, ItemUse};
use hotshelf_cache::{CacheManager, Ledger, Lender, MissCost, Rung, UseClock};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Something other than a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceItem {
    /// What it is.
    pub class: ItemClass,
    /// Its size.
    pub bytes: u64,
    /// What having it again takes, in seconds.
    pub miss_s: f64,
}

/// The items of one class in memory.
pub(super) struct ItemStore {
    cache: Arc<CacheManager>,
    ledger: Ledger,
    /// By number; those in memory.
    held: Mutex<BTreeSet<u64>>,
    bytes: BTreeMap<u64, u64>,
}

impl ItemStore {
    fn holds(&self, number: u64) -> bool {
        self.held.lock().contains(&number)
    }

    /// What a use of an item takes, in seconds: nothing if it is in memory, else `miss_s`.
    fn take(&self, number: u64, miss_s: f64, weight: f64) -> f64 {
        if self.holds(number) {
            self.ledger.hit(number, weight);
            return 0.0;
        }
        // Without the lock: the memory may come from here.
        let bytes = self.bytes[&number];
        let fits = self.cache.budget().try_reserve_operator(bytes).is_ok();
        let seconds = miss_s;
        let cost = MissCost { seconds, weight };
        self.ledger.miss(number, bytes, cost);
        match fits {
            true => drop(self.held.lock().insert(number)),
            false => self.ledger.gave_back(number),
        }
        miss_s
    }

    fn cheapest_number(&self) -> Option<(u64, f64)> {
        let held = self.held.lock();
        let worths = held
            .iter()
            .map(|number| (*number, self.ledger.density(*number)));
        worths.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl Lender for ItemStore {
    fn class(&self) -> ItemClass {
        self.ledger.class()
    }

    fn lent_bytes(&self) -> u64 {
        self.ledger.held_bytes()
    }

    fn uses(&self) -> Vec<ItemUse> {
        self.ledger.uses()
    }

    fn cheapest(&self) -> Option<Rung> {
        let (number, saved_s_per_byte_s) = self.cheapest_number()?;
        Some(Rung {
            bytes: self.bytes[&number],
            saved_s_per_byte_s,
        })
    }

    fn give_back(&self) -> bool {
        let Some((number, _)) = self.cheapest_number() else {
            return false;
        };
        self.held.lock().remove(&number);
        self.ledger.gave_back(number);
        self.cache.budget().release_operator(self.bytes[&number]);
        true
    }
}

/// The items of a trace, on the budget of a cache.
pub(super) struct Items {
    stores: BTreeMap<ItemClass, Arc<ItemStore>>,
    /// The virtual time, in nanoseconds.
    now_ns: Arc<AtomicU64>,
}

impl Items {
    pub(super) fn new(trace: &Trace, cache: &Arc<CacheManager>) -> Self {
        let now_ns = Arc::new(AtomicU64::new(0));
        let source = Arc::clone(&now_ns);
        let clock = Arc::new(UseClock::of(move || source.load(Relaxed)));
        let mut bytes: BTreeMap<ItemClass, BTreeMap<u64, u64>> = BTreeMap::new();
        for (item, number) in trace.items.iter().zip(0..) {
            bytes
                .entry(item.class)
                .or_default()
                .insert(number, item.bytes);
        }
        let store = |(class, bytes)| {
            let clock = Arc::clone(&clock);
            let store = Arc::new(ItemStore {
                cache: Arc::clone(cache),
                ledger: Ledger::new(class, clock),
                held: Mutex::default(),
                bytes,
            });
            let lender: Arc<dyn Lender> = store.clone();
            cache.add_lender(Arc::downgrade(&lender));
            (class, store)
        };
        Self {
            stores: bytes.into_iter().map(store).collect(),
            now_ns,
        }
    }

    fn set_time(&self, now_s: f64) {
        self.now_ns.store((now_s * 1e9) as u64, Relaxed);
    }

    /// What a query's uses of items take at a moment, in seconds.
    pub(super) fn take(&self, trace: &Trace, query: &TraceQuery, now_s: f64) -> f64 {
        self.set_time(now_s);
        let of_item = |idx: &usize| {
            let item = &trace.items[*idx];
            self.stores[&item.class].take(*idx as u64, item.miss_s, query.priority)
        };
        query.items.iter().map(of_item).sum()
    }

    /// The same with a cache below this one that is offered what passes: `below_s` are the times that bytes take from
    /// there, and from where everything is.
    pub(super) fn take_through(
        &self,
        below: &Self,
        (trace, query): (&Trace, &TraceQuery),
        now_s: f64,
        below_s: impl Fn(u64) -> [f64; 2],
    ) -> f64 {
        self.set_time(now_s);
        below.set_time(now_s);
        let of_item = |idx: &usize| {
            let (item, number) = (&trace.items[*idx], *idx as u64);
            let store = &self.stores[&item.class];
            let [near_s, far_s] = below_s(item.bytes);
            let miss_s = match store.holds(number) {
                true => 0.0,
                false => {
                    let passed = below.stores[&item.class].take(number, far_s, query.priority);
                    if passed > 0.0 { far_s } else { near_s }
                }
            };
            store.take(number, miss_s, query.priority)
        };
        query.items.iter().map(of_item).sum()
    }

    /// All that are in memory or lately were.
    pub(super) fn uses(&self) -> Vec<ItemUse> {
        self.stores
            .values()
            .flat_map(|store| store.uses())
            .collect()
    }
}

/// How many items of each class a trace gets, their bytes as a part of a column's, and how many times longer than
/// reading as many bytes of a column having one of them takes.
const CLASSES: [(ItemClass, u64, f64, f64); 3] = [
    (ItemClass::IndexBlock, 120, 0.01, 3.0),
    (ItemClass::Metadata, 200, 0.001, 8.0),
    (ItemClass::LookUp, 8, 0.08, 5.0),
];

/// The same trace with index blocks, footers and look-ups. Each query uses a dozen index blocks, some of which are much
/// more popular than others, the footers of one part of the table, and the look-up of its template.
pub fn with_items(mut trace: Trace, column_bytes: u64, storage_bandwidth: f64) -> Trace {
    let mut first = BTreeMap::new();
    for (class, count, part, slower) in CLASSES {
        first.insert(class, trace.items.len());
        let bytes = (part * column_bytes as f64) as u64;
        let item = TraceItem {
            class,
            bytes,
            miss_s: slower * bytes as f64 / storage_bandwidth,
        };
        trace.items.extend((0..count).map(|_| item));
    }
    for (query, number) in trace.queries.iter_mut().zip(0u64..) {
        let draw = |of: u64, count: u64| mix(number << 16 | of) % count;
        // The lesser of three draws: low numbers are popular.
        let popular = |of: u64| (0..3).map(|n| draw(3 * of + n, 120)).min().unwrap_or(0);
        let blocks = (0..12).map(|of| first[&ItemClass::IndexBlock] + popular(of) as usize);
        let part = 20 * (draw(99, 10) / 3 * 3) as usize;
        let footers = (0..20).map(|of| first[&ItemClass::Metadata] + part + of);
        let template = query
            .name
            .bytes()
            .fold(0, |sum, byte| sum + usize::from(byte));
        let look_up = first[&ItemClass::LookUp] + template % 8;
        query.items = blocks.chain(footers).chain([look_up]).collect();
    }
    trace
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::CachePolicy;
    use crate::simulate::{Machine, Mix, Setup, mix_trace, simulate};

    const COLUMN_BYTES: u64 = 1_000_000_000;

    fn machine() -> Machine {
        Machine {
            storage_bandwidth: 1.5e9,
            memory_bandwidth: 14.6e9,
            missing_byte_passes: 2.0,
            lookahead_bytes: 64_000_000,
            setup_s: 0.02,
        }
    }

    fn trace(kind: Mix) -> Trace {
        let bandwidth = machine().storage_bandwidth;
        let mut trace = mix_trace(kind, COLUMN_BYTES, bandwidth);
        trace.segment_bytes *= 8;
        with_items(trace, COLUMN_BYTES, bandwidth)
    }

    fn total_s(kind: Mix, policy: CachePolicy, budget_gb: f64, are_items_known: bool) -> f64 {
        let setup = Setup {
            policy,
            budget_bytes: (budget_gb * 1e9) as u64,
            are_items_known,
            ..Setup::default()
        };
        simulate(&machine(), &trace(kind), &setup).total_s()
    }

    #[test]
    fn items_that_share_the_memory_by_value_cost_no_more_than_without_and_less_than_recency() {
        for kind in Mix::ALL {
            let of = |policy, are_known| total_s(kind, policy, 3.0, are_known);
            let (known, unknown) = (
                of(CachePolicy::HpCache, true),
                of(CachePolicy::HpCache, false),
            );
            let recent = of(CachePolicy::Lru, false);
            assert!(known <= 1.03 * unknown, "{kind:?}: {known} {unknown}");
            assert!(known <= 1.03 * recent, "{kind:?}: {known} {recent}");
        }
    }

    #[test]
    fn more_memory_is_never_much_slower_with_items() {
        for kind in [Mix::Uniform, Mix::TwoTenants] {
            let times_s = [1.5, 3.0, 6.0, 12.0, 24.0]
                .map(|budget_gb| total_s(kind, CachePolicy::HpCache, budget_gb, true));
            for pair in times_s.windows(2) {
                assert!(pair[1] <= 1.03 * pair[0], "{kind:?}: {times_s:?}");
            }
        }
    }

    #[test]
    fn simulations_with_items_repeat_exactly() {
        let time_s = || total_s(Mix::Skewed, CachePolicy::HpCache, 2.0, true);
        assert_eq!(time_s(), time_s());
    }
}
