mod crash;
mod traced;

use std::collections::HashMap;
use std::thread;

use hotshelf_tier::region::{AnonymousOptions, FileOptions, Region};
use proptest::prelude::*;

use super::*;
use traced::TracedStore;

type Table = Dash<RegionStore>;

fn region_store(segments: u32) -> RegionStore {
    let bytes = Table::word_count(segments) * 8;
    let region = Region::anonymous(bytes, &AnonymousOptions::default()).unwrap();
    RegionStore::new(region.into_words().unwrap())
}

fn table(segments: u32) -> Table {
    Dash::create(region_store(segments), segments).unwrap()
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Insert(u64, u64),
    Remove(u64),
    Get(u64),
    Open,
}

/// Keys near each other, so that steps meet, and a few of all sizes.
fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![9 => 0u64..3000, 1 => any::<u64>()];
    prop_oneof![
        6 => (key.clone(), any::<u64>()).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => key.clone().prop_map(Step::Remove),
        2 => key.prop_map(Step::Get),
        1 => Just(Step::Open),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_steps_do_what_they_do_to_a_map(
        before in 0u64..2500,
        steps in proptest::collection::vec(step(), 1..600),
    ) {
        let mut table = table(24);
        let mut map = HashMap::new();
        for key in 0..before {
            prop_assert_eq!(table.insert(key, !key).unwrap(), map.insert(key, !key));
        }
        for step in steps {
            match step {
                Step::Insert(key, value) => {
                    prop_assert_eq!(table.insert(key, value).unwrap(), map.insert(key, value));
                }
                Step::Remove(key) => prop_assert_eq!(table.remove(key).unwrap(), map.remove(&key)),
                Step::Get(key) => prop_assert_eq!(table.get(key), map.get(&key).copied()),
                Step::Open => table = Dash::open(table.into_store()).unwrap(),
            }
        }
        prop_assert_eq!(table.record_count(), map.len());
        for (key, value) in map {
            prop_assert_eq!(table.get(key), Some(value));
        }
    }
}

#[test]
fn a_segment_is_more_than_nine_tenths_full_when_it_must_be_split() {
    let mut sum = 0.0;
    for seed in 0..20u64 {
        let table = table(1);
        let mut random = fastrand::Rng::with_seed(seed);
        while table.insert(random.u64(..), 1).is_ok() {}
        sum += table.load_factor();
    }
    println!(
        "records by slots when a segment is split: {:.3}",
        sum / 20.0
    );
    assert!(sum / 20.0 > 0.9);
}

#[test]
fn a_full_table_says_so_and_keeps_its_records() {
    let table = table(4);
    let mut count = 0;
    let refused = loop {
        match table.insert(count, count) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(refused, DashError::Full { segments: 1..=3 }),
        "{refused}"
    );
    assert!((0..count).all(|key| table.get(key) == Some(key)));
    assert_eq!(table.record_count() as u64, count);
}

#[test]
fn readers_and_writers_at_once_lose_nothing_and_see_nothing_half_made() {
    const KEYS: u64 = 12_000;
    let table = table(64);
    for key in 0..KEYS {
        table.insert(key, key << 20).unwrap();
    }
    thread::scope(|scope| {
        for writer in 0..2 {
            let table = &table;
            scope.spawn(move || {
                for key in (0..KEYS).filter(|key| key % 2 == writer) {
                    // Old keys get new values, new ones arrive and split segments, every fifth leaves.
                    table.insert(key, key << 20 | 1).unwrap();
                    table.insert(KEYS + key, (KEYS + key) << 20).unwrap();
                    if key % 5 == 0 {
                        table.remove(KEYS + key).unwrap();
                    }
                }
            });
        }
        for seed in 0..2 {
            let table = &table;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..60_000 {
                    let key = random.u64(..2 * KEYS);
                    let found = table.get(key);
                    assert!(key >= KEYS || found.is_some(), "{key} is gone");
                    assert!(
                        found.is_none_or(|value| value >> 20 == key),
                        "{key}: {found:?}"
                    );
                }
            });
        }
    });
    for key in 0..KEYS {
        assert_eq!(table.get(key), Some(key << 20 | 1));
        let expected = (key % 5 != 0).then_some((KEYS + key) << 20);
        assert_eq!(table.get(KEYS + key), expected);
    }
}

#[test]
fn a_table_in_a_file_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table");
    let options = FileOptions {
        len_bytes: Some(Table::word_count(8) as u64 * 8),
        ..FileOptions::default()
    };
    let open = || {
        let region = Region::open_file(&path, &options).unwrap();
        RegionStore::new(region.into_words().unwrap())
    };
    assert!(matches!(
        Dash::open(open()),
        Err(DashError::NotATable { .. })
    ));
    let table = Dash::create(open(), 8).unwrap();
    for key in 0..2000 {
        table.insert(key, key + 1).unwrap();
    }
    drop(table);
    let table = Dash::open(open()).unwrap();
    assert_eq!(table.record_count(), 2000);
    assert!((0..2000).all(|key| table.get(key) == Some(key + 1)));
}

#[test]
fn damaged_words_are_refused_or_read_without_a_panic() {
    let table = table(4);
    for key in 0..1500 {
        table.insert(key, key).unwrap();
    }
    let words: Vec<u64> = (0..table.store.words().len())
        .map(|at| table.store.load(at))
        .collect();
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..60 {
        let mut damaged = words.clone();
        for _ in 0..=round % 8 {
            let end = if round % 2 == 0 { 200 } else { damaged.len() };
            damaged[random.usize(..end)] = random.u64(..) >> random.u32(..64);
        }
        if let Ok(table) = Dash::open(TracedStore::new(&damaged)) {
            assert!((0..200).filter_map(|key| table.get(key)).count() <= 200);
        }
    }
}
