//! How a column's values are spread over rows, by a sample: the most frequent ones with their shares, and the others'
//! bounds in buckets of equally many rows.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{cast, is_not_null, sort};
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;
use parking_lot::Mutex;

use super::sample::{SampledRows, counts_of};

/// A value that this many rows of a sample have is frequent.
const FREQUENT_HITS: usize = 16;
/// Rows of a sample in each bucket.
const BUCKET_ROWS: usize = 32;

/// How values are spread.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Distribution {
    /// The share of rows that has each of the frequent values.
    frequent: HashMap<Box<[u8]>, f64>,
    /// The share of rows that has other values, without NULLs.
    rest: f64,
    /// Where the buckets of the numbers begin, and at last the greatest; empty if values are not numbers.
    bounds: Vec<f64>,
}

/// Distributions of a sample's columns, made when they are first asked for: by column, and the hash of the rows that
/// pass.
#[derive(Debug, Default)]
pub(super) struct Distributions(Mutex<HashMap<(usize, u64), Arc<Distribution>>>);

/// Distributions that are remembered.
const KEPT_MAX: usize = 256;

impl SampledRows {
    /// How the values of one of the table's columns are spread over all rows, or over those that pass.
    pub fn distribution(
        &self,
        number: usize,
        passing: Option<&BooleanBuffer>,
    ) -> Option<Arc<Distribution>> {
        let mut hasher = DefaultHasher::new();
        if let Some(rows) = passing {
            let parts = rows.bit_chunks();
            parts.iter_padded().for_each(|part| part.hash(&mut hasher));
        }
        let key = (number, hasher.finish());
        if let Some(known) = self.distributions.0.lock().get(&key) {
            return Some(known.clone());
        }
        let made = Distribution::of(self.column(number)?, passing);
        let made = Arc::new(made.unwrap_or_default());
        let mut kept = self.distributions.0.lock();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(key, made.clone());
        Some(made)
    }
}

impl Distribution {
    /// Of some of a sample's rows, or all.
    pub fn of(column: &ArrayRef, rows: Option<&BooleanBuffer>) -> Result<Self, ArrowError> {
        let present = is_not_null(column)?.values().clone();
        let among = rows.map_or_else(|| column.len(), BooleanBuffer::count_set_bits);
        let present = match rows {
            Some(rows) => &present & rows,
            None => present,
        };
        if among == 0 {
            return Ok(Self::default());
        }
        let share = |hits: usize| hits as f64 / among as f64;
        let counts = counts_of(std::slice::from_ref(column), Some(&present))?;
        let frequent: HashMap<_, _> = counts
            .into_iter()
            .filter(|(_, hits)| *hits >= FREQUENT_HITS)
            .map(|(value, hits)| (value, share(hits)))
            .collect();
        let rest = share(present.count_set_bits()) - frequent.values().sum::<f64>();
        Ok(Self {
            frequent,
            rest: rest.max(0.0),
            bounds: bounds(column, rows)?,
        })
    }

    /// The share of rows that has one of the values that are not frequent, of this many in all; `None` without rows.
    pub fn rare_share(&self, values: f64) -> Option<f64> {
        (self.rest > 0.0 || !self.frequent.is_empty()).then(|| self.rest / self.rare(values))
    }

    /// How many values are not frequent.
    fn rare(&self, values: f64) -> f64 {
        (values - self.frequent.len() as f64).max(1.0)
    }

    /// The share of rows whose number is within a range, `None` if values are not numbers. Within a bucket they are
    /// taken for evenly spread; `unit` is how far numbers are apart at least.
    pub fn share_within(&self, low: f64, high: f64, unit: f64) -> Option<f64> {
        let buckets = self
            .bounds
            .len()
            .checked_sub(1)
            .filter(|count| *count > 0)?;
        let part = |pair: &[f64]| {
            let (from, to) = (pair[0], pair[1]);
            let width = (to - from).max(unit).max(f64::MIN_POSITIVE);
            let common = to.min(high + unit) - from.max(low);
            // A bucket of one value.
            let all = from >= low && to <= high;
            if all {
                1.0
            } else {
                (common / width).clamp(0.0, 1.0)
            }
        };
        let share: f64 = self.bounds.windows(2).map(part).sum();
        let present = self.rest + self.frequent.values().sum::<f64>();
        Some((share / buckets as f64 * present).min(present))
    }

    /// The share of pairs of a row of each of two columns that have the same value, where the columns have these many
    /// values: of the frequent ones as they are, of others as if they were evenly spread.
    pub fn equal_pairs(&self, values: f64, other: &Self, other_values: f64) -> f64 {
        let (rare, other_rare) = (
            self.rest / self.rare(values),
            other.rest / other.rare(other_values),
        );
        let mine = self.frequent.iter().map(|(value, share)| {
            let theirs = other.frequent.get(value).copied();
            share * theirs.unwrap_or(other_rare)
        });
        let theirs = other
            .frequent
            .iter()
            .filter(|(value, _)| !self.frequent.contains_key(*value));
        let theirs = theirs.map(|(_, share)| share * rare);
        let most = self.rare(values).max(other.rare(other_values));
        mine.sum::<f64>() + theirs.sum::<f64>() + self.rest * other.rest / most
    }
}

/// Where buckets of equally many rows begin.
fn bounds(column: &ArrayRef, rows: Option<&BooleanBuffer>) -> Result<Vec<f64>, ArrowError> {
    let is_number = column.data_type().is_numeric();
    if !is_number && !matches!(column.data_type(), DataType::Date32) {
        return Ok(Vec::new());
    }
    let column = match rows {
        Some(rows) => arrow::compute::filter(column, &rows.clone().into())?,
        None => column.clone(),
    };
    // Dates are days.
    let column = match column.data_type() {
        DataType::Date32 => cast(&column, &DataType::Int32)?,
        _ => column,
    };
    let numbers = sort(&cast(&column, &DataType::Float64)?, None)?;
    let numbers = numbers.as_primitive::<Float64Type>();
    let present = &numbers.values()[numbers.null_count()..];
    let finite: Vec<f64> = present
        .iter()
        .copied()
        .filter(|number| number.is_finite())
        .collect();
    let Some(last) = finite.last() else {
        return Ok(Vec::new());
    };
    let buckets = (finite.len() / BUCKET_ROWS).max(1);
    let begins = (0..buckets).map(|bucket| finite[bucket * finite.len() / buckets]);
    Ok(begins.chain([*last]).collect())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, Int64Array, StringArray};

    use super::*;

    /// Half of the rows are 7, the others differ.
    fn skewed(rows: i64) -> ArrayRef {
        let values = (0..rows).map(|row| if row % 2 == 0 { 7 } else { 1_000 + row });
        Arc::new(Int64Array::from_iter_values(values))
    }

    #[test]
    fn frequent_values_have_their_shares_and_others_what_is_left() {
        let known = Distribution::of(&skewed(1_000), None).unwrap();
        assert_eq!(known.frequent.len(), 1);
        assert!((known.rare_share(501.0).unwrap() - 0.001).abs() < 1e-9);
        let pairs = known.equal_pairs(501.0, &known, 501.0);
        assert!((pairs - (0.25 + 0.25 / 500.0)).abs() < 1e-9, "{pairs}");
        let even: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1_000));
        let even = Distribution::of(&even, None).unwrap();
        let pairs = even.equal_pairs(1_000.0, &known, 501.0);
        // 7 is one of a thousand values of the one column.
        assert!(
            (pairs - (0.5 / 1_000.0 + 0.5 / 1_000.0)).abs() < 1e-9,
            "{pairs}"
        );
    }

    #[test]
    fn ranges_follow_the_buckets_not_the_bounds() {
        let mut values: Vec<i64> = (0..992).collect();
        values.push(1_000_000);
        let column: ArrayRef = Arc::new(Int64Array::from(values));
        let known = Distribution::of(&column, None).unwrap();
        let share = |low: f64, high: f64| known.share_within(low, high, 1.0).unwrap();
        assert!(
            (share(0.0, 495.0) - 0.5).abs() < 0.02,
            "{}",
            share(0.0, 495.0)
        );
        assert!(
            (share(100.0, 100.0) - 0.001).abs() < 3e-4,
            "{}",
            share(100.0, 100.0)
        );
        assert!(share(2_000.0, 900_000.0) < 0.05);
        assert_eq!(share(5.0, 4.0), 0.0);
        assert!((share(f64::MIN, f64::MAX) - 1.0).abs() < 1e-9);
        let one: ArrayRef = Arc::new(Int64Array::from(vec![3; 100]));
        let one = Distribution::of(&one, None).unwrap();
        assert_eq!(one.share_within(3.0, 3.0, 1.0), Some(1.0));
        assert_eq!(one.share_within(4.0, 9.0, 1.0), Some(0.0));
    }

    #[test]
    fn nulls_and_other_rows_do_not_count_and_texts_have_no_buckets() {
        let texts: ArrayRef = Arc::new(StringArray::from_iter(
            (0..100).map(|row| (row % 4 != 0).then_some("x")),
        ));
        let known = Distribution::of(&texts, None).unwrap();
        assert_eq!(known.share_within(0.0, 1.0, 1.0), None);
        assert!((known.equal_pairs(1.0, &known, 1.0) - 0.75 * 0.75).abs() < 1e-9);
        let half = BooleanBuffer::from_iter((0..100).map(|row| row < 50));
        let days: ArrayRef = Arc::new(Date32Array::from_iter_values(0..100));
        let known = Distribution::of(&days, Some(&half)).unwrap();
        assert_eq!(
            known
                .share_within(50.0, 200.0, 1.0)
                .map(|share| share < 0.05),
            Some(true)
        );
        let none: ArrayRef = Arc::new(Int64Array::from(vec![None; 10]));
        assert_eq!(
            Distribution::of(&none, None).unwrap(),
            Distribution::default()
        );
    }
}
