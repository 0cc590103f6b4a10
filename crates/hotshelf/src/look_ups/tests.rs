use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::physical_expr::expressions::{Column, lit};
use hotshelf_cache::{CacheManager, CacheOptions, FileId, PolicyKind, Prices};
use hotshelf_store::shelf::Shelf;

use super::*;

fn cache(policy: PolicyKind) -> Arc<CacheManager> {
    CacheManager::new(CacheOptions {
        budget_bytes: 8000,
        policy,
        ..CacheOptions::default()
    })
}

/// The look-ups of tables 1 and 2, which have files 0 to 3.
fn shelf(cache: &Arc<CacheManager>) -> Arc<KeptLookUps> {
    let look_ups = KeptLookUps::new(cache);
    for table in [1, 2] {
        drop(look_ups.note_table(table, files(3)));
    }
    look_ups
}

fn files(last: u32) -> Vec<FileId> {
    (0..=last).map(FileId).collect()
}

/// The look-up of a table's rows in files up to this one that have this value.
fn recipe(table: i64, file: u32, value: i32) -> Recipe {
    Recipe {
        rows: Rows {
            table,
            table_name: format!("t{table}"),
            files: files(file),
            columns: vec![0],
            schema: Arc::new(Schema::empty()),
            filters: vec![lit(value)],
        },
        steps: Vec::new(),
        exprs: vec![Arc::new(Column::new("k", 0))],
        is_unique: true,
        keeps_unmatched: false,
        has_rows: false,
        shelf: Shelf::Dram,
    }
}

fn of(recipe: &Recipe, bytes: u64, seconds: f64) -> Offer {
    Offer {
        recipe: recipe.clone(),
        bytes,
        cost: MissCost {
            seconds,
            weight: 1.0,
        },
    }
}

/// Whether it was kept.
fn offer(look_ups: &KeptLookUps, recipe: &Recipe, made: i32, bytes: u64, seconds: f64) -> bool {
    let mut is_released = false;
    let offered = look_ups.offer(of(recipe, bytes, seconds), made, || is_released = true);
    assert_eq!(offered.is_ok(), is_released);
    is_released
}

fn found(look_ups: &KeptLookUps, recipe: &Recipe) -> Option<i32> {
    look_ups.find::<i32>(recipe, 1.0).map(|kept| kept.made)
}

fn used(cache: &CacheManager) -> u64 {
    cache.budget().snapshot().operator_bytes
}

#[test]
fn a_look_up_is_found_by_an_equal_recipe_until_its_table_changes() {
    let cache = cache(PolicyKind::HpCache);
    let look_ups = shelf(&cache);
    assert!(offer(&look_ups, &recipe(1, 3, 7), 7, 100, 0.1));
    assert!(offer(&look_ups, &recipe(2, 3, 7), 27, 100, 0.1));
    assert_eq!(found(&look_ups, &recipe(1, 3, 7)), Some(7));
    assert_eq!(found(&look_ups, &recipe(1, 3, 8)), None);
    let other = Recipe {
        has_rows: true,
        ..recipe(1, 3, 7)
    };
    assert_eq!(found(&look_ups, &other), None);
    drop(look_ups.note_table(1, files(3)));
    assert_eq!(found(&look_ups, &recipe(1, 3, 7)), Some(7), "nothing new");

    drop(look_ups.note_table(1, files(4)));
    assert_eq!(
        (found(&look_ups, &recipe(1, 3, 7)), used(&cache)),
        (None, 100)
    );
    let late = look_ups.offer(of(&recipe(1, 3, 7), 100, 0.1), 7, || ());
    assert!(
        late.is_err(),
        "made by a query that began before the change"
    );
    assert!(offer(&look_ups, &recipe(1, 4, 7), 8, 100, 0.1));
    assert_eq!(found(&look_ups, &recipe(1, 4, 7)), Some(8));
    assert_eq!(found(&look_ups, &recipe(2, 3, 7)), Some(27));
    drop(look_ups.forget_table(2));
    assert!(!offer(&look_ups, &recipe(2, 3, 7), 27, 100, 0.1));
    let name = look_ups.name(recipe(1, 4, 7).number());
    assert_eq!((name.as_deref(), used(&cache)), (Some("t1 by k"), 100));
    drop(look_ups);
    assert_eq!(used(&cache), 0);
}

#[test]
fn what_two_queries_made_is_charged_once_and_as_long_as_somebody_has_it() {
    let cache = cache(PolicyKind::HpCache);
    let look_ups = shelf(&cache);
    let offer = |made| look_ups.offer(of(&recipe(1, 3, 7), 100, 0.1), made, || ());
    let (first, second) = (offer(1).ok(), offer(2).ok());
    let made = |one: &Option<Arc<OnBudget<i32>>>| one.as_ref().map(|one| one.made);
    assert_eq!((made(&first), made(&second)), (Some(1), Some(1)));
    assert_eq!((used(&cache), look_ups.ledger.held_bytes()), (100, 100));
    drop(look_ups.note_table(1, files(4)));
    assert_eq!((used(&cache), look_ups.ledger.held_bytes()), (100, 0));
    drop((first, second));
    assert_eq!(used(&cache), 0);
}

#[test]
fn the_idle_look_up_that_saves_least_is_given_back_first_and_those_in_use_stay() {
    let cache = cache(PolicyKind::HpCache);
    let look_ups = shelf(&cache);
    for (value, seconds) in [(1, 0.3), (2, 0.1), (3, 0.2)] {
        assert!(offer(&look_ups, &recipe(1, 3, value), value, 300, seconds));
    }
    let in_use = look_ups.find::<i32>(&recipe(1, 3, 2), 1.0);
    cache.budget().reserve_operator(7400);
    assert_eq!(found(&look_ups, &recipe(1, 3, 3)), None);
    assert_eq!(found(&look_ups, &recipe(1, 3, 1)), Some(1));
    cache.budget().reserve_operator(300);
    assert_eq!(found(&look_ups, &recipe(1, 3, 1)), None);
    assert_eq!(in_use.map(|kept| kept.made), Some(2));
    assert_eq!(used(&cache), 8000);
    cache.budget().release_operator(7700);
}

#[test]
fn within_their_share_those_that_save_more_take_the_place_of_others() {
    let cache = cache(PolicyKind::HpCache);
    let look_ups = shelf(&cache);
    assert!(
        !offer(&look_ups, &recipe(1, 3, 0), 0, 1001, 9.0),
        "too large"
    );
    for (value, seconds) in [(1, 0.1), (2, 0.3)] {
        assert!(offer(&look_ups, &recipe(1, 3, value), value, 400, seconds));
    }
    assert!(!offer(&look_ups, &recipe(1, 3, 3), 3, 400, 0.05));
    assert!(offer(&look_ups, &recipe(1, 3, 3), 3, 400, 0.2));
    let kept = [1, 2, 3].map(|value| found(&look_ups, &recipe(1, 3, value)).is_some());
    assert_eq!((kept, used(&cache)), ([false, true, true], 800));
    // What was given back is remembered: its uses count when it is made again.
    for _ in 0..8 {
        offer(&look_ups, &recipe(1, 3, 1), 1, 400, 0.1);
    }
    assert_eq!(found(&look_ups, &recipe(1, 3, 1)), Some(1));
}

#[test]
fn what_saves_less_than_the_memory_would_otherwise_is_not_kept() {
    let cache = cache(PolicyKind::HpCache);
    let look_ups = shelf(&cache);
    let mut prices = Prices {
        confidence: 1.0,
        ..Prices::default()
    };
    prices.shelves[0].saved_s_per_byte_s = 1e-3;
    cache.price_board().publish(&prices);
    cache.budget().reserve_operator(8000);
    assert!(!offer(&look_ups, &recipe(1, 3, 1), 1, 100, 0.1));
    assert!(
        offer(&look_ups, &recipe(1, 3, 2), 2, 100, 60.0),
        "it saves more"
    );
    cache.budget().release_operator(8000);
    assert!(
        offer(&look_ups, &recipe(1, 3, 1), 1, 100, 0.1),
        "it is free"
    );
}

#[test]
fn an_emptied_cache_has_none_and_one_that_keeps_nothing_keeps_none() {
    let cache = cache(PolicyKind::Lru);
    let look_ups = shelf(&cache);
    assert!(offer(&look_ups, &recipe(1, 3, 1), 1, 100, 0.1));
    cache.clear();
    assert_eq!(
        (found(&look_ups, &recipe(1, 3, 1)), used(&cache)),
        (None, 0)
    );
    assert!(offer(&look_ups, &recipe(1, 3, 1), 1, 100, 0.1));
    cache.set_policy(PolicyKind::None);
    assert_eq!(
        (found(&look_ups, &recipe(1, 3, 1)), used(&cache)),
        (None, 0)
    );
    assert!(!offer(&look_ups, &recipe(1, 3, 1), 1, 100, 0.1));
}

#[test]
fn recipes_with_long_lists_are_not_kept() {
    let cache = cache(PolicyKind::HpCache);
    let look_ups = shelf(&cache);
    let with_filters = |count| Recipe {
        rows: Rows {
            filters: (0..count).map(|value| lit(value) as _).collect(),
            ..recipe(1, 3, 7).rows
        },
        ..recipe(1, 3, 7)
    };
    assert!(offer(&look_ups, &with_filters(10), 7, 100, 0.1));
    assert!(!offer(&look_ups, &with_filters(1000), 7, 100, 0.1));
}
