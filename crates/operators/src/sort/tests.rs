//! Sorted rows equal those of a sort in memory, at any grant.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray, UInt32Array,
};
use arrow_ord::sort::{SortColumn, lexsort_to_indices};
use arrow_schema::SortOptions as KeyOptions;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use proptest::prelude::*;

use super::*;
use crate::memory::testing::FickleBroker;
use crate::memory::{Broker, FixedPool};
use crate::testing::{TestEnvironment, batch};
use crate::{OperatorError, Result};

mod long_keys;
mod together;

/// The column that numbers the rows of [`batch`].
const ROW_COLUMN: usize = 8;

/// What the sort must return: all rows in the order of the keys, equal ones in the order in which they came.
fn expected(batches: &[RecordBatch], options: &SortOptions) -> RecordBatch {
    let all = concat_batches(&batches[0].schema(), batches).unwrap();
    let column = |key: &SortKey| SortColumn {
        values: all.column(key.column).clone(),
        options: Some(key.options),
    };
    let mut columns: Vec<SortColumn> = options.keys.iter().map(column).collect();
    let rows = UInt32Array::from_iter_values(0..all.num_rows() as u32);
    columns.push(SortColumn {
        values: Arc::new(rows),
        options: None,
    });
    let order = lexsort_to_indices(&columns, options.limit).unwrap();
    take_record_batch(&all, &order).unwrap()
}

fn sort(
    environment: &Environment,
    batches: &[RecordBatch],
    options: &SortOptions,
) -> Result<(RecordBatch, SortStats)> {
    let schema = batches[0].schema();
    let mut sorter = Sorter::new(environment, "sort", schema.clone(), options.clone())?;
    for batch in batches {
        sorter.push(batch.clone())?;
    }
    let mut sorted = sorter.finish()?;
    let parts: Vec<RecordBatch> = sorted.by_ref().collect::<Result<_>>()?;
    assert!(
        parts
            .iter()
            .all(|part| part.num_rows() <= options.batch_row_count)
    );
    Ok((concat_batches(&schema, &parts)?, sorted.stats()))
}

fn key(column: usize, descending: bool, nulls_first: bool) -> SortKey {
    let options = KeyOptions {
        descending,
        nulls_first,
    };
    SortKey { column, options }
}

fn keys() -> impl Strategy<Value = Vec<SortKey>> {
    let key = (0..ROW_COLUMN, any::<bool>(), any::<bool>());
    let key = key
        .prop_map(|(column, descending, nulls_first)| self::key(column, descending, nulls_first));
    proptest::collection::vec(key, 1..4)
}

/// Batches of these row counts, with row numbers that continue.
fn batches(row_counts: &[usize], seed: u64) -> Vec<RecordBatch> {
    let mut first_row = 0;
    let mut next = |(n, &row_count): (usize, &usize)| {
        first_row += row_count;
        batch(
            row_count,
            first_row - row_count,
            seed.wrapping_add(n as u64),
        )
    };
    row_counts.iter().enumerate().map(&mut next).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_rows_are_sorted_at_any_grant(
        row_counts in proptest::collection::vec(0usize..700, 1..12),
        keys in keys(),
        limit in proptest::option::of(0usize..3000),
        batch_row_count in 1usize..5000,
        memory_bytes in 0u64..600_000,
        minimum_bytes in 0u64..200_000,
        fickle: Option<u64>,
        seed: u64,
    ) {
        let batches = batches(&row_counts, seed);
        let pool = FixedPool::new(memory_bytes);
        let broker: Arc<dyn Broker> = match fickle {
            Some(seed) => FickleBroker::new(memory_bytes, seed),
            None => Arc::clone(&pool) as Arc<dyn Broker>,
        };
        let test = TestEnvironment::new(broker);
        let options = SortOptions { keys, limit, batch_row_count, minimum_bytes };
        let (sorted, _) = sort(&test.environment, &batches, &options).unwrap();
        prop_assert_eq!(sorted, expected(&batches, &options));
        prop_assert_eq!(pool.lent_bytes(), 0);
        prop_assert_eq!(test.environment.spill.stats().used_bytes, 0);
    }
}

#[test]
fn a_merge_between_passes_ends_at_the_limit() {
    let batches = batches(&[250; 6], 3);
    let options = SortOptions {
        keys: vec![key(0, false, false)],
        limit: Some(331),
        batch_row_count: 100,
        minimum_bytes: 0,
    };
    let test = TestEnvironment::new(FixedPool::new(0));
    let (sorted, stats) = sort(&test.environment, &batches, &options).unwrap();
    assert_eq!(sorted, expected(&batches, &options));
    assert!(stats.merge_count > 0, "{stats:?}");
}

#[test]
fn a_sort_keeps_to_its_memory() {
    let batches = batches(&[1000; 16], 3);
    let batch_bytes = crate::batches::held_bytes(&batches[0]);
    let options = SortOptions {
        keys: vec![key(5, false, true), key(0, true, false)],
        ..SortOptions::default()
    };
    let expected = expected(&batches, &options);
    for memory_bytes in [64 << 10, 256 << 10, 512 << 10, 1 << 20, 1 << 30] {
        let pool = FixedPool::new(memory_bytes);
        let test = TestEnvironment::new(Arc::clone(&pool) as _);
        let options = SortOptions {
            minimum_bytes: 64 << 10,
            ..options.clone()
        };
        let (sorted, stats) = sort(&test.environment, &batches, &options).unwrap();
        assert_eq!(sorted, expected);
        let overdraft = pool.lent_bytes_max().saturating_sub(memory_bytes);
        assert!(
            overdraft <= 3 * batch_bytes,
            "{overdraft} bytes above {memory_bytes}: {stats:?}"
        );
        assert_eq!(stats.run_count > 0, memory_bytes < 1 << 30, "{stats:?}");
        assert_eq!(stats.merge_count > 0, memory_bytes < 512 << 10, "{stats:?}");
    }
}

#[test]
fn workers_that_share_little_memory_all_end() {
    let batches = batches(&[1000; 10], 9);
    let options = SortOptions {
        keys: vec![key(3, false, true)],
        minimum_bytes: 64 << 10,
        ..SortOptions::default()
    };
    let expected = expected(&batches, &options);
    let pool = FixedPool::new(1 << 20);
    let test = TestEnvironment::new(Arc::clone(&pool) as _);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let (sorted, _) = sort(&test.environment, &batches, &options).unwrap();
                assert_eq!(sorted, expected);
            });
        }
    });
    assert_eq!(pool.lent_bytes(), 0);
}

#[test]
fn the_first_rows_are_found_in_the_memory_of_few_rows() {
    let batches: Vec<RecordBatch> = (0..200).map(|n| batch(4000, 4000 * n, n as u64)).collect();
    let options = SortOptions {
        keys: vec![key(0, true, false), key(ROW_COLUMN, false, false)],
        limit: Some(10),
        ..SortOptions::default()
    };
    let test = TestEnvironment::new(FixedPool::new(64 << 20));
    let (sorted, stats) = sort(&test.environment, &batches, &options).unwrap();
    assert_eq!(sorted, expected(&batches, &options));
    assert_eq!(stats.run_count, 0);
    let all: u64 = batches.iter().map(crate::batches::held_bytes).sum();
    assert!(stats.used_bytes_max < all / 10, "{stats:?} of {all}");
}

#[test]
fn many_small_batches_and_slices_of_large_ones_cost_what_their_rows_need() {
    let whole = batch(60_000, 0, 4);
    let slices: Vec<RecordBatch> = (0..6000).map(|n| whole.slice(10 * n, 10)).collect();
    let options = SortOptions {
        keys: vec![key(4, false, true)],
        ..SortOptions::default()
    };
    let test = TestEnvironment::new(FixedPool::new(1 << 30));
    let (sorted, stats) = sort(&test.environment, &slices, &options).unwrap();
    assert_eq!(sorted, expected(&slices, &options));
    let whole_bytes = crate::batches::held_bytes(&whole);
    assert!(
        stats.used_bytes_max < 3 * whole_bytes,
        "{stats:?} for {whole_bytes} bytes"
    );
}

#[test]
fn rows_larger_than_the_memory_are_sorted() {
    let row = |n: i64| {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![format!("{n}").repeat(300_000)]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![n]));
        RecordBatch::try_from_iter([("text", texts), ("n", numbers)]).unwrap()
    };
    let rows: Vec<RecordBatch> = [5, 3, 8, 1].map(row).into();
    let options = SortOptions {
        keys: vec![key(0, false, true)],
        minimum_bytes: 0,
        ..SortOptions::default()
    };
    let test = TestEnvironment::new(FixedPool::new(0));
    let (sorted, _) = sort(&test.environment, &rows, &options).unwrap();
    let numbers = sorted.column(1).as_primitive::<Int64Type>();
    assert_eq!(numbers.values(), &[1, 3, 5, 8]);
}

#[test]
fn a_raised_flag_ends_a_sort_and_frees_everything() {
    let batches = batches(&[2000; 20], 3);
    let options = SortOptions {
        keys: vec![key(0, false, true)],
        ..SortOptions::default()
    };
    let pool = FixedPool::new(1 << 20);
    let test = TestEnvironment::new(Arc::clone(&pool) as _);
    let mut sorter = Sorter::new(&test.environment, "sort", batches[0].schema(), options).unwrap();
    batches
        .iter()
        .for_each(|batch| sorter.push(batch.clone()).unwrap());
    let mut sorted = sorter.finish().unwrap();
    sorted.next_batch().unwrap();
    test.environment.stop.raise();
    assert!(matches!(sorted.next_batch(), Err(OperatorError::Stopped)));
    drop(sorted);
    assert_eq!(pool.lent_bytes(), 0);
    assert_eq!(test.environment.spill.stats().used_bytes, 0);
    assert_eq!(std::fs::read_dir(test.folder.path()).unwrap().count(), 0);
}

#[test]
fn a_full_spill_folder_ends_a_sort_with_figures_and_frees_everything() {
    let batches = batches(&[2000; 20], 3);
    let options = SortOptions {
        keys: vec![key(0, false, true)],
        ..SortOptions::default()
    };
    let pool = FixedPool::new(1 << 20);
    let test = TestEnvironment::new(Arc::clone(&pool) as _);
    test.environment.spill.set_limit_bytes(300_000);
    let error = sort(&test.environment, &batches, &options).unwrap_err();
    assert!(
        matches!(error, OperatorError::SpillLimit { limit_bytes: 300_000, needed_bytes, .. } if needed_bytes > 0),
        "{error}"
    );
    assert_eq!(pool.lent_bytes(), 0);
    assert_eq!(test.environment.spill.stats().used_bytes, 0);
}

/// Rows with every kind of number that compares in a way of its own, and a column that numbers them.
fn numbers(row_count: usize, seed: u64) -> RecordBatch {
    let mut random = fastrand::Rng::with_seed(seed);
    let special = [
        f64::NAN,
        -f64::NAN,
        0.0,
        -0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN,
        f64::MAX,
        5e-324,
        -5e-324,
    ];
    let mut number = || match random.usize(..special.len() + 3) {
        0 => None,
        1 | 2 => Some(f64::from(random.i8(..))),
        pick => Some(special[pick - 3]),
    };
    let numbers: Vec<Option<f64>> = (0..row_count).map(|_| number()).collect();
    let single = numbers.iter().map(|n| n.map(|n| n as f32));
    let columns: [(&str, ArrayRef); 3] = [
        (
            "f64",
            Arc::new(Float64Array::from_iter(numbers.iter().copied())),
        ),
        ("f32", Arc::new(Float32Array::from_iter(single))),
        (
            "row",
            Arc::new(Int64Array::from_iter_values(0..row_count as i64)),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

/// The column that numbers the rows of [`numbers`].
fn row_numbers(batch: &RecordBatch) -> Vec<i64> {
    batch
        .column(2)
        .as_primitive::<Int64Type>()
        .values()
        .to_vec()
}

#[test]
fn nan_and_both_zeros_have_their_places_whether_spilled_or_not() {
    let batches: Vec<RecordBatch> = (0..6).map(|seed| numbers(1500, seed)).collect();
    for memory_bytes in [0, 1 << 30] {
        for (descending, nulls_first) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let options = SortOptions {
                keys: vec![
                    key(1, descending, nulls_first),
                    key(0, !descending, nulls_first),
                ],
                minimum_bytes: 64 << 10,
                ..SortOptions::default()
            };
            let test = TestEnvironment::new(FixedPool::new(memory_bytes));
            let (sorted, stats) = sort(&test.environment, &batches, &options).unwrap();
            assert_eq!(stats.run_count > 0, memory_bytes == 0);
            assert_eq!(
                row_numbers(&sorted),
                row_numbers(&expected(&batches, &options))
            );
        }
    }
}

#[test]
fn nothing_sorted_is_nothing_and_rows_without_keys_stay_as_they_came() {
    let some = batches(&[900, 0, 1200], 5);
    let empty = vec![batch(0, 0, 1)];
    for keys in [vec![], vec![key(0, false, true)]] {
        for limit in [None, Some(0), Some(7), Some(usize::MAX)] {
            for memory_bytes in [0, 1 << 30] {
                let options = SortOptions {
                    keys: keys.clone(),
                    limit,
                    minimum_bytes: 0,
                    ..SortOptions::default()
                };
                let test = TestEnvironment::new(FixedPool::new(memory_bytes));
                let (sorted, stats) = sort(&test.environment, &empty, &options).unwrap();
                assert_eq!((sorted.num_rows(), stats.run_count), (0, 0));
                let (sorted, _) = sort(&test.environment, &some, &options).unwrap();
                assert_eq!(
                    sorted,
                    expected(&some, &options),
                    "{options:?}, {memory_bytes} bytes"
                );
            }
        }
    }
}

#[test]
fn a_damaged_run_ends_a_sort_with_the_place_and_frees_everything() {
    let batches = batches(&[2000; 6], 3);
    let options = SortOptions {
        keys: vec![key(0, false, true)],
        ..SortOptions::default()
    };
    let pool = FixedPool::new(0);
    let test = TestEnvironment::new(Arc::clone(&pool) as _);
    let mut sorter = Sorter::new(&test.environment, "sort", batches[0].schema(), options).unwrap();
    for batch in &batches {
        sorter.push(batch.clone()).unwrap();
    }
    sorter.file.as_ref().expect("spilled").damage(0);
    let error = sorter.finish().err().expect("the first batch is damaged");
    assert!(
        matches!(&error, OperatorError::Damaged(found)
            if found.offset == 0 && found.file.ends_with("hotshelf-0.spill")),
        "{error}"
    );
    assert_eq!(pool.lent_bytes(), 0);
    assert_eq!(test.environment.spill.stats().used_bytes, 0);
}

#[test]
fn a_sort_that_is_dropped_half_way_frees_everything() {
    let batches = batches(&[1000; 8], 3);
    let options = SortOptions {
        keys: vec![key(0, false, true)],
        minimum_bytes: 64 << 10,
        ..SortOptions::default()
    };
    for pushed_count in [0, 1, 5, 8] {
        let pool = FixedPool::new(300 << 10);
        let test = TestEnvironment::new(Arc::clone(&pool) as _);
        let mut sorter = Sorter::new(
            &test.environment,
            "sort",
            batches[0].schema(),
            options.clone(),
        )
        .unwrap();
        for batch in &batches[..pushed_count] {
            sorter.push(batch.clone()).unwrap();
        }
        if pushed_count == batches.len() {
            let mut sorted = sorter.finish().unwrap();
            assert!(sorted.next_batch().unwrap().is_some());
        } else {
            drop(sorter);
        }
        assert_eq!(pool.lent_bytes(), 0);
        assert_eq!(test.environment.spill.stats().used_bytes, 0);
    }
}

#[test]
fn columns_of_another_type_are_an_error() {
    let test = TestEnvironment::new(FixedPool::new(0));
    let options = SortOptions {
        keys: vec![key(0, false, true)],
        ..SortOptions::default()
    };
    let mut sorter =
        Sorter::new(&test.environment, "sort", batch(0, 0, 1).schema(), options).unwrap();
    let error = sorter.push(numbers(3, 1)).unwrap_err();
    assert!(matches!(error, OperatorError::Arrow(_)), "{error}");
}

#[test]
fn sorts_may_move_between_threads() {
    fn movable<T: Send>() {}
    movable::<Sorter>();
    movable::<Sorted>();
}

#[test]
fn large_rows_that_come_together_keep_to_the_memory() {
    let rows = |first: i64| {
        let sizes = (first..first + 500).map(|n| if n % 100 == 0 { 50_000 } else { 10 });
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(
            sizes.clone().map(|size| "x".repeat(size)),
        ));
        let sizes: ArrayRef = Arc::new(Int64Array::from_iter_values(sizes.map(|size| size as i64)));
        RecordBatch::try_from_iter([("text", texts), ("size", sizes)]).unwrap()
    };
    let batches: Vec<RecordBatch> = (0..40).map(|n| rows(500 * n)).collect();
    let batch_bytes = crate::batches::held_bytes(&batches[0]);
    let options = SortOptions {
        keys: vec![key(1, false, true)],
        ..SortOptions::default()
    };
    let expected = expected(&batches, &options);
    let pool = FixedPool::new(2 << 20);
    let test = TestEnvironment::new(Arc::clone(&pool) as _);
    let (sorted, stats) = sort(&test.environment, &batches, &options).unwrap();
    assert_eq!(sorted, expected);
    assert!(stats.run_count > 1, "{stats:?}");
    let overdraft = pool.lent_bytes_max().saturating_sub(2 << 20);
    assert!(
        overdraft <= 2 * batch_bytes,
        "{overdraft} bytes above: {stats:?}, batches of {batch_bytes}"
    );
}
