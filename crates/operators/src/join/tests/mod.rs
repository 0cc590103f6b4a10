mod large;
mod oracle;
mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;

use super::*;
use crate::batches::{PIECE_ROWS, needed_bytes};
use crate::keys::Nulls;
use crate::memory::testing::FickleBroker;
use crate::memory::{Broker, FixedPool};
use crate::testing::{CountingShelf, TestEnvironment};
use oracle::{KINDS, Spread, oracle, rows, sorted, spec};

/// Runs a join without a minimum of memory.
fn join(
    spec: &JoinSpec,
    sides: [&RecordBatch; 2],
    environment: &Environment,
    threads: usize,
) -> Result<Vec<RecordBatch>> {
    let join = HashJoin::with_minimum(spec.clone(), environment, threads, 0)?;
    run(&join, sides, threads)
}

/// Runs a join by threads that each have a share of both sides.
fn run(
    join: &Arc<HashJoin>,
    [left, right]: [&RecordBatch; 2],
    threads: usize,
) -> Result<Vec<RecordBatch>> {
    let share = |batch: &RecordBatch, thread: usize| {
        let start = |thread: usize| batch.num_rows() * thread / threads;
        batch.slice(start(thread), start(thread + 1) - start(thread))
    };
    let pieces = |batch: &RecordBatch, rows: usize| -> Vec<RecordBatch> {
        let starts = (0..batch.num_rows()).step_by(rows);
        starts
            .map(|start| batch.slice(start, rows.min(batch.num_rows() - start)))
            .collect()
    };
    std::thread::scope(|scope| {
        let insert = |thread: usize| -> Result<()> {
            let mut builder = join.builder();
            let left = pieces(&share(left, thread), 700);
            left.iter()
                .try_for_each(|batch| builder.insert(batch.clone()))
        };
        let inserting: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || insert(thread)))
            .collect();
        inserting
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap())
    })?;
    join.finish_build(threads)?;
    let probers: Vec<Prober> = (0..threads).map(|_| join.prober()).collect::<Result<_>>()?;
    let probe = |thread: usize, mut prober: Prober| -> Result<Vec<RecordBatch>> {
        let mut output = Vec::new();
        for batch in pieces(&share(right, thread), 900) {
            prober.push(batch)?;
            while let Some(batch) = prober.next_batch()? {
                output.push(batch);
            }
        }
        prober.finish()?;
        while let Some(batch) = prober.next_batch()? {
            output.push(batch);
        }
        Ok(output)
    };
    let outputs = std::thread::scope(|scope| {
        let threads = probers.into_iter().enumerate();
        let running: Vec<_> = threads
            .map(|(thread, prober)| scope.spawn(move || probe(thread, prober)))
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

fn assert_equals_oracle(
    spec: &JoinSpec,
    sides: [&RecordBatch; 2],
    environment: &Environment,
    threads: usize,
) {
    let output = join(spec, sides, environment, threads).unwrap();
    let expected = oracle(spec, sides[0], sides[1]);
    let (found, expected) = (sorted(&output), sorted(&[expected]));
    assert!(
        found == expected,
        "{} rows instead of {}: {spec:?}",
        found.len(),
        expected.len()
    );
}

/// A pool that lends nothing, little, or enough; the last one at random.
fn broker(choice: u64, seed: u64) -> Arc<dyn Broker> {
    match choice {
        0 => FixedPool::new(0),
        1 => FixedPool::new(100 << 10),
        2 => FixedPool::new(1 << 30),
        _ => FickleBroker::new(1 << 30, seed),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn joins_return_what_nested_loops_return(
        kind in 0..KINDS.len(),
        on in proptest::sample::subsequence(vec![0, 1, 2, 3, 4], 1..=3),
        [equal_nulls, tests, swaps]: [bool; 3],
        lens in (0_usize..120, 0_usize..120),
        values in 1_u32..40,
        [nulls, skewed]: [bool; 2],
        (choice, threads) in (0_u64..4, 1_usize..=4),
        seed: u64,
    ) {
        let lens = if swaps { (lens.0 * 10, lens.1) } else { (lens.0, lens.1 * 10) };
        let spread = |rows| Spread { rows, values, nulls, skewed };
        let left = rows(spread(lens.0), 5, seed);
        let right = rows(spread(lens.1), 20, seed ^ 1);
        let equal = if equal_nulls { Nulls::Equal } else { Nulls::Distinct };
        let spec = spec(left.schema_ref(), KINDS[kind], &on, equal, tests);
        let test = TestEnvironment::new(broker(choice, seed));
        assert_equals_oracle(&spec, [&left, &right], &test.environment, threads);
        prop_assert_eq!(test.environment.spill.stats().used_bytes, 0);
    }
}

#[test]
fn tables_lie_on_the_shelf_of_the_environment() {
    let spread = |rows| Spread {
        rows,
        values: 5000,
        nulls: false,
        skewed: false,
    };
    let (left, right) = (rows(spread(4000), 5, 1), rows(spread(9000), 20, 2));
    // By one number, found without hashes; by several columns; and with memory for a part of the rows.
    for (on, memory) in [
        (vec![0], 1 << 30),
        (vec![0, 2, 3], 1 << 30),
        (vec![0, 2, 3], 100 << 10),
    ] {
        let spec = spec(
            left.schema_ref(),
            JoinKind::Inner,
            &on,
            Nulls::Distinct,
            false,
        );
        let mut test = TestEnvironment::new(FixedPool::new(memory));
        let shelf = Arc::new(CountingShelf::default());
        test.environment.table_shelf = Some(shelf.clone());
        assert_equals_oracle(&spec, [&left, &right], &test.environment, 2);
        let count = |count: &AtomicU64| count.load(Relaxed);
        // Each row is written to a table once, unless spilled pairs swap their sides.
        let written = count(&shelf.updates);
        assert!(
            written == 4000 || memory < 1 << 20 && written > 0,
            "{shelf:?}"
        );
        assert!(
            count(&shelf.reads) >= 9000,
            "each row asks a table: {shelf:?}"
        );
        assert!(count(&shelf.placed_bytes) >= 4000 * 8, "{shelf:?}");
        let (table, placed) = (count(&shelf.table_bytes), count(&shelf.placed_bytes));
        assert!(table > 0 && table <= placed + 4096, "{shelf:?}");
    }
}

#[test]
fn a_shelf_is_read_as_far_as_pairs_are_wanted() {
    let spread = |rows| Spread {
        rows,
        values: 2,
        nulls: false,
        skewed: false,
    };
    let (left, right) = (rows(spread(4000), 5, 1), rows(spread(1000), 5, 2));
    let spec = spec(
        left.schema_ref(),
        JoinKind::Inner,
        &[0],
        Nulls::Distinct,
        false,
    );
    let mut test = TestEnvironment::new(FixedPool::new(1 << 30));
    let shelf = Arc::new(CountingShelf::default());
    test.environment.table_shelf = Some(shelf.clone());
    let join = HashJoin::try_new(spec, &test.environment, 1).unwrap();
    join.builder().insert(left).unwrap();
    join.finish_build(1).unwrap();
    let mut prober = join.prober().unwrap();
    prober.push(right).unwrap();
    let first = prober.next_batch().unwrap().unwrap();
    let reads = shelf.reads.load(Relaxed);
    assert!(first.num_rows() > 1000 && reads < 20_000, "{reads}");
    let mut pairs = first.num_rows() as u64;
    while let Some(batch) = prober.next_batch().unwrap() {
        pairs += batch.num_rows() as u64;
    }
    let reads = shelf.reads.load(Relaxed);
    assert!(
        pairs > 1_000_000 && (pairs..2 * pairs).contains(&reads),
        "{reads} for {pairs}"
    );
}

/// Rows whose first column has these numbers, cut to those that 32 bits hold in the second.
fn with_numbers(rows: &RecordBatch, numbers: impl Fn(i64) -> Option<i64>) -> RecordBatch {
    let numbers: Int64Array = (0..rows.num_rows() as i64).map(numbers).collect();
    let narrow = numbers
        .iter()
        .map(|number| number.and_then(|number| i32::try_from(number).ok()));
    let mut columns = rows.columns().to_vec();
    columns[1] = Arc::new(narrow.collect::<Int32Array>());
    columns[0] = Arc::new(numbers);
    RecordBatch::try_new(rows.schema(), columns).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn joins_by_numbers_that_lie_close_together_return_what_nested_loops_return(
        kind in 0..KINDS.len(),
        column in 0_usize..2,
        (first, step) in (prop_oneof![Just(0), Just(-5), Just(i64::MIN), Just(i64::MAX - 300)], 1_i64..60),
        repeats in 1_i64..3,
        [nulls, tests]: [bool; 2],
        threads in 1_usize..=3,
        seed: u64,
    ) {
        let spread = |rows| Spread { rows, values: 50, nulls: false, skewed: false };
        let null = |row: i64| nulls && row % 7 == 3;
        let left = with_numbers(&rows(spread(100), 5, seed), |row| {
            (!null(row)).then(|| first.wrapping_add(row / repeats * step))
        });
        let right = with_numbers(&rows(spread(400), 5, seed), |row| {
            let far = [first.wrapping_sub(row), row, i64::MAX, -1][row as usize % 4];
            let near = first.wrapping_add(row * 3 % 200 * step / 2);
            (!null(row)).then_some(if row % 5 == 0 { far } else { near })
        });
        let spec = spec(left.schema_ref(), KINDS[kind], &[column], Nulls::Distinct, tests);
        let test = TestEnvironment::new(FixedPool::new(1 << 30));
        assert_equals_oracle(&spec, [&left, &right], &test.environment, threads);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn joins_that_spill_return_what_nested_loops_return(
        kind in 0..KINDS.len(),
        on in proptest::sample::subsequence(vec![0, 1, 2, 3, 4], 1..=2),
        [equal_nulls, tests, swaps]: [bool; 3],
        lens in (50_usize..200, 900_usize..1500),
        values in 60_u32..2000,
        nulls: bool,
        (memory_bytes, minimum, threads) in (0_u64..100_000, 0_u64..60_000, 1_usize..=3),
        seed: u64,
    ) {
        let spread = |rows| Spread { rows, values, nulls, skewed: false };
        let lens = if swaps { (lens.1, lens.0) } else { lens };
        let left = rows(spread(lens.0), 150, seed);
        let right = rows(spread(lens.1), 150, seed ^ 1);
        let equal = if equal_nulls { Nulls::Equal } else { Nulls::Distinct };
        let spec = spec(left.schema_ref(), KINDS[kind], &on, equal, tests);
        let test = TestEnvironment::new(FixedPool::new(memory_bytes));
        let join = HashJoin::with_minimum(spec.clone(), &test.environment, threads, minimum).unwrap();
        let found = sorted(&run(&join, [&left, &right], threads).unwrap());
        prop_assert!(found == sorted(&[oracle(&spec, &left, &right)]), "{:?}", spec);
        let stats = join.stats();
        prop_assert!(!swaps || stats.spilled_left_rows > 0, "{:?}", stats);
        drop(join);
        prop_assert_eq!(test.environment.spill.stats().used_bytes, 0);
    }
}

/// All sets of up to two keys of NULL, 1 and 2, with duplicates.
fn tiny_inputs() -> Vec<RecordBatch> {
    let keys = [None, Some(1), Some(2)];
    let mut lists: Vec<Vec<Option<i64>>> = vec![Vec::new()];
    for (idx, &first) in keys.iter().enumerate() {
        lists.push(vec![first]);
        lists.extend(keys[idx..].iter().map(|&second| vec![first, second]));
    }
    let batch = |list: Vec<Option<i64>>| {
        let mut columns = rows(few(list.len(), 1), 1, 7).columns().to_vec();
        columns[0] = Arc::new(Int64Array::from(list));
        RecordBatch::try_new(rows(few(0, 1), 1, 0).schema(), columns).unwrap()
    };
    lists.into_iter().map(batch).collect()
}

/// This many rows with this many values, some of them NULL.
fn few(rows: usize, values: u32) -> Spread {
    Spread {
        rows,
        values,
        nulls: true,
        skewed: false,
    }
}

#[test]
fn all_tiny_inputs_join_as_nested_loops_do() {
    let inputs = tiny_inputs();
    let mut tests = [0, 2].map(|choice| TestEnvironment::new(broker(choice, 0)));
    let nulls = [
        (Nulls::Distinct, false),
        (Nulls::Distinct, true),
        (Nulls::Equal, false),
    ];
    for left in &inputs {
        for right in &inputs {
            for kind in KINDS {
                for (nulls, condition) in nulls {
                    let spec = spec(left.schema_ref(), kind, &[0], nulls, condition);
                    assert_equals_oracle(&spec, [left, right], &tests[0].environment, 1);
                    tests.swap(0, 1);
                }
            }
            // With this many kinds each case would always have the same memory.
            tests.swap(0, 1);
        }
    }
}

#[test]
fn not_in_knows_null() {
    let inputs = tiny_inputs();
    let tests = [0, 2].map(|choice| TestEnvironment::new(broker(choice, 0)));
    for left in &inputs {
        for right in &inputs {
            for kind in [JoinKind::LeftAnti, JoinKind::RightAnti] {
                let mut spec = spec(left.schema_ref(), kind, &[0], Nulls::Distinct, false);
                spec.null_aware = true;
                for test in &tests {
                    assert_equals_oracle(&spec, [left, right], &test.environment, 2);
                }
            }
        }
    }
}

#[test]
fn one_key_larger_than_memory_is_joined_block_by_block() {
    let sides = [rows(few(400, 1), 90, 1), rows(few(20, 1), 900, 2)];
    let test = TestEnvironment::new(broker(0, 0));
    for [left, right] in [[0, 1], [1, 0]] {
        for kind in KINDS {
            for condition in [false, true] {
                let (left, right) = (&sides[left], &sides[right]);
                let spec = spec(left.schema_ref(), kind, &[0], Nulls::Distinct, condition);
                assert_equals_oracle(&spec, [left, right], &test.environment, 2);
            }
        }
    }
}

#[test]
fn without_keys_each_row_meets_all_of_the_other_side() {
    let sides = [rows(few(80, 3), 9, 1), rows(few(40, 3), 700, 2)];
    let tests = [0, 2].map(|choice| TestEnvironment::new(broker(choice, 0)));
    for (test, [left, right]) in tests.iter().zip([[0, 1], [1, 0]]) {
        for kind in KINDS {
            for condition in [false, true] {
                let (left, right) = (&sides[left], &sides[right]);
                let spec = spec(left.schema_ref(), kind, &[], Nulls::Distinct, condition);
                assert_equals_oracle(&spec, [left, right], &test.environment, 2);
            }
        }
    }
}

#[test]
fn zeros_are_equal_and_so_are_nans() {
    let floats = |values: Vec<f64>| {
        let column: ArrayRef = Arc::new(Float64Array::from(values));
        RecordBatch::try_from_iter([("key", column)]).unwrap()
    };
    let left = floats(vec![0.0, f64::NAN, 1.0]);
    let right = floats(vec![-0.0, -f64::NAN, -1.0]);
    for choice in [0, 2] {
        let test = TestEnvironment::new(broker(choice, 0));
        let spec = count_spec(left.schema_ref());
        let output = join(&spec, [&left, &right], &test.environment, 1).unwrap();
        let keys = output.iter().flat_map(|batch| {
            let keys = batch.column(0).as_primitive::<Float64Type>();
            keys.values().to_vec()
        });
        let mut bits: Vec<u64> = keys.map(f64::to_bits).collect();
        bits.sort_unstable();
        assert_eq!(
            bits,
            [0.0, f64::NAN].map(f64::to_bits),
            "values come back as they were"
        );
    }
}

#[test]
fn a_join_without_output_columns_counts_rows() {
    let spread = Spread {
        rows: 50,
        values: 5,
        nulls: true,
        skewed: true,
    };
    let left = rows(spread, 1, 3);
    for choice in [0, 2] {
        let test = TestEnvironment::new(broker(choice, 0));
        let mut spec = spec(
            left.schema_ref(),
            JoinKind::Full,
            &[1, 2],
            Nulls::Distinct,
            false,
        );
        spec.output.clear();
        spec.schema = Arc::new(Schema::empty());
        let output = join(&spec, [&left, &left], &test.environment, 2).unwrap();
        let count: usize = output.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(count, oracle(&spec, &left, &left).num_rows());
    }
}

fn numbers(values: impl Iterator<Item = i64>) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("key", DataType::Int64, false)]);
    let column = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap()
}

fn count_spec(schema: &arrow_schema::SchemaRef) -> JoinSpec {
    JoinSpec {
        left: Arc::clone(schema),
        right: Arc::clone(schema),
        on: vec![(0, 0)],
        kind: JoinKind::Inner,
        nulls: Nulls::Distinct,
        null_aware: false,
        condition: None,
        output: vec![(Side::Left, 0)],
        schema: Arc::clone(schema),
    }
}

#[test]
fn a_join_of_ten_times_its_memory_stays_near_its_memory() {
    let limit = 1 << 20;
    let left = numbers((0..600_000).map(|n| n * 7));
    let right = numbers((0..600_000).map(|n| n * 14));
    let pool = FixedPool::new(limit);
    let test = TestEnvironment::new(Arc::clone(&pool) as Arc<dyn Broker>);
    let spec = count_spec(left.schema_ref());
    let output = join(&spec, [&left, &right], &test.environment, 2).unwrap();
    assert_eq!(
        output.iter().map(RecordBatch::num_rows).sum::<usize>(),
        300_000
    );
    let over = pool.lent_bytes_max() - limit;
    assert!(over < 9 << 20, "{over} bytes more than the limit");
    assert_eq!(pool.lent_bytes(), 0);
    let stats = test.environment.spill.stats();
    assert!(
        stats.written_count > 0 && stats.used_bytes == 0,
        "{stats:?}"
    );
}

#[test]
fn partitions_are_divided_until_they_fit_and_not_further() {
    let left = numbers((0..300_000).map(|n| n * 3));
    let right = numbers(0..300_000);
    for (minimum, levels) in [(1 << 20, 1), (16 << 10, 2)] {
        let test = TestEnvironment::new(FixedPool::new(0));
        let spec = count_spec(left.schema_ref());
        let join = HashJoin::with_minimum(spec, &test.environment, 2, minimum).unwrap();
        let output = run(&join, [&left, &right], 2).unwrap();
        let count: usize = output.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(count, 100_000);
        let stats = join.stats();
        assert_eq!(stats.level_max, levels, "{stats:?}");
        assert!(
            stats.spilled_left_rows > 0 && stats.spilled_right_rows > 0,
            "{stats:?}"
        );
    }
}

#[test]
fn pairs_that_fit_are_divided_in_memory_and_return_what_they_should() {
    let left = numbers((0..60_000).map(|n| n * 3));
    let right = numbers(0..60_000);
    for (kind, expected) in [
        (JoinKind::Inner, 20_000),
        (JoinKind::Left, 60_000),
        (JoinKind::Right, 60_000),
        (JoinKind::Full, 100_000),
        (JoinKind::LeftSemi, 20_000),
        (JoinKind::RightSemi, 20_000),
        (JoinKind::LeftAnti, 40_000),
        (JoinKind::RightAnti, 40_000),
    ] {
        for threads in [1, 3] {
            let pool = FixedPool::new(256 << 10);
            let test = TestEnvironment::new(Arc::clone(&pool) as Arc<dyn Broker>);
            let spec = nullable_spec(left.schema_ref(), kind);
            let join = HashJoin::with_minimum(spec, &test.environment, threads, 0).unwrap();
            let output = run(&join, [&left, &right], threads).unwrap();
            let rows: usize = output.iter().map(RecordBatch::num_rows).sum();
            let stats = join.stats();
            assert_eq!(rows, expected, "{kind:?} {stats:?}");
            assert!(stats.piece_count > stats.pair_count, "{kind:?} {stats:?}");
            drop(join);
            assert_eq!(pool.lent_bytes(), 0, "{kind:?}");
        }
    }
}

#[test]
fn pairs_of_few_keys_are_not_joined_in_pieces() {
    let few = numbers((0..60_000).map(|n| n % 100));
    let test = TestEnvironment::new(FixedPool::new(256 << 10));
    let spec = nullable_spec(few.schema_ref(), JoinKind::LeftSemi);
    let join = HashJoin::with_minimum(spec, &test.environment, 2, 0).unwrap();
    let output = run(&join, [&few, &few], 2).unwrap();
    let rows: usize = output.iter().map(RecordBatch::num_rows).sum();
    let stats = join.stats();
    assert!(stats.spilled_left_rows > 0, "{stats:?}");
    assert_eq!((rows, stats.piece_count), (60_000, 0), "{stats:?}");
}

/// A join whose output is the key of a side, or NULL.
fn nullable_spec(schema: &arrow_schema::SchemaRef, kind: JoinKind) -> JoinSpec {
    let side = match kind {
        JoinKind::RightSemi | JoinKind::RightAnti => Side::Right,
        _ => Side::Left,
    };
    let field = Field::new("key", DataType::Int64, true);
    JoinSpec {
        kind,
        output: vec![(side, 0)],
        schema: Arc::new(Schema::new(vec![field])),
        ..count_spec(schema)
    }
}

#[test]
fn one_key_is_not_divided_in_vain() {
    let left = numbers(std::iter::repeat_n(5, 20_000));
    let right = numbers((0..20).map(|n| n % 6));
    let test = TestEnvironment::new(FixedPool::new(0));
    let mut spec = count_spec(left.schema_ref());
    spec.kind = JoinKind::Full;
    let join = HashJoin::with_minimum(spec, &test.environment, 1, 0).unwrap();
    let output = run(&join, [&right, &left], 1).unwrap();
    assert_eq!(
        output.iter().map(RecordBatch::num_rows).sum::<usize>(),
        3 * 20_000 + 17
    );
    let stats = join.stats();
    assert!(stats.level_max <= 2, "{stats:?}");
}

#[test]
fn many_partners_come_in_batches() {
    let left = numbers((0..3000).map(|n| n % 2));
    let right = numbers((0..100).map(|n| n % 4));
    let test = TestEnvironment::new(FixedPool::new(1 << 30));
    let spec = count_spec(left.schema_ref());
    let output = join(&spec, [&left, &right], &test.environment, 1).unwrap();
    let lens: Vec<usize> = output.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(lens.iter().sum::<usize>(), 1500 * 50);
    assert!(lens.len() >= 1500 * 50 / PIECE_ROWS);
}

#[test]
fn large_values_come_in_batches_of_bounded_size() {
    let texts = |rows: usize, len: usize| {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![1; rows]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(len); rows]));
        RecordBatch::try_from_iter([("key", keys), ("text", texts)]).unwrap()
    };
    for (left, right) in [((4, 300_000), (100, 1)), ((100, 1), (4, 300_000))] {
        let (left, right) = (texts(left.0, left.1), texts(right.0, right.1));
        for choice in [0, 2] {
            let test = TestEnvironment::new(broker(choice, 0));
            let mut spec = count_spec(left.schema_ref());
            spec.output = vec![(Side::Left, 1), (Side::Right, 1)];
            let field = |name| Field::new(name, DataType::Utf8, false);
            spec.schema = Arc::new(Schema::new(vec![field("left"), field("right")]));
            let output = join(&spec, [&left, &right], &test.environment, 1).unwrap();
            assert_eq!(output.iter().map(RecordBatch::num_rows).sum::<usize>(), 400);
            let largest = output.iter().map(needed_bytes).max();
            assert!(
                largest.is_some_and(|bytes| bytes < 3 << 20),
                "{largest:?} bytes"
            );
        }
    }
}

/// Without care this takes 10 000 million steps.
#[test]
fn rows_of_one_key_are_marked_once() {
    let left = numbers((0..100_000).map(|_| 7));
    let test = TestEnvironment::new(FixedPool::new(1 << 30));
    for (kind, side, expected) in [
        (JoinKind::LeftSemi, Side::Left, 100_000),
        (JoinKind::LeftAnti, Side::Left, 0),
        (JoinKind::RightSemi, Side::Right, 100_000),
    ] {
        let mut spec = count_spec(left.schema_ref());
        (spec.kind, spec.output) = (kind, vec![(side, 0)]);
        let output = join(&spec, [&left, &left], &test.environment, 2).unwrap();
        let count: usize = output.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(count, expected, "{kind:?}");
    }
}

#[test]
fn keys_of_different_types_are_an_error() {
    let left = numbers(0..3);
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    let right = RecordBatch::try_from_iter([("text", texts)]).unwrap();
    let test = TestEnvironment::new(FixedPool::new(0));
    let mut spec = count_spec(left.schema_ref());
    let join = HashJoin::try_new(spec.clone(), &test.environment, 1).unwrap();
    assert!(join.builder().insert(right.clone()).is_err());
    spec.right = right.schema();
    let error = HashJoin::try_new(spec, &test.environment, 1)
        .err()
        .expect("no one type");
    assert!(
        error.to_string().contains("key Int64 and text Utf8 differ"),
        "{error}"
    );
}

#[test]
fn a_damaged_partition_ends_a_join_with_the_place_and_frees_everything() {
    let left = numbers(0..5000);
    let pool = FixedPool::new(0);
    let test = TestEnvironment::new(Arc::clone(&pool) as Arc<dyn Broker>);
    let spec = count_spec(left.schema_ref());
    let join = HashJoin::with_minimum(spec, &test.environment, 1, 0).unwrap();
    join.builder().insert(left.clone()).unwrap();
    join.finish_build(1).unwrap();
    join.build.file().unwrap().damage(0);
    let mut prober = join.prober().unwrap();
    prober.push(left).unwrap();
    while prober.next_batch().unwrap().is_some() {}
    prober.finish().unwrap();
    let error = loop {
        match prober.next_batch() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the damage is not noticed"),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(&error, OperatorError::Damaged(found) if found.offset == 0),
        "{error}"
    );
    drop((prober, join));
    assert_eq!(pool.lent_bytes(), 0);
    assert_eq!(test.environment.spill.stats().used_bytes, 0);
    assert_eq!(std::fs::read_dir(test.folder.path()).unwrap().count(), 0);
}

#[test]
fn a_full_spill_folder_ends_a_join_with_figures_and_frees_everything() {
    let left = numbers(0..50_000);
    let pool = FixedPool::new(0);
    let test = TestEnvironment::new(Arc::clone(&pool) as Arc<dyn Broker>);
    test.environment.spill.set_limit_bytes(100_000);
    let spec = count_spec(left.schema_ref());
    let error = join(&spec, [&left, &left], &test.environment, 2).unwrap_err();
    assert!(
        matches!(error, OperatorError::SpillLimit { limit_bytes: 100_000, needed_bytes, .. } if needed_bytes > 0),
        "{error}"
    );
    assert_eq!(pool.lent_bytes(), 0);
    assert_eq!(test.environment.spill.stats().used_bytes, 0);
}

#[test]
fn a_raised_flag_ends_every_thread() {
    let left = numbers(0..1000);
    let test = TestEnvironment::new(FixedPool::new(0));
    let spec = count_spec(left.schema_ref());
    let join = HashJoin::with_minimum(spec, &test.environment, 2, 0).unwrap();
    join.builder().insert(left.clone()).unwrap();
    join.finish_build(1).unwrap();
    let [mut prober, mut other] = [join.prober().unwrap(), join.prober().unwrap()];
    other.push(left.clone()).unwrap();
    prober.finish().unwrap();
    let waiting = std::thread::spawn(move || prober.next_batch());
    test.environment.stop.raise();
    assert!(matches!(other.next_batch(), Err(OperatorError::Stopped)));
    assert!(matches!(
        waiting.join().unwrap(),
        Err(OperatorError::Stopped)
    ));
    assert!(matches!(
        join.builder().insert(left.clone()),
        Err(OperatorError::Stopped)
    ));
}

#[test]
fn without_a_prober_that_was_dropped_nobody_knows_what_remains() {
    let left = numbers(0..10);
    let test = TestEnvironment::new(FixedPool::new(1 << 30));
    let mut spec = count_spec(left.schema_ref());
    spec.kind = JoinKind::LeftAnti;
    let join = HashJoin::try_new(spec, &test.environment, 2).unwrap();
    join.builder().insert(left.clone()).unwrap();
    join.finish_build(1).unwrap();
    let [mut prober, other] = [join.prober().unwrap(), join.prober().unwrap()];
    prober.finish().unwrap();
    drop(other);
    assert!(prober.next_batch().unwrap().is_none());
}
