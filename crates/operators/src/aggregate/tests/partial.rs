//! Groups that are handed on before all rows have come.

use super::super::partial::{PartialAggregate, Sizes};
use super::*;

/// Sizes that few rows reach.
const SMALL: Sizes = Sizes {
    window_rows: 64,
    small_groups: 50,
    large_groups: 300,
};

/// The groups that are handed on, in batches, and how many rows were not looked up.
fn handed_on(
    spec: &AggregateSpec,
    input: &RecordBatch,
    environment: &Environment,
    sizes: Sizes,
) -> (Vec<RecordBatch>, u64) {
    let mut groups = PartialAggregate::with_sizes(spec.clone(), environment, sizes).unwrap();
    let mut output = Vec::new();
    for start in (0..input.num_rows()).step_by(700) {
        let batch = input.slice(start, 700.min(input.num_rows() - start));
        groups.push(batch).unwrap();
        output.extend(std::iter::from_fn(|| groups.next_batch().unwrap()));
    }
    groups.finish().unwrap();
    output.extend(std::iter::from_fn(|| groups.next_batch().unwrap()));
    (output, groups.blind_count())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn merging_what_is_handed_on_returns_what_one_step_does(
        keys in keys(),
        row_count in 0_usize..3000,
        values in 1_u32..2000,
        [nulls, skewed, is_sorted, is_small]: [bool; 4],
        choice in 0_u64..4,
        seed: u64,
    ) {
        let spread = Spread { rows: row_count, values, nulls, skewed, sorted: is_sorted };
        let input = rows(spread, seed);
        let spec = spec(input.schema_ref(), &keys, true);
        let [first, last] = two_steps(&spec);
        let pool = FixedPool::new(1 << 30);
        let broker = if choice == 2 { Arc::clone(&pool) as _ } else { broker(choice, seed) };
        let test = TestEnvironment::new(broker);
        let sizes = if is_small { SMALL } else { Sizes::default() };
        let (states, _) = handed_on(&first, &input, &test.environment, sizes);
        prop_assert_eq!(pool.lent_bytes(), 0);
        let states = concat_batches(&first.schema, &states).unwrap();
        let (output, _) = aggregate(&last, &states, &test.environment, Limits::default(), 2);
        prop_assert_eq!(sorted(&output), oracle(&spec, &input));
    }
}

/// How many groups are handed on for these numbers, and how many rows are not looked up.
fn counts(input: impl IntoIterator<Item = i64>) -> (usize, u64) {
    let input = numbers(input);
    let [first, _] = two_steps(&sums_of_numbers(input.schema_ref(), false));
    let test = TestEnvironment::new(FixedPool::new(1 << 30));
    let sizes = Sizes {
        window_rows: 1 << 12,
        small_groups: 1 << 12,
        large_groups: 1 << 16,
    };
    let (output, blind) = handed_on(&first, &input, &test.environment, sizes);
    (output.iter().map(RecordBatch::num_rows).sum(), blind)
}

#[test]
fn groups_that_meet_rows_stay_in_the_table() {
    // The first quarter meets none.
    let input = (0..4).flat_map(|_| shuffled(1 << 15));
    assert_eq!(counts(input), (1 << 15, 0));
}

#[test]
fn rows_of_their_own_are_not_looked_up() {
    let (groups, blind) = counts(shuffled(1 << 18));
    assert_eq!(groups, 1 << 18);
    assert!(blind > 1 << 17, "{blind} rows");
}

#[test]
fn rows_nearly_in_order_meet_their_groups_in_small_tables() {
    let (groups, blind) = counts((0..1 << 18).map(|row| row / 4));
    assert!(
        ((1 << 16)..(1 << 16) + 100).contains(&groups),
        "{groups} groups"
    );
    assert_eq!(blind, 0);
}

#[test]
fn what_there_is_no_memory_for_is_handed_on() {
    let input = numbers(shuffled(1 << 16).chain(shuffled(1 << 16)));
    let [first, last] = two_steps(&sums_of_numbers(input.schema_ref(), false));
    let pool = FixedPool::new(1 << 20);
    let test = TestEnvironment::new(Arc::clone(&pool) as _);
    let (states, _) = handed_on(&first, &input, &test.environment, Sizes::default());
    let handed: usize = states.iter().map(RecordBatch::num_rows).sum();
    assert!(handed > 1 << 16, "{handed} groups");
    assert!(pool.lent_bytes_max() < 3 << 20, "{}", pool.lent_bytes_max());
    let states = concat_batches(&first.schema, &states).unwrap();
    let (output, _) = aggregate(&last, &states, &test.environment, Limits::default(), 1);
    let groups: usize = output.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(groups, 1 << 16);
}
