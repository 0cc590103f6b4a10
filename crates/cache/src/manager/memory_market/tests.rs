use super::*;
use crate::model::Observation;
use crate::testing::*;
use crate::tune::Goal;
use crate::tuner::{TunerOptions, TunerThread};
use crate::{
    CacheManager, CacheOptions, ChangeReason, Ledger, Lender, MissCost, PolicyKind, Prices, Rung,
    ScanContext, ShelfPrice,
};
use ItemClass as Class;
use std::sync::Arc;

const MB: u64 = 1_000_000;

/// Index blocks, each with the bytes that its ledger knows.
struct Blocks {
    cache: Arc<CacheManager>,
    ledger: Ledger,
}

impl Blocks {
    fn read(&self, number: u64, bytes: u64, seconds: f64) {
        self.cache.budget().reserve_operator(bytes);
        let weight = 1.0;
        let cost = MissCost { seconds, weight };
        self.ledger.miss(number, bytes, cost);
    }

    fn held(&self) -> Option<ItemUse> {
        let held = self
            .ledger
            .uses()
            .into_iter()
            .filter(|item| item.held_bytes > 0);
        held.min_by(|a, b| a.density().total_cmp(&b.density()))
    }
}

impl Lender for Blocks {
    fn class(&self) -> Class {
        Class::IndexBlock
    }

    fn lent_bytes(&self) -> u64 {
        self.ledger.held_bytes()
    }

    fn uses(&self) -> Vec<ItemUse> {
        self.ledger.uses()
    }

    fn cheapest(&self) -> Option<Rung> {
        let item = self.held()?;
        Some(Rung {
            bytes: item.held_bytes,
            saved_s_per_byte_s: item.density(),
        })
    }

    fn give_back(&self) -> bool {
        let Some(item) = self.held() else {
            return false;
        };
        self.ledger.gave_back(item.id.number);
        self.cache.budget().release_operator(item.held_bytes);
        true
    }
}

/// A cache that may keep 10 MB, a column of 8 MB, index blocks, and a tuner that steps when the test calls it.
struct Town {
    cache: Arc<CacheManager>,
    blocks: Arc<Blocks>,
    tuner: TunerThread,
    query: std::cell::Cell<u64>,
}

impl Town {
    fn new() -> Self {
        let cache = CacheManager::new(CacheOptions {
            budget_bytes: 11 * MB,
            policy: PolicyKind::HpCache,
            transit_bytes: Some(MB),
            ..CacheOptions::default()
        });
        cache.add_file(Arc::new(InstantReader), data_segments(8, MB));
        let blocks = Arc::new(Blocks {
            cache: Arc::clone(&cache),
            ledger: cache.ledger(Class::IndexBlock),
        });
        let lender: Arc<dyn Lender> = blocks.clone();
        cache.add_lender(Arc::downgrade(&lender));
        let options = TunerOptions {
            period_ms: 3_600_000,
            storage_bandwidth: Some(1e9),
            ..TunerOptions::default()
        };
        let tuner = TunerThread::start(&cache, options).expect("threads can be started");
        Self {
            cache,
            blocks,
            tuner,
            query: Default::default(),
        }
    }

    /// A query reads the column; the tuner takes a step.
    fn scan(&self) {
        self.query.set(self.query.get() + 1);
        let scan = Arc::new(ScanContext::new(self.query.get(), 0, 0));
        (0..8).for_each(|idx| drop(now(self.cache.request(key(idx), &scan))));
        self.tuner.observe(Observation {
            query: self.query.get(),
            pipeline: 0,
            template: 1,
            columns: vec![(ColumnId(0), 8 * MB)],
            processed_bytes: 8 * MB,
            storage_bytes: 0,
            busy_ns: 100_000,
            wait_ns: 0,
            worker_count: 1,
            priority: 1.0,
            finished: true,
        });
        self.tuner.step_now();
    }

    fn class(&self, class: Class) -> MarketRow {
        let rows = self.cache.memory_market();
        let row = rows
            .iter()
            .find(|row| row.class == class && row.number.is_none());
        *row.expect("each class has a row")
    }
}

#[test]
fn the_market_has_a_row_for_each_class_and_each_large_item_and_every_byte_is_somebodys() {
    let town = Town::new();
    (0..30).for_each(|number| town.blocks.read(number, 10_000 + number, 1e-3));
    town.cache.budget().reserve_operator(MB);
    town.scan();
    let rows = town.cache.memory_market();
    let classes: Vec<&MarketRow> = rows.iter().filter(|row| row.number.is_none()).collect();
    assert_eq!(
        classes.iter().map(|row| row.class).collect::<Vec<_>>(),
        Class::ALL
    );
    let used_bytes: u64 = classes.iter().map(|row| row.bytes).sum();
    assert_eq!(used_bytes, town.cache.budget().snapshot().used_bytes);
    assert_eq!(town.class(Class::Operator).bytes, MB);
    assert_eq!(rows.len(), Class::COUNT + ITEM_ROWS_MAX);
    let largest = rows.iter().find(|row| row.number.is_some()).expect("items");
    assert_eq!((largest.class, largest.bytes), (Class::Column, 8 * MB));
    let blocks = rows.iter().filter(|row| row.class == Class::IndexBlock);
    let largest_block = blocks
        .filter(|row| row.number.is_some())
        .map(|row| row.bytes)
        .next();
    assert_eq!(largest_block, Some(10_029));
}

#[test]
fn segments_are_worth_the_reading_they_spare_and_blocks_what_their_uses_cost() {
    let town = Town::new();
    town.blocks.read(1, MB, 0.5);
    let cost = MissCost {
        seconds: 0.1,
        weight: 1.0,
    };
    town.blocks.ledger.miss(2, MB, cost);
    town.blocks.ledger.gave_back(2);
    (0..3).for_each(|_| town.scan());
    let block = town.class(Class::IndexBlock);
    let rate = town.blocks.ledger.density(1);
    assert!((block.saved_s_per_byte_s.expect("used") / rate - 1.0).abs() < 0.01);
    let next = town.blocks.ledger.density(2);
    assert!((block.next_s_per_byte_s.expect("one is out") / next - 1.0).abs() < 0.01);
    let segments = town.class(Class::Column);
    assert!(segments.saved_s_per_byte_s.expect("tuned") > 0.0);
    assert_eq!(
        segments.next_s_per_byte_s,
        Some(0.0),
        "all of it is in memory"
    );
    town.cache.clear();
    let segments = town.class(Class::Column);
    assert_eq!(segments.saved_s_per_byte_s, Some(0.0));
    assert!(segments.next_s_per_byte_s.expect("tuned") > 0.0);
}

#[test]
fn changes_have_a_reason() {
    let town = Town::new();
    town.blocks.read(1, 2 * MB, 0.0);
    town.scan();
    let why = |class| town.class(class).last_change.map(|change| change.why);
    assert_eq!(why(Class::Column), Some(ChangeReason::Used));
    assert_eq!(why(Class::IndexBlock), Some(ChangeReason::Used));
    assert_eq!(why(Class::LookUp), None);
    town.cache.budget().reserve_operator(11 * MB);
    town.tuner.step_now();
    assert_eq!(why(Class::IndexBlock), Some(ChangeReason::Taken));
    assert_eq!(why(Class::Column), Some(ChangeReason::Taken));
    assert_eq!(why(Class::Operator), Some(ChangeReason::Used));
    town.cache.budget().release_operator(11 * MB);
    town.scan();
    assert_eq!(why(Class::Operator), Some(ChangeReason::Released));
    town.cache.set_budget_bytes(4 * MB);
    town.tuner.step_now();
    assert_eq!(why(Class::Column), Some(ChangeReason::Resized));
    let change = town.class(Class::Column).last_change.expect("it changed");
    assert!(
        change.bytes <= -4 * MB as i64 && change.age_s < 60.0,
        "{change:?}"
    );
}

#[test]
fn blocks_that_lenders_report_compete_with_columns_and_are_no_operators() {
    let town = Town::new();
    let kept = |town: &Town| town.cache.placement().kept_bytes();
    town.scan();
    let without = kept(&town);
    town.blocks.read(1, 4 * MB, 1e6);
    town.scan();
    // 10 MB less 4 for the block.
    assert!(without > 7.9e6 * 0.8, "{without}");
    assert!(
        kept(&town) <= 6.01e6 && kept(&town) > 5.5e6,
        "{}",
        kept(&town)
    );
    town.blocks.ledger.gave_back(1);
    town.cache.budget().release_operator(4 * MB);
    town.scan();
    assert!(kept(&town) <= 6.01e6, "it is wanted back: {}", kept(&town));
    town.blocks.ledger.forget(1);
    town.scan();
    assert!(kept(&town) > 6.2e6, "{} of {without}", kept(&town));
}

#[test]
fn who_asks_pays_for_what_is_displaced_and_nothing_for_free_memory() {
    let town = Town::new();
    let mut prices = Prices {
        confidence: 1.0,
        ..Prices::default()
    };
    prices.shelves[0] = ShelfPrice {
        saved_s_per_byte_s: 1e-6,
        refill_s_per_byte: 1e-9,
    };
    town.cache.price_board().publish(&prices);
    // Ten seconds of a megabyte cost ten seconds.
    let ask = |saved_s| Ask {
        bytes: MB,
        saved_s,
        remaining_s: 10.0,
        weight: 1.0,
    };
    assert_eq!(town.cache.ask(&ask(0.1)), Answer::Grant);
    town.cache.budget().reserve_operator(11 * MB);
    assert_eq!(town.cache.ask(&ask(0.1)), Answer::Refuse);
    assert_eq!(town.cache.ask(&ask(11.0)), Answer::Grant);
    assert_eq!(town.cache.market().asks.counts(), (2, 1));
    let operators = town.class(Class::Operator);
    assert!(operators.saved_s_per_byte_s.expect("asked") > 1e-8);
    let refused = operators.next_s_per_byte_s.expect("refused");
    assert!((refused / 1e-8 - 1.0).abs() < 1e-9, "{refused}");
    town.cache.budget().release_operator(11 * MB);
}

#[test]
fn a_query_weighs_its_priority_and_more_if_its_template_misses_the_response_time() {
    let town = Town::new();
    let weight = |template| town.cache.query_weight(template, 2.0);
    assert_eq!(weight(1), 2.0);
    town.scan();
    assert_eq!(weight(1), 2.0, "no response time is asked for");
    let goal = |threshold_s| Goal::Threshold {
        threshold_s,
        scale: 1e-3,
    };
    town.tuner.configure(|options| options.goal = goal(3_600.0));
    town.scan();
    assert_eq!(weight(1), 2.0, "it is fast enough");
    town.tuner.configure(|options| options.goal = goal(1e-9));
    town.scan();
    assert!(weight(1) > 100.0, "{}", weight(1));
    assert_eq!(weight(2), 2.0, "of another template nothing is known");
}

#[test]
fn shelves_are_memory_alone_until_the_machine_is_known() {
    let town = Town::new();
    let shelves = town.cache.shelves();
    assert_eq!((shelves.len(), shelves[0].name), (1, "memory"));
    assert_eq!((shelves[0].age_s, shelves[0].bandwidth), (None, None));
    (0..2).for_each(|_| town.scan());
    let shelves = town.cache.shelves();
    assert_eq!(
        shelves.iter().map(|row| row.name).collect::<Vec<_>>(),
        ["memory", "storage"]
    );
    assert_eq!(shelves[0].capacity_bytes, Some(11 * MB));
    assert_eq!(
        shelves[0].used_bytes,
        town.cache.budget().snapshot().used_bytes
    );
    assert_eq!(
        (shelves[1].capacity_bytes, shelves[1].used_bytes),
        (None, 8 * MB)
    );
    assert_eq!(shelves[1].bandwidth, Some(1e9));
    assert!(shelves[0].age_s.is_some_and(|age_s| age_s < 60.0));
    assert!(shelves[0].confidence > 0.0);
}
