//! Rows of several sorters in one order.

use std::thread::ScopedJoinHandle;

use super::*;

/// Rows of several sorters, each with its own batches, in one order.
fn sort_together(
    environment: &Environment,
    portions: &[&[RecordBatch]],
    options: &SortOptions,
    range_rows: usize,
) -> Result<(RecordBatch, SortStats)> {
    let schema = portions[0][0].schema();
    let sorter = |batches: &&[RecordBatch]| {
        let mut sorter = Sorter::new(environment, "sort", schema.clone(), options.clone())?;
        let mut pushed = batches.iter().cloned();
        pushed.try_for_each(|batch| sorter.push(batch))?;
        Ok(sorter)
    };
    let mut sorters = portions.iter().map(sorter).collect::<Result<Vec<_>>>()?;
    let first = sorters.remove(0);
    let (parts, stats) = match first.finish_in_ranges(sorters, range_rows)? {
        Together::Held(portions) => {
            let distributed = portions.into_iter().map(Portion::distribute);
            let distributed = distributed.collect::<Result<_>>()?;
            rows(SortedRanges::new(distributed).expect("there are sorters"))?
        }
        Together::Merged(ranges) => rows(*ranges)?,
    };
    assert!(
        parts
            .iter()
            .all(|part| part.num_rows() <= options.batch_row_count)
    );
    let all = concat_batches(&schema, &parts)?;
    let wanted = options.limit.unwrap_or(usize::MAX);
    Ok((all.slice(0, wanted.min(all.num_rows())), stats))
}

/// The rows of all ranges, which some threads put in order side by side.
fn rows(mut ranges: impl Ranges) -> Result<(Vec<RecordBatch>, SortStats)> {
    let count = ranges.reserve(3);
    assert!((1..=3).contains(&count));
    let all: Vec<usize> = (0..ranges.range_count()).collect();
    let mut parts = Vec::new();
    for window in all.chunks(count) {
        let threads = std::thread::scope(|scope| {
            let rows = |&range| {
                let ranges = &ranges;
                scope.spawn(move || ranges.rows(range))
            };
            let threads: Vec<_> = window.iter().map(rows).collect();
            let join = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap();
            threads.into_iter().map(join).collect::<Result<Vec<_>>>()
        });
        parts.extend(threads?.concat());
    }
    Ok((parts, ranges.stats()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn rows_of_several_sorters_come_in_one_order_at_any_grant(
        row_counts in proptest::collection::vec(0usize..900, 1..12),
        cuts in proptest::collection::vec(0usize..12, 0..4),
        keys in proptest::prop_oneof![keys(), Just(Vec::new())],
        limit in proptest::option::of(0usize..4000),
        batch_row_count in 1usize..3000,
        memory_bytes in proptest::prop_oneof![0u64..2_000_000, Just(1 << 30)],
        range_rows in 1usize..2000,
        fickle: Option<u64>,
        seed: u64,
    ) {
        let batches = batches(&row_counts, seed);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(batches.len())).collect();
        cuts.extend([0, batches.len()]);
        cuts.sort_unstable();
        let mut portions: Vec<&[RecordBatch]> = cuts.windows(2).map(|cut| &batches[cut[0]..cut[1]]).collect();
        // A sorter may get no rows, but the schema is that of the first batch.
        portions.sort_by_key(|portion| portion.is_empty());
        let pool = FixedPool::new(memory_bytes);
        let broker: Arc<dyn Broker> = match fickle {
            Some(seed) => FickleBroker::new(memory_bytes, seed),
            None => Arc::clone(&pool) as Arc<dyn Broker>,
        };
        let test = TestEnvironment::new(broker);
        let options = SortOptions { keys, limit, batch_row_count, minimum_bytes: 64 << 10 };
        let (sorted, stats) = sort_together(&test.environment, &portions, &options, range_rows).unwrap();
        prop_assert_eq!(sorted, expected(&batches, &options));
        prop_assert_eq!(stats.row_count, row_counts.iter().sum::<usize>() as u64);
        prop_assert_eq!(pool.lent_bytes(), 0);
        prop_assert_eq!(test.environment.spill.stats().used_bytes, 0);
    }
}

/// Rows for three sorters, with many that are equal.
fn thirds() -> (Vec<RecordBatch>, SortOptions) {
    let options = SortOptions {
        keys: vec![key(1, true, false), key(4, false, true)],
        ..SortOptions::default()
    };
    (batches(&[1500; 12], 7), options)
}

fn portions(
    batches: &[RecordBatch],
    options: &SortOptions,
    test: &TestEnvironment,
) -> Vec<Portion> {
    let sorter = |batches: &[RecordBatch]| {
        let schema = batches[0].schema();
        let mut sorter = Sorter::new(&test.environment, "sort", schema, options.clone()).unwrap();
        batches
            .iter()
            .for_each(|batch| sorter.push(batch.clone()).unwrap());
        sorter
    };
    let mut sorters: Vec<Sorter> = batches.chunks(batches.len() / 3).map(sorter).collect();
    match sorters.remove(0).finish_in_ranges(sorters, 500) {
        Ok(Together::Held(portions)) => portions,
        _ => panic!("there is memory"),
    }
}

#[test]
fn threads_sort_ranges_of_similar_sizes_in_any_order() {
    let (batches, options) = thirds();
    let pool = FixedPool::new(1 << 30);
    let test = TestEnvironment::new(Arc::clone(&pool) as _);
    let portions = portions(&batches, &options, &test);
    let distributed = std::thread::scope(|scope| {
        let distribute = |portion: Portion| scope.spawn(|| portion.distribute().unwrap());
        let threads: Vec<_> = portions.into_iter().map(distribute).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut ranges = SortedRanges::new(distributed).unwrap();
    assert_eq!(ranges.range_count(), 36);
    assert_eq!(ranges.reserve(4), 4);
    let ranges = &ranges;
    let parts: Vec<Vec<RecordBatch>> = std::thread::scope(|scope| {
        let rows = |range| scope.spawn(move || ranges.rows(range).unwrap());
        let threads: Vec<_> = (0..ranges.range_count()).rev().map(rows).collect();
        threads
            .into_iter()
            .rev()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for range in &parts {
        let row_count: usize = range.iter().map(RecordBatch::num_rows).sum();
        assert!((250..1000).contains(&row_count), "{row_count} rows");
    }
    let sorted = concat_batches(&batches[0].schema(), &parts.concat()).unwrap();
    assert_eq!(sorted, expected(&batches, &options));
}

#[test]
fn ranges_after_the_limit_are_not_sorted() {
    let (batches, options) = thirds();
    let options = SortOptions {
        limit: Some(1200),
        ..options
    };
    let test = TestEnvironment::new(FixedPool::new(1 << 30));
    let distributed = portions(&batches, &options, &test)
        .into_iter()
        .map(Portion::distribute);
    let ranges = SortedRanges::new(distributed.collect::<Result<_>>().unwrap()).unwrap();
    assert!(
        (2..6).contains(&ranges.range_count()),
        "{} ranges",
        ranges.range_count()
    );
    let rows = (0..ranges.range_count()).flat_map(|range| ranges.rows(range).unwrap());
    let sorted = concat_batches(&batches[0].schema(), &rows.collect::<Vec<_>>()).unwrap();
    assert_eq!(sorted, expected(&batches, &options));
}

#[test]
fn a_raised_flag_ends_every_step_and_everything_is_freed() {
    let (batches, options) = thirds();
    for sorted_first in [false, true] {
        let pool = FixedPool::new(1 << 30);
        let test = TestEnvironment::new(Arc::clone(&pool) as _);
        let portions = portions(&batches, &options, &test).into_iter();
        if sorted_first {
            let distributed = portions.map(Portion::distribute).collect::<Result<_>>();
            let mut ranges = SortedRanges::new(distributed.unwrap()).unwrap();
            ranges.reserve(2);
            ranges.rows(0).unwrap();
            test.environment.stop.raise();
            assert!(matches!(ranges.rows(1), Err(OperatorError::Stopped)));
        } else {
            test.environment.stop.raise();
            for portion in portions {
                assert!(matches!(portion.distribute(), Err(OperatorError::Stopped)));
            }
        }
        assert_eq!(pool.lent_bytes(), 0);
    }
}

#[test]
fn one_sorter_that_spilled_makes_the_others_spill() {
    let (batches, options) = thirds();
    let schema = batches[0].schema();
    let test = TestEnvironment::new(FixedPool::new(700 << 10));
    let sorter = |batches: &[RecordBatch]| {
        let mut sorter =
            Sorter::new(&test.environment, "sort", schema.clone(), options.clone()).unwrap();
        batches
            .iter()
            .for_each(|batch| sorter.push(batch.clone()).unwrap());
        sorter
    };
    let (few, many) = batches.split_at(1);
    for spilled_before in [false, true] {
        let (mut few, many) = (sorter(few), sorter(many));
        assert!(!few.has_spilled() && many.has_spilled());
        if spilled_before {
            few.end().unwrap();
            few.spill_rest().unwrap();
        }
        let Together::Merged(ranges) = few.finish_with(vec![many]).unwrap() else {
            panic!("one has spilled");
        };
        let (parts, stats) = rows(*ranges).unwrap();
        let parts = concat_batches(&schema, &parts).unwrap();
        assert_eq!(parts, expected(&batches, &options));
        assert_eq!(stats.row_count, 18_000);
    }
}

/// The ranges of two sorters that share little memory.
fn spilled(
    batches: &[RecordBatch],
    options: &SortOptions,
    environment: &Environment,
) -> Box<MergedRanges> {
    let sorter = |batches: &[RecordBatch]| {
        let schema = batches[0].schema();
        let mut sorter = Sorter::new(environment, "sort", schema, options.clone()).unwrap();
        batches
            .iter()
            .for_each(|batch| sorter.push(batch.clone()).unwrap());
        sorter
    };
    let (some, others) = batches.split_at(batches.len() / 2);
    match sorter(some).finish_with(vec![sorter(others)]) {
        Ok(Together::Merged(ranges)) => ranges,
        _ => panic!("there is not enough memory to hold all"),
    }
}

#[test]
fn sorts_that_merge_at_once_share_little_memory() {
    let (batches, options) = thirds();
    let pool = FixedPool::new(1 << 20);
    let test = TestEnvironment::new(Arc::clone(&pool) as _);
    let expected = expected(&batches, &options);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let ranges = spilled(&batches, &options, &test.environment);
                assert!(ranges.range_count() > 3, "{}", ranges.range_count());
                let (parts, _) = rows(*ranges).unwrap();
                assert_eq!(
                    concat_batches(&batches[0].schema(), &parts).unwrap(),
                    expected
                );
            });
        }
    });
    assert_eq!(pool.lent_bytes(), 0);
    assert_eq!(test.environment.spill.stats().used_bytes, 0);
}

#[test]
fn sorters_that_are_finished_together_keep_to_their_memory() {
    let batches = batches(&[1000; 30], 5);
    let batch_bytes = crate::batches::held_bytes(&batches[0]);
    let portions: Vec<&[RecordBatch]> = batches.chunks(10).collect();
    let options = SortOptions {
        keys: vec![key(1, true, false), key(4, false, true)],
        minimum_bytes: 64 << 10,
        ..SortOptions::default()
    };
    let expected = expected(&batches, &options);
    for memory_bytes in [512 << 10, 1 << 20, 2 << 20] {
        let pool = FixedPool::new(memory_bytes);
        let test = TestEnvironment::new(Arc::clone(&pool) as _);
        let (sorted, stats) = sort_together(&test.environment, &portions, &options, 500).unwrap();
        assert_eq!(sorted, expected);
        assert!(stats.run_count > 3, "{stats:?}");
        let overdraft = pool.lent_bytes_max().saturating_sub(memory_bytes);
        assert!(
            overdraft <= 3 * 3 * batch_bytes,
            "{overdraft} bytes above {memory_bytes}: {stats:?}"
        );
        if memory_bytes == 512 << 10 {
            assert!(stats.merge_count > 0, "{stats:?}");
        }
    }
}

#[test]
fn threads_write_runs_of_rows_that_nearly_have_their_order() {
    // Ranges have whole batches of their own, so that what one thread reads ahead another may have released.
    let rows_in_order = |n: i64| {
        let numbers = (0..2000).map(|row| 2000 * n + row + 7 * (row % 3));
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        RecordBatch::try_from_iter([("number", column)]).unwrap()
    };
    let batches: Vec<RecordBatch> = (0..60).map(rows_in_order).collect();
    let options = SortOptions {
        keys: vec![key(0, false, false)],
        minimum_bytes: 64 << 10,
        ..SortOptions::default()
    };
    let portions: Vec<&[RecordBatch]> = batches.chunks(15).collect();
    let expected = expected(&batches, &options);
    for memory_bytes in [200 << 10, 300 << 10, 400 << 10] {
        let test = TestEnvironment::new(FixedPool::new(memory_bytes));
        let (sorted, stats) = sort_together(&test.environment, &portions, &options, 500).unwrap();
        assert_eq!(sorted, expected);
        assert!(stats.merge_count > 0, "{stats:?}");
    }
}

#[test]
fn a_raised_flag_ends_a_merge_of_ranges_and_frees_everything() {
    let (batches, options) = thirds();
    let pool = FixedPool::new(1 << 20);
    let test = TestEnvironment::new(Arc::clone(&pool) as _);
    let mut ranges = spilled(&batches, &options, &test.environment);
    ranges.reserve(3);
    ranges.rows(1).unwrap();
    assert!(test.environment.spill.stats().used_bytes > 0);
    test.environment.stop.raise();
    assert!(matches!(ranges.rows(0), Err(OperatorError::Stopped)));
    drop(ranges);
    assert_eq!(pool.lent_bytes(), 0);
    assert_eq!(test.environment.spill.stats().used_bytes, 0);
    assert_eq!(std::fs::read_dir(test.folder.path()).unwrap().count(), 0);
}
