//! Which blocks stay in memory beside other things that are worth something.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use hotshelf_cache::model::ItemClass;
use hotshelf_cache::{CacheManager, Lender, PolicyKind, Rung};
use hotshelf_elf::keys::QueryBox;
use hotshelf_store::index::IndexCache;
use hotshelf_tier::io::IoOptions;

use super::*;
use crate::shelf::Shelf;

/// Things of 1 KiB each that save a second per byte and second, or nothing.
struct Rival {
    cache: Arc<CacheManager>,
    count: AtomicU64,
    saves: AtomicBool,
}

impl Lender for Rival {
    fn class(&self) -> ItemClass {
        ItemClass::LookUp
    }

    fn lent_bytes(&self) -> u64 {
        self.count.load(Relaxed) << 10
    }

    fn cheapest(&self) -> Option<Rung> {
        (self.lent_bytes() > 0).then_some(Rung {
            bytes: 1 << 10,
            saved_s_per_byte_s: f64::from(u8::from(self.saves.load(Relaxed))),
        })
    }

    fn give_back(&self) -> bool {
        let given = self.lent_bytes() > 0;
        if given {
            self.count.fetch_sub(1, Relaxed);
            self.cache.budget().release_operator(1 << 10);
        }
        given
    }
}

#[test]
fn blocks_stay_only_where_they_save_more_than_what_would_go_for_them() {
    let shelf = Shelf::new(false);
    let asker = shelf.asker(64 << 20, IoOptions::default());
    let (cache, budget) = (&asker.cache, asker.cache.budget());
    cache.set_policy(PolicyKind::HpCache);
    let every = QueryBox::unrestricted(3);
    let none = IndexCache::default().with_word("none").unwrap();
    asker.elfs.set_cache(0, none);
    asker.select(0, &every).unwrap();
    // What a query holds while it runs stays free, and half of its blocks; everything else is the rival's.
    let most_bytes = budget.snapshot().used_bytes_max - asker.operator_bytes();
    let working_bytes = most_bytes - shelf.elfs[0].leaf_bytes() / 2;
    let count = (budget.free_bytes() - working_bytes) >> 10;
    let rival = Arc::new(Rival {
        cache: cache.clone(),
        count: count.into(),
        saves: true.into(),
    });
    budget.try_reserve_operator(count << 10).unwrap();
    let lender: Arc<dyn Lender> = rival.clone();
    cache.add_lender(Arc::downgrade(&lender));
    let held = || asker.elfs.blocks_of(0).stats().held_bytes;
    asker.elfs.set_cache(0, IndexCache::default());
    asker.select(0, &every).unwrap();
    let held_bytes = held();
    assert!(held_bytes < shelf.elfs[0].leaf_bytes());
    assert_eq!(rival.count.load(Relaxed), count);
    rival.saves.store(false, Relaxed);
    asker.select(0, &every).unwrap();
    assert!(held() > held_bytes && rival.count.load(Relaxed) < count);
    assert!(budget.snapshot().used_bytes <= budget.limit_bytes());
}
