//! Columns that groups carry, beside the same columns as keys.

use arrow_array::{ArrayRef, Decimal128Array, StringArray, StringViewArray};

use super::oracle::sums_by_the_others;
use super::*;

/// Rows of a key, what depends on it, and a number.
fn dependent(row_count: usize, values: u32, seed: u64) -> RecordBatch {
    let mut random = fastrand::Rng::with_seed(seed);
    let keys: Vec<i64> = (0..row_count)
        .map(|_| i64::from(random.u32(..values)))
        .collect();
    let text = |key: i64| {
        let is_null = key % 5 == 0;
        (!is_null).then(|| format!("{}{}", key / 3, "-".repeat(key as usize % 4 * 9)))
    };
    let each = || keys.iter().map(|key| text(*key));
    let decimal = |key: &i64| (key % 7 > 0).then_some(i128::from(*key) << 65);
    let columns: [(&str, ArrayRef); 6] = [
        ("key", Arc::new(Int64Array::from(keys.clone()))),
        ("text", Arc::new(StringArray::from_iter(each()))),
        ("view", Arc::new(StringViewArray::from_iter(each()))),
        (
            "decimal",
            Arc::new(keys.iter().map(decimal).collect::<Decimal128Array>()),
        ),
        (
            "half",
            Arc::new(Int64Array::from_iter_values(keys.iter().map(|key| key / 2))),
        ),
        (
            "number",
            Arc::new((0..row_count as i64).collect::<Int64Array>()),
        ),
    ];
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// The sum of the numbers by the key, where groups carry what depends on it.
fn carrying(input: &RecordBatch) -> AggregateSpec {
    let by_all = sums_by_the_others(input.schema_ref());
    let carried = (1..by_all.keys.len())
        .map(|key| Aggregate::carrying(key, input.column(key).data_type()).unwrap());
    AggregateSpec {
        keys: vec![0],
        aggregates: carried.chain(by_all.aggregates.clone()).collect(),
        ..by_all
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn groups_carry_what_depends_on_their_keys(
        row_count in 0_usize..3000,
        values in 1_u32..2000,
        is_tiny: bool,
        (choice, threads) in (0_u64..4, 1_usize..=4),
        seed: u64,
    ) {
        let input = dependent(row_count, values, seed);
        let expected = oracle(&sums_by_the_others(input.schema_ref()), &input);
        let spec = carrying(&input);
        let test = TestEnvironment::new(broker(choice, seed));
        let limits = limits(is_tiny);
        let (output, _) = aggregate(&spec, &input, &test.environment, limits, threads);
        prop_assert_eq!(sorted(&output), &expected[..]);
        let [first, last] = two_steps(&spec);
        let (states, _) = aggregate(&first, &input, &test.environment, limits, threads);
        let states = concat_batches(&first.schema, &states).unwrap();
        let (output, _) = aggregate(&last, &states, &test.environment, limits, threads);
        prop_assert_eq!(sorted(&output), &expected[..]);
        let mut partial = PartialAggregate::try_new(first.clone(), &test.environment).unwrap();
        partial.push(input).unwrap();
        partial.finish().unwrap();
        let states: Vec<RecordBatch> =
            std::iter::from_fn(|| partial.next_batch().unwrap()).collect();
        let states = concat_batches(&first.schema, &states).unwrap();
        let (output, _) = aggregate(&last, &states, &test.environment, limits, 1);
        prop_assert_eq!(sorted(&output), &expected[..]);
    }
}

#[test]
fn lists_are_not_carried() {
    let list = DataType::new_list(DataType::Int64, true);
    assert!(Aggregate::carrying(0, &list).is_none());
}
