//! Which columns of a table have no value twice: found by reading the column once, and remembered as long as the table
//! does not change. A sketch of distinct values can only suggest it.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Statistics;
use parking_lot::Mutex;

use super::column::number;

/// A column is read only where the sketch counts at least this share of the rows as values; sketches err by 3 %.
const DISTINCT_SHARE: f64 = 0.9;
/// Values are marked in one bit each, from the least to the greatest: at most this many bits for each row, and bytes.
const BITS_PER_ROW: f64 = 64.0;
const BYTES_MAX: u64 = 4 << 20;

/// What is known about a table's columns, by index: whether no value occurs twice and none is NULL.
#[derive(Debug, Default)]
pub(crate) struct UniqueColumns(Mutex<BTreeMap<usize, bool>>);

impl UniqueColumns {
    /// `None` where the column has not been read.
    pub fn get(&self, column: usize) -> Option<bool> {
        self.0.lock().get(&column).copied()
    }

    /// What is still known when rows were added: values that repeat go on repeating. Without new rows, all of it.
    pub fn after(&self, has_new_rows: bool) -> Self {
        let known = self.0.lock().clone().into_iter();
        let known = known.filter(|(_, is_unique)| !(*is_unique && has_new_rows));
        Self(Mutex::new(known.collect()))
    }

    pub fn learn(&self, column: usize, is_unique: bool) {
        self.0.lock().insert(column, is_unique);
    }
}

/// Whether a value of a column, by index, is known to occur twice, NULL aside: a sample of the rows has it twice, or a
/// query found that. Where the sample does not, that is noted, too.
#[derive(Debug, Default)]
pub(crate) struct RepeatingColumns(Mutex<BTreeMap<usize, bool>>);

impl RepeatingColumns {
    /// What is known, or what the sample says.
    pub fn get(&self, column: usize, in_sample: impl FnOnce() -> Option<bool>) -> bool {
        if let Some(repeats) = self.0.lock().get(&column) {
            return *repeats;
        }
        let repeats = in_sample();
        if let Some(repeats) = repeats {
            self.0.lock().entry(column).or_insert(repeats);
        }
        repeats.unwrap_or(false)
    }

    /// A value was found twice.
    pub fn learn(&self, column: usize) {
        self.0.lock().insert(column, true);
    }

    /// What is still known when rows were added.
    pub fn after(&self) -> Self {
        let known = self.0.lock().clone().into_iter();
        Self(Mutex::new(known.filter(|(_, repeats)| *repeats).collect()))
    }
}

/// The values of an integer column that have been seen.
#[derive(Debug)]
pub(crate) struct SeenValues {
    low: i64,
    bits: Vec<u64>,
}

impl SeenValues {
    /// Nothing seen yet; `None` where the statistics say that values repeat, or do not say within which bounds they
    /// are, or noting them takes more bytes than this.
    pub fn expected(
        statistics: &Statistics,
        column: usize,
        data_type: &DataType,
        bytes_max: u64,
    ) -> Option<Self> {
        let of_column = statistics.column_statistics.get(column)?;
        let rows = *statistics.num_rows.get_value()? as f64;
        let distinct = *of_column.distinct_count.get_value()? as f64;
        let low = number(of_column.min_value.get_value()?)?;
        let high = number(of_column.max_value.get_value()?)?;
        let bits = high - low + 1.0;
        let is_expected = data_type.is_integer()
            && distinct >= rows * DISTINCT_SHARE
            && of_column.null_count.get_value() == Some(&0)
            && low.abs().max(high.abs()) < (1u64 << 53) as f64
            && bits >= rows
            && bits <= rows * BITS_PER_ROW
            && bits / 8.0 <= BYTES_MAX.min(bytes_max) as f64;
        is_expected.then(|| Self {
            low: low as i64,
            bits: vec![0; (bits as usize).div_ceil(64)],
        })
    }

    /// Whether all of these values are there, within the bounds, and new.
    pub fn are_new(&mut self, values: &ArrayRef) -> bool {
        let Ok(values) = cast(values, &DataType::Int64) else {
            return false;
        };
        let values = values.as_primitive::<Int64Type>();
        values.null_count() == 0 && values.values().iter().all(|value| self.is_new(*value))
    }

    fn is_new(&mut self, value: i64) -> bool {
        let bit = value.checked_sub(self.low).map(usize::try_from);
        let Some(Ok(bit)) = bit else { return false };
        let Some(word) = self.bits.get_mut(bit / 64) else {
            return false;
        };
        let mask = 1 << (bit % 64);
        let is_new = *word & mask == 0;
        *word |= mask;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use arrow::array::Int32Array;
    use datafusion::common::stats::Precision;
    use datafusion::common::{ColumnStatistics, ScalarValue};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn that_a_column_repeats_is_remembered_and_that_it_seems_not_to_until_rows_come() {
        let known = RepeatingColumns::default();
        assert!(!known.get(0, || None), "no sample yet");
        assert!(known.get(0, || Some(true)) && known.get(0, || None));
        assert!(!known.get(1, || Some(false)));
        assert!(!known.get(1, || Some(true)), "looked at once");
        let after = known.after();
        assert!(after.get(0, || None) && after.get(1, || Some(true)));
        known.learn(1);
        assert!(known.get(1, || None));
    }

    fn statistics(rows: usize, low: i32, high: i32, distinct: usize) -> Statistics {
        let mut column = ColumnStatistics::new_unknown();
        column.min_value = Precision::Exact(ScalarValue::Int32(Some(low)));
        column.max_value = Precision::Exact(ScalarValue::Int32(Some(high)));
        column.null_count = Precision::Exact(0);
        column.distinct_count = Precision::Inexact(distinct);
        Statistics {
            num_rows: Precision::Exact(rows),
            total_byte_size: Precision::Absent,
            column_statistics: vec![column],
        }
    }

    proptest! {
        #[test]
        fn values_are_new_as_a_set_says(values in prop::collection::vec(-40i32..40, 1..60), cut in 0usize..60) {
            let (low, high) = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
            let distinct: BTreeSet<i32> = values.iter().copied().collect();
            let known = statistics(values.len(), low, high, values.len());
            let Some(mut seen) = SeenValues::expected(&known, 0, &DataType::Int32, 1000) else {
                prop_assert!((high - low + 1) < values.len() as i32);
                return Ok(());
            };
            let (first, second) = values.split_at(cut.min(values.len()));
            let are_new = [first, second].map(|part| {
                let part: ArrayRef = Arc::new(Int32Array::from(part.to_vec()));
                seen.are_new(&part)
            });
            prop_assert_eq!(are_new == [true, true], distinct.len() == values.len());
        }
    }

    #[test]
    fn new_rows_may_repeat_a_value_but_make_none_unique() {
        let known = UniqueColumns::default();
        known.learn(0, true);
        known.learn(1, false);
        let both = known.after(false);
        assert_eq!(
            [0, 1, 2].map(|column| both.get(column)),
            [Some(true), Some(false), None]
        );
        let one = known.after(true);
        assert_eq!([0, 1].map(|column| one.get(column)), [None, Some(false)]);
    }

    #[test]
    fn columns_that_repeat_values_or_have_none_are_not_read() {
        let expected = |statistics: &Statistics, data_type| {
            SeenValues::expected(statistics, 0, &data_type, 1000).is_some()
        };
        let known = statistics(100, 1, 100, 97);
        assert!(expected(&known, DataType::Int32));
        assert!(!expected(&known, DataType::Float64));
        assert!(
            !expected(&statistics(100, 1, 100, 80), DataType::Int32),
            "values repeat"
        );
        assert!(
            !expected(&statistics(100, 1, 99, 99), DataType::Int32),
            "fewer values than rows"
        );
        assert!(
            !expected(&statistics(100, 1, 1_000_000, 100), DataType::Int32),
            "far apart"
        );
        assert!(
            SeenValues::expected(&known, 0, &DataType::Int32, 12).is_none(),
            "13 bytes"
        );
        let mut with_nulls = known.clone();
        with_nulls.column_statistics[0].null_count = Precision::Exact(1);
        assert!(!expected(&with_nulls, DataType::Int32));
        let mut seen = SeenValues::expected(&known, 0, &DataType::Int32, 1000).unwrap();
        let other: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        assert!(!seen.are_new(&other), "a NULL");
        let beyond: ArrayRef = Arc::new(Int32Array::from(vec![0, 5000]));
        assert!(!seen.are_new(&beyond), "beyond the bounds");
    }
}
