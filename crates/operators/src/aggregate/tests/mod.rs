mod carried;
mod oracle;
mod partial;
mod texts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use proptest::prelude::*;

use super::*;
use crate::batches::PIECE_ROWS;
use crate::memory::testing::FickleBroker;
use crate::memory::{Broker, FixedPool};
use crate::testing::{CountingShelf, TestEnvironment};
use oracle::{KEYS, Spread, oracle, rows, sorted, spec, sums_of_numbers, two_steps};

/// Parts as small as can be, so that few rows go all ways.
const TINY: Limits = Limits {
    minimum_bytes: 0,
    table_bytes: 8 << 10,
    alone_table_bytes: 0,
    output_bytes: 0,
    output_bytes_max: 1 << 30,
    table_bytes_min: 0,
    merge_rows: 16,
    spill_bytes_min: 1,
};

/// A worker that is alone divides its groups, too.
fn divided() -> Limits {
    Limits {
        alone_table_bytes: 0,
        ..Limits::default()
    }
}

const PLAIN: Spread = Spread {
    rows: 0,
    values: 1,
    nulls: true,
    skewed: false,
    sorted: false,
};

/// Aggregates by threads that each have a share of the input.
fn run(
    aggregation: &Arc<HashAggregate>,
    input: &RecordBatch,
    threads: usize,
) -> Result<Vec<RecordBatch>> {
    let workers: Vec<Worker> = (0..threads)
        .map(|_| aggregation.worker())
        .collect::<Result<_>>()?;
    let start = |thread: usize| input.num_rows() * thread / threads;
    let work = |thread: usize, mut worker: Worker| -> Result<Vec<RecordBatch>> {
        for first in (start(thread)..start(thread + 1)).step_by(700) {
            worker.push(input.slice(first, 700.min(start(thread + 1) - first)))?;
        }
        worker.finish()?;
        let mut output = Vec::new();
        while let Some(batch) = worker.next_batch()? {
            output.push(batch);
        }
        Ok(output)
    };
    let outputs = std::thread::scope(|scope| {
        let threads = workers.into_iter().enumerate();
        let running: Vec<_> = threads
            .map(|(thread, worker)| scope.spawn(move || work(thread, worker)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Result<Vec<_>>>()
    })?;
    let output: Vec<RecordBatch> = outputs.into_iter().flatten().collect();
    assert!(
        output
            .iter()
            .all(|batch| (1..=PIECE_ROWS).contains(&batch.num_rows()))
    );
    Ok(output)
}

fn aggregate(
    spec: &AggregateSpec,
    input: &RecordBatch,
    environment: &Environment,
    limits: Limits,
    threads: usize,
) -> (Vec<RecordBatch>, AggregateStats) {
    let aggregation =
        HashAggregate::with_limits(spec.clone(), environment, threads, limits).unwrap();
    let output = run(&aggregation, input, threads).unwrap();
    (output, aggregation.stats())
}

fn assert_equals_oracle(
    spec: &AggregateSpec,
    input: &RecordBatch,
    environment: &Environment,
    limits: Limits,
    threads: usize,
) -> AggregateStats {
    let (output, stats) = aggregate(spec, input, environment, limits, threads);
    let (found, expected) = (sorted(&output), oracle(spec, input));
    assert!(
        found == expected,
        "{} groups instead of {}: {spec:?}",
        found.len(),
        expected.len()
    );
    stats
}

/// A pool that lends nothing, little, or enough; the last one at random.
fn broker(choice: u64, seed: u64) -> Arc<dyn Broker> {
    match choice {
        0 => FixedPool::new(0),
        1 => FixedPool::new(60 << 10),
        2 => FixedPool::new(1 << 30),
        _ => FickleBroker::new(1 << 30, seed),
    }
}

fn limits(is_tiny: bool) -> Limits {
    if is_tiny { TINY } else { Limits::default() }
}

fn keys() -> impl Strategy<Value = Vec<usize>> {
    proptest::sample::subsequence((0..KEYS).collect::<Vec<_>>(), 0..=KEYS)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn groups_are_those_of_a_map(
        keys in keys(),
        row_count in 0_usize..2000,
        values in 1_u32..400,
        [nulls, skewed, is_sorted, is_tiny, with_bags]: [bool; 5],
        (choice, threads) in (0_u64..4, 1_usize..=4),
        seed: u64,
    ) {
        let spread = Spread { rows: row_count, values, nulls, skewed, sorted: is_sorted };
        let input = rows(spread, seed);
        let spec = spec(input.schema_ref(), &keys, with_bags);
        let test = TestEnvironment::new(broker(choice, seed));
        assert_equals_oracle(&spec, &input, &test.environment, limits(is_tiny), threads);
        prop_assert_eq!(test.environment.spill.stats().used_bytes, 0);
    }

    #[test]
    fn two_steps_return_what_one_does(
        keys in keys(),
        row_count in 0_usize..1000,
        values in 1_u32..100,
        is_tiny: bool,
        choice in 0_u64..4,
        seed: u64,
    ) {
        let input = rows(Spread { rows: row_count, values, ..PLAIN }, seed);
        let spec = spec(input.schema_ref(), &keys, true);
        let [first, last] = two_steps(&spec);
        let test = TestEnvironment::new(broker(choice, seed));
        let (states, _) = aggregate(&first, &input, &test.environment, limits(is_tiny), 2);
        let states = concat_batches(&first.schema, &states).unwrap();
        let (output, _) = aggregate(&last, &states, &test.environment, limits(is_tiny), 2);
        prop_assert_eq!(sorted(&output), oracle(&spec, &input));
    }
}

#[test]
fn groups_lie_on_the_shelf_of_the_environment() {
    let spread = Spread {
        rows: 9000,
        values: 3000,
        ..PLAIN
    };
    let input = rows(spread, 5);
    // All kinds of keys: one word, several, texts; with memory for all groups and for few.
    for keys in [vec![0], vec![0, 1], (0..KEYS).collect()] {
        for (limits, memory) in [(divided(), 1 << 30), (TINY, 60 << 10)] {
            let spec = spec(input.schema_ref(), &keys, false);
            let mut test = TestEnvironment::new(FixedPool::new(memory));
            let shelf = Arc::new(CountingShelf::default());
            test.environment.table_shelf = Some(shelf.clone());
            assert_equals_oracle(&spec, &input, &test.environment, limits, 2);
            let count = |count: &AtomicU64| count.load(Relaxed);
            assert!(
                count(&shelf.updates) >= 9000,
                "each row changes a group: {shelf:?}"
            );
            assert!(
                count(&shelf.placed_bytes) > 0 && count(&shelf.table_bytes) > 0,
                "{shelf:?}"
            );
        }
    }
}

#[test]
fn most_keys_of_groups_are_on_the_shelf_whatever_room_they_have() {
    let mut test = TestEnvironment::new(FixedPool::new(1 << 30));
    let shelf = Arc::new(CountingShelf::default());
    test.environment.table_shelf = Some(shelf.clone());
    // A few more than a power of two: the keys have just got room for twice as many.
    let input = numbers(0..70_000);
    let spec = AggregateSpec {
        input: input.schema(),
        keys: vec![0],
        aggregates: vec![],
        phase: Phase::Single,
        schema: input.schema(),
    };
    let alone = Limits {
        alone_table_bytes: 1 << 30,
        ..Limits::default()
    };
    let aggregation = HashAggregate::with_limits(spec, &test.environment, 1, alone).unwrap();
    let mut worker = aggregation.worker().unwrap();
    for first in (0..70_000).step_by(1000) {
        worker.push(input.slice(first, 1000)).unwrap();
    }
    let placed = shelf.last_bytes.load(Relaxed);
    assert!(placed >= 70_000 * 8 * 8 / 9, "{placed}");
}

fn numbers(numbers: impl IntoIterator<Item = i64>) -> RecordBatch {
    let numbers = Arc::new(Int64Array::from_iter_values(numbers)) as _;
    RecordBatch::try_from_iter([("number", numbers)]).unwrap()
}

fn shuffled(count: i64) -> impl Iterator<Item = i64> {
    let mask = count as u64 - 1;
    assert!(count as u64 & mask == 0, "a power of two");
    (0..count as u64).map(move |idx| (idx.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask) as i64)
}

/// Aggregates numbers, and compares with a map.
fn assert_sums(
    input: &RecordBatch,
    environment: &Environment,
    limits: Limits,
    threads: usize,
) -> AggregateStats {
    let spec = sums_of_numbers(input.schema_ref(), false);
    let (output, stats) = aggregate(&spec, input, environment, limits, threads);
    let values = |batch: &RecordBatch, column: usize| -> Vec<i64> {
        batch
            .column(column)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    let mut expected: BTreeMap<i64, i64> = BTreeMap::new();
    for number in values(input, 0) {
        *expected.entry(number).or_default() += number;
    }
    let found = output
        .iter()
        .flat_map(|batch| std::iter::zip(values(batch, 0), values(batch, 1)));
    let found: Vec<(i64, i64)> = found.collect();
    assert_eq!(found.len(), expected.len());
    assert!(found.into_iter().collect::<BTreeMap<i64, i64>>() == expected);
    stats
}

#[test]
fn no_rows_make_no_groups() {
    let input = rows(PLAIN, 0);
    for keys in [vec![], vec![0], vec![0, 5]] {
        let spec = spec(input.schema_ref(), &keys, true);
        let test = TestEnvironment::new(FixedPool::new(0));
        for threads in [1, 3] {
            let aggregation = HashAggregate::try_new(spec.clone(), &test.environment, threads);
            let output = run(&aggregation.unwrap(), &input, threads).unwrap();
            assert!(output.is_empty());
        }
    }
}

#[test]
fn groups_that_fit_into_a_workers_table_go_nowhere_else() {
    let input = rows(
        Spread {
            rows: 20_000,
            values: 50,
            ..PLAIN
        },
        1,
    );
    let spec = spec(input.schema_ref(), &[0, 1], false);
    let test = TestEnvironment::new(FixedPool::new(16 << 20));
    let environment = &test.environment;
    let stats = assert_equals_oracle(&spec, &input, environment, Limits::default(), 1);
    assert_eq!((stats.row_count, stats.scattered_count), (20_000, 0));
    assert_eq!(environment.spill.stats().written_count, 0);
}

#[test]
fn rows_are_not_looked_up_where_they_do_not_meet_their_groups() {
    let twice = numbers(shuffled(1 << 18).chain(shuffled(1 << 18)));
    let test = TestEnvironment::new(FixedPool::new(64 << 20));
    let environment = &test.environment;
    let stats = assert_sums(&twice, environment, divided(), 1);
    assert!(stats.blind_row_count > 1 << 18, "{stats:?}");

    let runs = numbers((0..1 << 19).map(|row| row / 2));
    let stats = assert_sums(&runs, environment, divided(), 1);
    assert_eq!(stats.blind_row_count, 0, "each row's neighbour has its key");
}

#[test]
fn memory_is_needed_for_groups_and_not_for_rows() {
    let group_count = 1 << 16;
    let test = TestEnvironment::new(FixedPool::new(1 << 30));
    let used = [6, 16].map(|times| {
        let input = numbers((0..times).flat_map(|_| shuffled(group_count)));
        let stats = assert_sums(&input, &test.environment, divided(), 1);
        assert!(stats.scattered_count > 0);
        stats.used_bytes_max
    });
    assert!(used[1] < used[0] + used[0] / 2, "{used:?}");
}

#[test]
fn little_memory_is_enough_for_many_groups() {
    for (pool_bytes, threads) in [(0, 1), (1 << 20, 3), (2 << 20, 1)] {
        let pool = FixedPool::new(pool_bytes);
        let test = TestEnvironment::new(Arc::clone(&pool) as Arc<dyn Broker>);
        let input = numbers(shuffled(1 << 17));
        let environment = &test.environment;
        let stats = assert_sums(&input, environment, Limits::default(), threads);
        assert!(stats.spilled_count > 0);
        let overdraft = 3 << 20;
        assert!(pool.lent_bytes_max() <= pool_bytes + overdraft, "{stats:?}");
        assert_eq!(pool.lent_bytes(), 0);
        assert_eq!(environment.spill.stats().used_bytes, 0);
    }
}

#[test]
fn a_table_whose_output_does_not_fit_beside_it_is_divided() {
    let limits = Limits {
        output_bytes: 1 << 20,
        ..Limits::default()
    };
    for (pool_bytes, is_divided) in [(12 << 20, true), (64 << 20, false)] {
        let pool = FixedPool::new(pool_bytes);
        let test = TestEnvironment::new(Arc::clone(&pool) as Arc<dyn Broker>);
        let input = numbers(shuffled(1 << 18));
        let stats = assert_sums(&input, &test.environment, limits, 1);
        assert_eq!(stats.scattered_count > 0, is_divided, "{stats:?}");
        let overdraft = 3 << 20;
        assert!(pool.lent_bytes_max() <= pool_bytes + overdraft, "{stats:?}");
        assert_eq!(pool.lent_bytes(), 0);
    }
}

#[test]
fn partitions_that_do_not_fit_are_divided() {
    let pool = FixedPool::new(0);
    let test = TestEnvironment::new(Arc::clone(&pool) as Arc<dyn Broker>);
    let input = numbers(shuffled(1 << 15).chain(shuffled(1 << 15)));
    let limits = Limits {
        minimum_bytes: 4 << 10,
        ..Limits::default()
    };
    let stats = assert_sums(&input, &test.environment, limits, 2);
    assert!(stats.level_max > 0, "{stats:?}");
    assert_eq!(pool.lent_bytes(), 0);
}

#[test]
fn groups_larger_than_the_memory_are_overdrafts() {
    for (group_count, limits) in [(1, Limits::default()), (3, TINY), (1, TINY)] {
        let pool = FixedPool::new(100 << 10);
        let test = TestEnvironment::new(Arc::clone(&pool) as Arc<dyn Broker>);
        let input = numbers((0..100_000).map(|row| row % group_count));
        let spec = sums_of_numbers(input.schema_ref(), true);
        assert_equals_oracle(&spec, &input, &test.environment, limits, 2);
        assert_eq!(pool.lent_bytes(), 0);
        assert_eq!(test.environment.spill.stats().used_bytes, 0);
    }
}

#[test]
fn an_aggregation_dropped_early_leaves_nothing() {
    let pool = FixedPool::new(200 << 10);
    let test = TestEnvironment::new(Arc::clone(&pool) as Arc<dyn Broker>);
    let input = numbers(shuffled(1 << 17));
    let spec = sums_of_numbers(input.schema_ref(), false);
    let begin = || {
        let environment = &test.environment;
        let aggregation = HashAggregate::try_new(spec.clone(), environment, 1).unwrap();
        let mut worker = aggregation.worker().unwrap();
        worker.push(input.clone()).unwrap();
        worker
    };
    let assert_empty = || {
        assert_eq!(pool.lent_bytes(), 0);
        assert_eq!(test.environment.spill.stats().used_bytes, 0);
        let mut files = std::fs::read_dir(test.folder.path()).unwrap();
        assert!(files.next().is_none());
    };
    drop(begin());
    assert_empty();
    let mut worker = begin();
    worker.finish().unwrap();
    assert!(worker.next_batch().unwrap().is_some());
    assert!(test.environment.spill.stats().used_bytes > 0);
    drop(worker);
    assert_empty();
}

#[test]
fn the_stop_flag_ends_every_step() {
    let test = TestEnvironment::new(FixedPool::new(1 << 20));
    let input = numbers(0..10);
    let spec = sums_of_numbers(input.schema_ref(), false);
    let environment = &test.environment;
    let aggregation = HashAggregate::try_new(spec, environment, 2).unwrap();
    let [mut first, second] = [(); 2].map(|()| aggregation.worker().unwrap());
    first.push(input.clone()).unwrap();
    first.finish().unwrap();
    let waiting = std::thread::spawn(move || first.next_batch());
    environment.stop.raise();
    let stopped = |result: Result<Option<RecordBatch>>| match result {
        Err(OperatorError::Stopped) => {}
        other => panic!("{other:?}"),
    };
    stopped(waiting.join().unwrap());
    let mut second = second;
    stopped(second.push(input).map(|()| None));
}

#[test]
fn groups_are_not_returned_when_a_workers_rows_are_missing() {
    let test = TestEnvironment::new(FixedPool::new(1 << 20));
    let input = numbers(0..10);
    let spec = sums_of_numbers(input.schema_ref(), false);
    let aggregation = HashAggregate::try_new(spec, &test.environment, 2).unwrap();
    let [mut first, second] = [(); 2].map(|()| aggregation.worker().unwrap());
    first.push(input).unwrap();
    first.finish().unwrap();
    drop(second);
    assert!(matches!(first.next_batch(), Err(OperatorError::Stopped)));
}

#[test]
fn a_full_spill_folder_is_an_error() {
    let pool = FixedPool::new(0);
    let test = TestEnvironment::new(Arc::clone(&pool) as Arc<dyn Broker>);
    test.environment.spill.set_limit_bytes(100 << 10);
    let input = numbers(shuffled(1 << 18));
    let spec = sums_of_numbers(input.schema_ref(), false);
    let aggregation = HashAggregate::try_new(spec, &test.environment, 1).unwrap();
    let failed = run(&aggregation, &input, 1).unwrap_err();
    assert!(
        matches!(failed, OperatorError::SpillLimit { .. }),
        "{failed}"
    );
    drop(aggregation);
    assert_eq!(pool.lent_bytes(), 0);
}

#[test]
fn a_schema_that_does_not_fit_is_an_error() {
    let input = numbers(0..10);
    let mut spec = sums_of_numbers(input.schema_ref(), false);
    spec.schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let test = TestEnvironment::new(FixedPool::new(0));
    assert!(HashAggregate::try_new(spec, &test.environment, 1).is_err());
}
