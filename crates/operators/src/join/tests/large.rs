//! Joins of more rows than nested loops could join.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arrow_array::BooleanArray;
use arrow_array::types::Int64Type;

use super::*;

/// A test of pairs that counts them, and passes those of different second columns.
struct Counting(AtomicUsize);

impl PairTest for Counting {
    fn test(&self, pairs: &RecordBatch) -> Result<BooleanArray> {
        self.0.fetch_add(pairs.num_rows(), Relaxed);
        let [left, right] = [0, 1].map(|column| pairs.column(column).as_primitive::<Int64Type>());
        let pairs = left.values().iter().zip(right.values());
        Ok(pairs.map(|(left, right)| Some(left != right)).collect())
    }
}

#[test]
fn rows_that_have_partners_are_tested_no_more() {
    let column = |numbers: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(numbers)) };
    let keys = column((0..12_000).map(|row| row / 600).collect());
    let thirds = column((0..12_000).map(|row| row % 3).collect());
    let rows = RecordBatch::try_from_iter([("key", keys), ("third", thirds)]).unwrap();
    let test = TestEnvironment::new(FixedPool::new(1 << 30));
    for (kind, side, expected) in [
        (JoinKind::LeftSemi, Side::Left, 12_000),
        (JoinKind::LeftAnti, Side::Left, 0),
        (JoinKind::RightSemi, Side::Right, 12_000),
        (JoinKind::RightAnti, Side::Right, 0),
    ] {
        let counting = Arc::new(Counting(0.into()));
        let mut spec = count_spec(rows.schema_ref());
        (spec.kind, spec.output) = (kind, vec![(side, 0)]);
        spec.schema = Arc::new(rows.schema().project(&[0]).unwrap());
        spec.condition = Some(Condition {
            columns: vec![(Side::Left, 1), (Side::Right, 1)],
            schema: Arc::new(Schema::new(vec![rows.schema().field(1).clone(); 2])),
            test: counting.clone(),
        });
        let output = join(&spec, [&rows, &rows], &test.environment, 1).unwrap();
        let count: usize = output.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(count, expected, "{kind:?}");
        let tested = counting.0.load(Relaxed);
        assert!(
            tested < 20 * 12_000,
            "{kind:?}: {tested} of 7.2 million pairs"
        );
    }
}

/// Enough that rows in the order of their keys are divided into parts.
#[test]
fn many_different_keys_find_their_own_rows() {
    let numbered = |first: i64, rows: i64, step: i64| {
        let numbers = || (0..rows).map(move |row| first + (row * 7919 % rows) * step);
        let texts = numbers().map(|number| format!("text {number}"));
        let columns: [(&str, ArrayRef); 2] = [
            ("number", Arc::new(Int64Array::from_iter_values(numbers()))),
            ("text", Arc::new(StringArray::from_iter_values(texts))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let (left, right) = (numbered(-500, 30_011, 3), numbered(0, 40_009, 2));
    let mut spec = count_spec(left.schema_ref());
    spec.kind = JoinKind::Full;
    spec.output = vec![(Side::Left, 0), (Side::Left, 1), (Side::Right, 1)];
    let field = |column: usize| left.schema().field(column).clone().with_nullable(true);
    spec.schema = Arc::new(Schema::new(vec![field(0), field(1), field(1)]));
    // Numbers from 0 to 80 016 that are a multiple of two, and 500 less than one of three.
    let pairs = (0..40_009)
        .filter(|row| (2 * row + 500) % 3 == 0 && 2 * row <= 3 * 30_010 - 500)
        .count();
    for memory_bytes in [1 << 30, 1 << 19] {
        let test = TestEnvironment::new(FixedPool::new(memory_bytes));
        let environment = &test.environment;
        let output = join(&spec, [&left, &right], environment, 2).unwrap();
        let counts = partners(&output);
        assert_eq!(counts, [30_011 - pairs, 40_009 - pairs, pairs]);
    }
}

/// How many rows are of the left side alone, of the right, and of both. Texts are those of their numbers.
fn partners(output: &[RecordBatch]) -> [usize; 3] {
    let mut counts = [0; 3];
    for batch in output {
        let [left, right] = [1, 2].map(|column| batch.column(column).as_string::<i32>());
        let numbers = batch.column(0).as_primitive::<Int64Type>();
        for (number, (left, right)) in numbers.iter().zip(left.iter().zip(right)) {
            assert_eq!(
                left,
                number.map(|number| format!("text {number}")).as_deref()
            );
            match (left, right) {
                (Some(left), Some(right)) => assert_eq!(left, right),
                _ => counts[usize::from(left.is_none())] += 1,
            }
            counts[2] += usize::from(left.is_some() && right.is_some());
        }
    }
    counts
}

#[test]
fn keys_that_repeat_find_all_of_their_rows() {
    let numbered = |numbers: &mut dyn Iterator<Item = i64>| {
        let numbers: Vec<i64> = numbers.collect();
        let rows = 0..numbers.len() as i64;
        let columns: [(&str, ArrayRef); 2] = [
            ("number", Arc::new(Int64Array::from_iter_values(numbers))),
            ("row", Arc::new(Int64Array::from_iter_values(rows))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    // Each number up to five times, and one of them 5000 times.
    let repeated = (0..9_001i64)
        .flat_map(|number| std::iter::repeat_n(number * 7 - 300, 1 + number as usize % 5));
    let left = numbered(&mut repeated.chain(std::iter::repeat_n(14, 5_000)));
    let right = numbered(&mut (-400..30_000).map(|number| number * 3 % 40_000));
    let values = |batch: &RecordBatch, column: usize| {
        batch.column(column).as_primitive::<Int64Type>().clone()
    };
    let (left_numbers, right_numbers) = (values(&left, 0), values(&right, 0));
    let mut rows_of = std::collections::HashMap::<i64, u64>::new();
    left_numbers
        .values()
        .iter()
        .for_each(|number| *rows_of.entry(*number).or_default() += 1);
    let partners = |number: &i64| rows_of.get(number).copied().unwrap_or(0);
    let pairs: u64 = right_numbers.values().iter().map(partners).sum();
    let lonely_right = right_numbers
        .values()
        .iter()
        .filter(|number| partners(number) == 0)
        .count() as u64;
    let probing: std::collections::HashSet<i64> = right_numbers.values().iter().copied().collect();
    let lonely_left = left_numbers
        .values()
        .iter()
        .filter(|number| !probing.contains(number))
        .count() as u64;
    let left_rows = left.num_rows() as u64;
    for threads in [1, 2] {
        for (kind, expected) in [
            (JoinKind::Inner, pairs),
            (JoinKind::Full, pairs + lonely_left + lonely_right),
            (JoinKind::LeftSemi, left_rows - lonely_left),
            (JoinKind::LeftAnti, lonely_left),
        ] {
            let mut spec = count_spec(left.schema_ref());
            spec.kind = kind;
            let has_both = matches!(kind, JoinKind::Inner | JoinKind::Full);
            spec.output = match has_both {
                true => vec![(Side::Left, 0), (Side::Right, 0)],
                false => vec![(Side::Left, 0)],
            };
            let field = left.schema().field(0).clone().with_nullable(true);
            spec.schema = Arc::new(Schema::new(vec![field; spec.output.len()]));
            let test = TestEnvironment::new(FixedPool::new(1 << 30));
            let output = join(&spec, [&left, &right], &test.environment, threads).unwrap();
            let mut rows = 0;
            for batch in &output {
                rows += batch.num_rows() as u64;
                if has_both {
                    let (left, right) = (values(batch, 0), values(batch, 1));
                    let mut both = left.iter().zip(right.iter());
                    assert!(
                        both.all(|(left, right)| left.is_none()
                            || right.is_none()
                            || left == right)
                    );
                }
            }
            assert_eq!(rows, expected, "{kind:?}, {threads} threads");
        }
    }
}
