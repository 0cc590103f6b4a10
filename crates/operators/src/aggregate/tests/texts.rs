//! Keys with texts of all lengths, alike at their beginning, in every layout and beside other columns.

use arrow_array::{
    ArrayRef, BinaryViewArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray,
    LargeStringArray, StringArray, StringViewArray,
};

use super::oracle::{oracle, sorted, sums_by_the_others, two_steps};
use super::*;

/// Columns to choose from.
const COLUMNS: usize = 8;

/// A text: long ones share 4, 8, 12 or more bytes, and some differ at the end only.
fn text(pick: u32) -> String {
    let start = ["", "sharedfour", "tail"][pick as usize % 3];
    let len = [0, 1, 4, 8, 12, 13, 16, 17, 40, 300][pick as usize / 3 % 10];
    let mut text: String = start.chars().cycle().take(len).collect();
    if pick.is_multiple_of(2) {
        text.push_str(&(pick / 30).to_string());
    }
    text
}

fn column(number: usize, picks: &[Option<u32>]) -> ArrayRef {
    let texts = || picks.iter().map(|pick| pick.map(text));
    let numbers = || picks.iter().map(|pick| pick.map(i64::from));
    match number {
        0 => Arc::new(StringViewArray::from_iter(texts())),
        1 => Arc::new(StringArray::from_iter(texts())),
        2 => Arc::new(LargeStringArray::from_iter(texts())),
        3 => {
            let texts: Vec<Option<String>> = texts().collect();
            Arc::new(BinaryViewArray::from_iter(texts.iter().map(Option::as_ref)))
        }
        4 => {
            let bytes = |number: i64| [number.to_le_bytes(), [7; 8]].concat();
            let values = numbers().map(|number| number.map(bytes));
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 16).unwrap())
        }
        5 => Arc::new(Int64Array::from_iter(numbers())),
        6 => Arc::new(BooleanArray::from_iter(
            numbers().map(|number| number.map(|number| number % 2 == 0)),
        )),
        _ => Arc::new(Decimal128Array::from_iter(
            numbers().map(|number| number.map(|number| i128::from(number) << 66)),
        )),
    }
}

fn input(columns: &[usize], rows: usize, values: u32, seed: u64) -> RecordBatch {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut picks = |values: u32| -> Vec<Option<u32>> {
        let mut latest = None;
        let pick = |_| {
            if random.u8(..4) > 0 {
                latest = (random.u8(..10) > 0).then(|| random.u32(..values));
            }
            latest
        };
        (0..rows).map(pick).collect()
    };
    let keys = columns.iter().enumerate().map(|(place, &number)| {
        // Few combinations of several columns.
        let values = if place == 0 { values } else { 3 };
        (format!("key {place}"), column(number, &picks(values)), true)
    });
    let mut named: Vec<(String, ArrayRef, bool)> = keys.collect();
    let numbers = Int64Array::from_iter_values((0..rows).map(|row| row as i64));
    named.push(("number".to_owned(), Arc::new(numbers), true));
    RecordBatch::try_from_iter_with_nullable(named).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn groups_by_texts_are_those_of_a_map(
        columns in proptest::sample::subsequence((0..COLUMNS).collect::<Vec<_>>(), 1..=COLUMNS),
        rows in 0_usize..3000,
        values in 1_u32..2000,
        is_tiny: bool,
        (choice, threads) in (0_u64..4, 1_usize..=3),
        seed: u64,
    ) {
        let input = input(&columns, rows, values, seed);
        let spec = sums_by_the_others(input.schema_ref());
        let test = TestEnvironment::new(broker(choice, seed));
        assert_equals_oracle(&spec, &input, &test.environment, limits(is_tiny), threads);
        prop_assert_eq!(test.environment.spill.stats().used_bytes, 0);
    }

    #[test]
    fn groups_by_texts_in_two_steps_are_those_of_one(
        columns in proptest::sample::subsequence((0..COLUMNS).collect::<Vec<_>>(), 1..=3),
        rows in 0_usize..1000,
        choice in 0_u64..4,
        seed: u64,
    ) {
        let input = input(&columns, rows, 300, seed);
        let spec = sums_by_the_others(input.schema_ref());
        let [first, last] = two_steps(&spec);
        let test = TestEnvironment::new(broker(choice, seed));
        let (states, _) = aggregate(&first, &input, &test.environment, TINY, 2);
        let states = concat_batches(&first.schema, &states).unwrap();
        let (output, _) = aggregate(&last, &states, &test.environment, TINY, 2);
        prop_assert_eq!(sorted(&output), oracle(&spec, &input));
    }
}

#[test]
fn little_memory_is_enough_for_many_texts() {
    for (pool_bytes, threads) in [(0, 1), (1 << 20, 2)] {
        let pool = FixedPool::new(pool_bytes);
        let test = TestEnvironment::new(Arc::clone(&pool) as Arc<dyn Broker>);
        let rows = 1 << 16;
        let texts = (0..rows).map(|row| format!("a text longer than its words, number {row}"));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let input = RecordBatch::try_from_iter_with_nullable([
            ("text", texts, true),
            ("number", numbers, true),
        ]);
        let input = input.unwrap();
        let spec = sums_by_the_others(input.schema_ref());
        let environment = &test.environment;
        let stats = assert_equals_oracle(&spec, &input, environment, Limits::default(), threads);
        assert!(stats.spilled_count > 0);
        let overdraft = 4 << 20;
        assert!(pool.lent_bytes_max() <= pool_bytes + overdraft, "{stats:?}");
        assert_eq!(pool.lent_bytes(), 0);
    }
}

/// Groups by a number and one of two texts of 100 KB.
fn long_texts(as_views: bool) -> RecordBatch {
    let rows = 20_000;
    let long = ["a", "b"].map(|text| text.repeat(100_000));
    let text =
        |row: usize| (row >= 4500 && row.is_multiple_of(50)).then_some(&long[row % 100 / 50]);
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter((0..rows).map(text)));
    let texts = match as_views {
        true => texts,
        false => arrow_cast::cast(&texts, &DataType::Utf8).unwrap(),
    };
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    let columns = [
        ("text", texts, true),
        ("number", Arc::clone(&numbers), true),
        ("value", numbers, true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

#[test]
fn texts_that_groups_share_come_out_in_small_batches_and_are_charged_once() {
    for as_views in [true, false] {
        let input = long_texts(as_views);
        let spec = sums_by_the_others(input.schema_ref());
        let test = TestEnvironment::new(FixedPool::new(1 << 30));
        let aggregation = HashAggregate::try_new(spec.clone(), &test.environment, 1).unwrap();
        let mut worker = aggregation.worker().unwrap();
        worker.push(input.clone()).unwrap();
        worker.finish().unwrap();
        assert_eq!(aggregation.stats().scattered_count, 0);
        assert!(worker.has_output());
        let charged = aggregation.shared.grant.used_bytes();
        assert!(charged < 8 << 20, "{charged} bytes");
        let mut found = Vec::new();
        while let Some(batch) = worker.next_batch().unwrap() {
            let bytes = crate::batches::needed_bytes(&batch);
            assert!(bytes < 5 << 20, "{bytes} bytes in a batch");
            found.push(batch);
        }
        assert_eq!(sorted(&found), oracle(&spec, &input));
    }
}

#[test]
fn groups_share_texts_that_come_often() {
    let rows = 20_000;
    let texts = |count: i64| -> ArrayRef {
        let texts = (0..rows).map(|row| format!("a text longer than its words, {}", row % count));
        Arc::new(StringViewArray::from_iter_values(texts))
    };
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let [few, many] = [150, rows].map(|count| {
        let keys = [texts(count), Arc::clone(&numbers)];
        let types = keys.each_ref().map(|key| (key.data_type().clone(), true));
        let mut groups = GroupNumbers::try_new(&types).unwrap();
        groups
            .number(&keys, rows as usize, &mut Vec::new())
            .unwrap();
        let bytes = groups.bytes();
        assert_eq!(groups.take().unwrap(), keys);
        bytes
    });
    assert!(few + 300_000 < many, "{few} and {many} bytes");
}
