//! One order of eviction for everything that holds memory of the budget: segments, index blocks, metadata, idle
//! look-ups.
//!
//! Each [`Lender`] says what the cheapest thing that it could return is worth. Memory is taken from the lender whose
//! cheapest thing is worth least per byte, again and again. What a lender keeps and in which order is its own affair.

use crate::model::{ItemClass, ItemUse};
use parking_lot::RwLock;
use std::sync::{Arc, Weak};

/// The cheapest thing a lender could give back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rung {
    /// Its size in bytes.
    pub bytes: u64,
    /// What it saves, in seconds per byte and second: see [`ItemUse::density`](crate::model::ItemUse::density).
    pub saved_s_per_byte_s: f64,
}

/// Keeps things in memory that can be obtained again, charged to the budget as an operator's. Its methods are
/// called in the middle of admission: they may return charges, and must not ask the cache for segments.
pub trait Lender: Send + Sync {
    /// What it keeps.
    fn class(&self) -> ItemClass;

    /// Bytes of everything that could be given back.
    fn lent_bytes(&self) -> u64;

    /// What it keeps and what it lately gave back, with their uses: [`Ledger::uses`](crate::Ledger::uses). The tuner
    /// values them beside columns, and their bytes are no longer counted as operators'. Those of a lender that says
    /// nothing are.
    fn uses(&self) -> Vec<ItemUse> {
        Vec::new()
    }

    /// The cheapest thing that could be given back now. Nothing: all is in use, or there is none.
    fn cheapest(&self) -> Option<Rung>;

    /// Gives the cheapest thing back and returns its charge to the budget. False: nothing could be given.
    fn give_back(&self) -> bool;

    /// The cache was emptied, or keeps nothing from here on: drops what was made of its segments. What is read from
    /// storage again, such as footers, may stay.
    fn clear(&self) {}
}

/// The lenders of a budget besides the segment cache itself.
#[derive(Default)]
pub(crate) struct Ladder {
    lenders: RwLock<Vec<Weak<dyn Lender>>>,
}

impl Ladder {
    pub(crate) fn join(&self, lender: Weak<dyn Lender>) {
        let mut lenders = self.lenders.write();
        lenders.retain(|lender| lender.strong_count() > 0);
        lenders.push(lender);
    }

    /// Bytes that all lenders together could give back.
    pub(crate) fn lent_bytes(&self) -> u64 {
        let lenders = self.lenders.read();
        let alive = lenders.iter().filter_map(Weak::upgrade);
        alive.map(|lender| lender.lent_bytes()).sum()
    }

    /// The lenders that are still there.
    pub(crate) fn lenders(&self) -> Vec<Arc<dyn Lender>> {
        let lenders = self.lenders.read();
        lenders.iter().filter_map(Weak::upgrade).collect()
    }

    /// What the cheapest thing saves that a lender could give back, in seconds per byte and second.
    pub(crate) fn cheapest_saved(&self) -> Option<f64> {
        let lenders = self.lenders();
        let rungs = lenders.iter().filter_map(|lender| lender.cheapest());
        rungs
            .map(|rung| rung.saved_s_per_byte_s)
            .min_by(f64::total_cmp)
    }

    /// Lets lenders drop what was made of segments.
    pub(crate) fn clear(&self) {
        self.lenders().iter().for_each(|lender| lender.clear());
    }

    /// Lets the lender with the cheapest thing give it back, if that is worth less than `below`. A lender that cannot
    /// is passed over. Returns whose it was and about how many bytes.
    pub(crate) fn take_below(&self, below: f64) -> Option<(ItemClass, u64)> {
        let mut lenders: Vec<(Rung, Arc<dyn Lender>)> = Vec::new();
        for lender in self.lenders() {
            if let Some(rung) = lender
                .cheapest()
                .filter(|rung| rung.saved_s_per_byte_s < below)
            {
                lenders.push((rung, lender));
            }
        }
        lenders.sort_by(|(a, _), (b, _)| a.saved_s_per_byte_s.total_cmp(&b.saved_s_per_byte_s));
        let given = lenders.iter().find(|(_, lender)| lender.give_back());
        given.map(|(rung, lender)| (lender.class(), rung.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use crate::{CacheManager, CacheOptions, PolicyKind, Prices, ScanContext, ShelfPrice};
    use parking_lot::Mutex;

    /// Blocks of 10 bytes each, by what they save.
    struct Blocks {
        cache: Arc<CacheManager>,
        worths: Mutex<Vec<f64>>,
    }

    impl Lender for Blocks {
        fn class(&self) -> ItemClass {
            ItemClass::IndexBlock
        }

        fn lent_bytes(&self) -> u64 {
            10 * self.worths.lock().len() as u64
        }

        fn cheapest(&self) -> Option<Rung> {
            let worths = self.worths.lock();
            let cheapest = worths.iter().copied().min_by(f64::total_cmp)?;
            Some(Rung {
                bytes: 10,
                saved_s_per_byte_s: cheapest,
            })
        }

        fn give_back(&self) -> bool {
            let Some(rung) = self.cheapest() else {
                return false;
            };
            let mut worths = self.worths.lock();
            worths.retain(|worth| *worth != rung.saved_s_per_byte_s);
            drop(worths);
            self.cache.budget().release_operator(rung.bytes);
            true
        }
    }

    /// A cache of 100 bytes with three segments and three blocks of 10 bytes. Segments have a price of 5.
    fn shared() -> (Arc<CacheManager>, Arc<Blocks>) {
        let cache = CacheManager::new(CacheOptions {
            budget_bytes: 60,
            policy: PolicyKind::HpCache,
            transit_bytes: Some(0),
            ..CacheOptions::default()
        });
        cache.add_file(Arc::new(InstantReader), data_segments(3, 10));
        let share = |column| crate::ColumnShare {
            column: crate::ColumnId(column),
            bytes: 30,
            proportion: 1.0,
            from: 0.0,
        };
        cache.set_placement(crate::Placement::new((0..3).map(share)));
        let scan = Arc::new(ScanContext::new(1, 0, 0));
        (0..3).for_each(|idx| drop(now(cache.request(key(idx), &scan))));
        let mut prices = Prices {
            confidence: 1.0,
            ..Prices::default()
        };
        prices.shelves[0] = ShelfPrice {
            saved_s_per_byte_s: 5.0,
            refill_s_per_byte: 0.0,
        };
        cache.price_board().publish(&prices);
        cache.budget().reserve_operator(30);
        let blocks = Arc::new(Blocks {
            cache: Arc::clone(&cache),
            worths: Mutex::new(vec![7.0, 1.0, 3.0]),
        });
        let lender: Arc<dyn Lender> = blocks.clone();
        cache.add_lender(Arc::downgrade(&lender));
        (cache, blocks)
    }

    #[test]
    fn memory_is_taken_from_whoever_makes_least_of_it_whatever_it_is() {
        let (cache, blocks) = shared();
        let mut seen = Vec::new();
        for _ in 0..6 {
            cache.budget().reserve_operator(10);
            let cached_bytes = cache.budget().snapshot().cached_bytes;
            seen.push((cached_bytes, blocks.worths.lock().clone()));
        }
        let only_7 = || vec![7.0];
        assert_eq!(
            seen,
            [
                (30, vec![7.0, 3.0]),
                (30, only_7()),
                (20, only_7()),
                (10, only_7()),
                (0, only_7()),
                (0, vec![])
            ]
        );
    }

    #[test]
    fn what_nobody_needs_now_stays_if_something_else_would_go_that_saves_less() {
        let (cache, blocks) = shared();
        let stays = |saved: f64| cache.should_stay(10, saved);
        // The block of 1 would go first, later the segments at 5, for the block of 7 saves more.
        assert_eq!([stays(0.5), stays(2.0)], [false, true]);
        blocks.worths.lock().retain(|worth| *worth == 7.0);
        assert_eq!([stays(4.0), stays(6.0)], [false, true]);
        cache.set_placement(crate::Placement::default());
        assert!(stays(0.5), "the segments are not wanted any more");
        cache.clear();
        assert!(stays(0.0), "memory is free");
        cache.budget().reserve_operator(30);
        assert_eq!([stays(4.0), stays(6.0)], [false, true]);
        cache.set_policy(PolicyKind::Lru);
        assert!(stays(0.5), "without a tuner segments have no price");
    }

    #[test]
    fn an_operator_is_refused_only_if_segments_and_lenders_together_are_not_enough() {
        let (cache, blocks) = shared();
        assert!(cache.budget().try_reserve_operator(61).is_err());
        assert_eq!(cache.budget().snapshot().cached_bytes, 30);
        cache.budget().try_reserve_operator(55).unwrap();
        assert!(blocks.worths.lock().is_empty());
    }

    #[test]
    fn metadata_leaves_by_what_it_saves_before_or_after_blocks_and_segments() {
        // Used by a query without weight, and by one that weighs more than everything else.
        for (weight, blocks_then, cached_then) in [(0.0, 3, 30), (1e18, 1, 40)] {
            let (cache, blocks) = shared();
            cache.set_budget_bytes(70);
            let mut segments = data_segments(1, 10);
            segments[0].kind = crate::SegmentKind::Metadata;
            let file = cache.add_file(Arc::new(InstantReader), segments);
            let mut scan = ScanContext::new(2, 0, 0);
            scan.weight = weight;
            let zone_map = crate::SegmentKey {
                file,
                segment_idx: 0,
            };
            drop(now(cache.request(zone_map, &Arc::new(scan))));
            assert_eq!(cache.budget().snapshot().metadata_bytes, 10);
            let row = |cache: &CacheManager| {
                let rows = cache.memory_market().into_iter();
                let mut rows = rows.filter(|row| row.class == ItemClass::Metadata);
                rows.next().map(|row| row.bytes)
            };
            assert_eq!(row(&cache), Some(10));
            cache.budget().reserve_operator(10);
            if weight > 0.0 {
                cache.budget().reserve_operator(10);
            }
            let held = blocks.worths.lock().len();
            let cached_bytes = cache.budget().snapshot().cached_bytes;
            assert_eq!((held, cached_bytes), (blocks_then, cached_then), "{weight}");
            assert_eq!(row(&cache), Some(if weight > 0.0 { 10 } else { 0 }));
        }
    }

    #[test]
    fn a_lender_that_is_gone_lends_nothing() {
        let (cache, blocks) = shared();
        drop(blocks);
        cache.budget().reserve_operator(10);
        assert_eq!(cache.budget().snapshot().cached_bytes, 20);
    }
}
