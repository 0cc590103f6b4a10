//! Runs whose keys are long, or alike at their beginning.

use arrow_array::{Array, StringViewArray};

use super::*;

const MINIMUM_BYTES: u64 = 64 << 10;

/// Rows with these texts, which are numbered.
fn rows(texts: impl Iterator<Item = String>, first: usize) -> RecordBatch {
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
    let numbers = (first..first + texts.len()).map(|row| row as i64);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    RecordBatch::try_from_iter([("text", texts), ("row", numbers)]).unwrap()
}

fn options(limit: Option<usize>) -> SortOptions {
    SortOptions {
        keys: vec![key(0, false, true)],
        limit,
        minimum_bytes: MINIMUM_BYTES,
        ..SortOptions::default()
    }
}

/// A sorter of these batches.
fn filled(test: &TestEnvironment, batches: &[RecordBatch], options: &SortOptions) -> Sorter {
    let schema = batches[0].schema();
    let mut sorter = Sorter::new(&test.environment, "sort", schema, options.clone()).unwrap();
    let mut pushed = batches.iter().cloned();
    pushed.try_for_each(|batch| sorter.push(batch)).unwrap();
    sorter
}

#[test]
fn marks_of_long_keys_take_a_small_part_of_what_was_spilled() {
    const KEY_BYTES: usize = 8 << 10;
    let start = "x".repeat(KEY_BYTES - 8);
    let texts: [&dyn Fn(usize) -> String; 3] = [
        &|_| start.clone(),
        &|row: usize| format!("{start}{row:08}"),
        &|row: usize| format!("{:08}{start}", row * 7919 % 1000),
    ];
    for text in texts {
        let batch = |n: usize| rows((20 * n..20 * n + 20).map(text), 20 * n);
        let batches: Vec<RecordBatch> = (0..20).map(batch).collect();
        let test = TestEnvironment::new(FixedPool::new(1 << 20));
        let options = options(None);
        let mut sorter = filled(&test, &batches, &options);
        sorter.end().unwrap();
        sorter.spill_rest().unwrap();
        let charged = sorter.runs.iter().map(|run| run.charged_bytes());
        let charged: u64 = charged.sum();
        let most = (400 * KEY_BYTES / 32 + 2 * KEY_BYTES * sorter.runs.len()) as u64;
        assert!(charged <= most, "{charged} bytes of marks");
        let mut sorted = sorter.finish().unwrap();
        let parts: Vec<RecordBatch> = sorted.by_ref().collect::<Result<_>>().unwrap();
        let sorted = concat_batches(&batches[0].schema(), &parts).unwrap();
        assert_eq!(sorted, expected(&batches, &options));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn rows_with_keys_that_are_alike_are_merged_in_order(
        row_counts in proptest::collection::vec(1usize..2000, 4..12),
        values in 1u8..4,
        len_max in 0usize..30,
        copies in 1usize..20,
        limit in proptest::option::of(0usize..4000),
        memory_bytes in 0u64..400_000,
        seed: u64,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut first = 0;
        let mut batch = |&row_count: &usize| {
            first += row_count;
            let mut latest = String::new();
            let text = |row: usize| {
                if row.is_multiple_of(copies) {
                    let len = random.usize(..=len_max);
                    latest = (0..len).map(|_| char::from(random.u8(..values))).collect();
                }
                latest.clone()
            };
            rows((0..row_count).map(text), first - row_count)
        };
        let batches: Vec<RecordBatch> = row_counts.iter().map(&mut batch).collect();
        let test = TestEnvironment::new(FixedPool::new(memory_bytes));
        let options = options(limit);
        let (some, others) = batches.split_at(batches.len() / 2);
        let (some, others) = (filled(&test, some, &options), filled(&test, others, &options));
        let parts = match some.finish_with(vec![others]).unwrap() {
            Together::Merged(ranges) => {
                let parts = (0..ranges.range_count()).map(|range| ranges.rows(range).unwrap());
                parts.collect::<Vec<_>>().concat()
            }
            Together::Held(_) => return Ok(()),
        };
        let all = concat_batches(&batches[0].schema(), &parts).unwrap();
        let wanted = limit.unwrap_or(usize::MAX).min(all.num_rows());
        prop_assert_eq!(all.slice(0, wanted), expected(&batches, &options));
    }
}

#[test]
fn ranges_after_the_limit_are_not_merged() {
    let batch = |n: usize| {
        let row = |row: usize| format!("{:08}", row * 7919 % 20_000);
        rows((2000 * n..2000 * n + 2000).map(row), 2000 * n)
    };
    let batches: Vec<RecordBatch> = (0..10).map(batch).collect();
    let range_count = |limit| {
        let test = TestEnvironment::new(FixedPool::new(128 << 10));
        let options = options(limit);
        let sorter = filled(&test, &batches, &options);
        assert!(sorter.has_spilled());
        match sorter.finish_with(Vec::new()).unwrap() {
            Together::Merged(ranges) => ranges.range_count(),
            Together::Held(_) => 0,
        }
    };
    let (all, some) = (range_count(None), range_count(Some(5000)));
    assert!(some > 0 && some < all, "{some} of {all} ranges");
}

#[test]
fn memory_for_a_merge_is_lent_before_it_begins() {
    for key_bytes in [10, 200, 3000] {
        let start = "x".repeat(key_bytes);
        let text = |row: usize| format!("{start}{:08}", row * 7919 % 20_000);
        let batch = |n: usize| rows((1000 * n..1000 * n + 1000).map(text), 1000 * n);
        let test = TestEnvironment::new(FixedPool::new(512 << 10));
        let batches: Vec<RecordBatch> = (0..12).map(batch).collect();
        let mut sorter = filled(&test, &batches, &options(None));
        sorter.end().unwrap();
        let (job, mut runs) = (Arc::clone(&sorter.job), std::mem::take(&mut sorter.runs));
        let reserved = Reserved::new(&job, &runs, 1).unwrap();
        assert!(reserved.run_count() > 1);
        runs.truncate(reserved.run_count());
        let reserved_bytes = job.grant.used_bytes();
        let ranges = MergedRanges::new(reserved, runs, SortStats::default()).unwrap();
        assert!(ranges.range_count() > 1);
        let used_bytes = job.grant.used_bytes();
        assert!(
            used_bytes <= reserved_bytes,
            "{used_bytes} of {reserved_bytes} bytes for keys of {key_bytes}"
        );
    }
}
