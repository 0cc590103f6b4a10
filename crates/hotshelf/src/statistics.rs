//! Column statistics: what the planner sees of a table, from what the store keeps of each file.

mod cheap;
pub(crate) mod column;
pub(crate) mod combinations;
pub(crate) mod distribution;
pub(crate) mod error;
mod groups;
pub(crate) mod origin;
mod predicate;
pub(crate) mod row_bounds;
pub(crate) mod rows;
pub(crate) mod sample;
pub(crate) mod sizes;
pub(crate) mod unique;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use datafusion::common::hash_utils::{HLL_RANDOM_STATE, create_hashes};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use hotshelf_store::statistics::{DistinctSketch, FileStats};

pub(crate) use predicate::{kept_share, narrow};

/// Hashes of a column's values for the sketches of distinct values.
pub(crate) fn hash_column(column: &ArrayRef, hashes: &mut [u64]) -> bool {
    create_hashes([column], &HLL_RANDOM_STATE, hashes).is_ok()
}

/// The statistics of a table for the planner: what its files say, merged.
pub(crate) fn table_statistics(schema: &SchemaRef, files: &[&FileStats]) -> Statistics {
    let row_count: u64 = files.iter().map(|file| file.row_count).sum();
    let columns = (0..schema.fields().len())
        .map(|idx| column_statistics(schema, files, idx, row_count))
        .collect::<Vec<_>>();
    let total_bytes = files
        .iter()
        .flat_map(|file| &file.columns)
        .map(|column| column.encoded_bytes as usize)
        .sum();
    Statistics {
        num_rows: Precision::Exact(row_count as usize),
        total_byte_size: Precision::Inexact(total_bytes),
        column_statistics: columns,
    }
}

fn column_statistics(
    schema: &SchemaRef,
    files: &[&FileStats],
    idx: usize,
    row_count: u64,
) -> ColumnStatistics {
    let mut result = ColumnStatistics::new_unknown();
    let filled: Vec<&FileStats> = files
        .iter()
        .copied()
        .filter(|file| file.row_count > 0)
        .collect();
    let nulls: Option<u64> = filled.iter().map(|file| file.columns[idx].null_count).sum();
    if let Some(nulls) = nulls {
        result.null_count = Precision::Exact(nulls as usize);
    }
    let mut distinct = DistinctSketch::default();
    for file in &filled {
        distinct.merge(&file.columns[idx].distinct);
    }
    let non_null = row_count - nulls.unwrap_or(0).min(row_count);
    let estimate = distinct.estimate().min(non_null);
    if estimate > 0 {
        result.distinct_count = Precision::Inexact(estimate as usize);
    }
    let exact = filled.iter().all(|file| file.columns[idx].bounds_exact);
    let data_type = schema.field(idx).data_type();
    if let Some(min) = extreme(&filled, idx, 0, |a, b| a < b)
        && min.data_type() == *data_type
    {
        result.min_value = precision(min, exact);
    }
    if let Some(max) = extreme(&filled, idx, 1, |a, b| a > b)
        && max.data_type() == *data_type
    {
        result.max_value = precision(max, exact);
    }
    result
}

fn precision(value: ScalarValue, exact: bool) -> Precision<ScalarValue> {
    if exact {
        Precision::Exact(value)
    } else {
        Precision::Inexact(value)
    }
}

/// The winner of row `row` of all bounds, or `None` if any file does not know its own.
fn extreme(
    files: &[&FileStats],
    idx: usize,
    row: usize,
    wins: impl Fn(&ScalarValue, &ScalarValue) -> bool,
) -> Option<ScalarValue> {
    let mut best: Option<ScalarValue> = None;
    for file in files {
        let bounds = file.bounds.as_ref()?;
        let all_null = file.columns[idx].null_count == Some(file.row_count);
        let value = ScalarValue::try_from_array(bounds.column(idx), row).ok()?;
        if value.is_null() {
            if all_null {
                continue;
            }
            return None;
        }
        if best.as_ref().is_none_or(|best| wins(&value, best)) {
            best = Some(value);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{RecordBatch, StringArray};
    use hotshelf_store::statistics::bounds_batch;
    use std::sync::Arc;

    fn strings(text: &str) -> ArrayRef {
        Arc::new(StringArray::from(vec![text]))
    }

    #[test]
    fn bounds_of_files_merge_and_an_unknown_bound_stays_unknown() {
        let batch = RecordBatch::try_from_iter_with_nullable([("a", strings("x"), true)]);
        let schema: SchemaRef = batch.unwrap().schema();
        let file = |min: Option<&str>, max: Option<&str>| {
            let mut stats = FileStats::empty(1);
            stats.row_count = 5;
            stats.columns[0].null_count = Some(0);
            stats.columns[0].bounds_exact = true;
            let bounds = vec![(min.map(strings), max.map(strings))];
            stats.bounds = Some(bounds_batch(&schema, bounds).unwrap());
            stats
        };
        let (low, high, unknown) = (
            file(Some("b"), Some("k")),
            file(Some("c"), Some("z")),
            file(None, None),
        );
        let merged = table_statistics(&schema, &[&low, &high]);
        assert_eq!(merged.num_rows, Precision::Exact(10));
        assert_eq!(
            merged.column_statistics[0].min_value,
            Precision::Exact(ScalarValue::Utf8(Some("b".into())))
        );
        assert_eq!(
            merged.column_statistics[0].max_value,
            Precision::Exact(ScalarValue::Utf8(Some("z".into())))
        );
        let unsure = table_statistics(&schema, &[&low, &unknown]);
        assert_eq!(unsure.column_statistics[0].min_value, Precision::Absent);
    }
}
