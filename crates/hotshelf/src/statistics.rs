//! Column statistics: what the catalog keeps per file and what the planner sees per table.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::hash_utils::{HLL_RANDOM_STATE, create_hashes};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};

use crate::error::Result;

/// Registers of a sketch: a standard error of 3.25 % (1.04 / sqrt(1024)).
const REGISTERS: usize = 1024;
const REGISTER_BITS: u32 = REGISTERS.trailing_zeros();

/// A HyperLogLog sketch of the distinct values of a column (Flajolet et al., 2007), with linear
/// counting for small counts. Sketches of files merge into the sketch of their table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DistinctSketch {
    registers: Vec<u8>,
}

impl Default for DistinctSketch {
    fn default() -> Self {
        Self {
            registers: vec![0; REGISTERS],
        }
    }
}

impl DistinctSketch {
    fn add_hash(&mut self, hash: u64) {
        let register = (hash >> (64 - REGISTER_BITS)) as usize;
        let rank = ((hash << REGISTER_BITS) | (1 << (REGISTER_BITS - 1))).leading_zeros() as u8 + 1;
        if rank > self.registers[register] {
            self.registers[register] = rank;
        }
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.registers.iter_mut().zip(&other.registers) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// The estimated number of distinct values.
    pub fn estimate(&self) -> u64 {
        let m = REGISTERS as f64;
        let sum: f64 = self
            .registers
            .iter()
            .map(|rank| (-f64::from(*rank)).exp2())
            .sum();
        let raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        let empty = self.registers.iter().filter(|rank| **rank == 0).count();
        if raw <= 2.5 * m && empty > 0 {
            return (m * (m / empty as f64).ln()).round() as u64;
        }
        raw.round() as u64
    }

    pub fn to_bytes(&self) -> &[u8] {
        &self.registers
    }

    /// A sketch of another size (a damaged or foreign one) reads as empty: it only steers plans.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        if bytes.len() == REGISTERS {
            Self {
                registers: bytes.to_vec(),
            }
        } else {
            Self::default()
        }
    }
}

/// Statistics of one column of one file.
#[derive(Debug, Clone, Default)]
pub(crate) struct ColumnStats {
    /// NULLs, where known.
    pub null_count: Option<u64>,
    /// Bytes of the column's segments in the file.
    pub encoded_bytes: u64,
    /// Whether the bounds are the true extremes (long strings are cut).
    pub bounds_exact: bool,
    /// Distinct values.
    pub distinct: DistinctSketch,
}

/// Statistics of one file.
#[derive(Debug, Clone)]
pub(crate) struct FileStats {
    pub row_count: u64,
    /// One entry per column of the schema.
    pub columns: Vec<ColumnStats>,
    /// Row 0 the minima, row 1 the maxima, NULL where unknown. Same columns as the table.
    pub bounds: Option<RecordBatch>,
}

impl FileStats {
    /// Statistics of nothing, for `column_count` columns.
    #[cfg(test)]
    pub fn empty(column_count: usize) -> Self {
        Self {
            row_count: 0,
            columns: vec![ColumnStats::default(); column_count],
            bounds: None,
        }
    }
}

/// Sketches the distinct values of batches as they pass by on their way to a file.
pub(crate) struct SketchBuilder {
    sketches: Vec<DistinctSketch>,
    hashes: Vec<u64>,
}

impl SketchBuilder {
    pub fn new(column_count: usize) -> Self {
        Self {
            sketches: vec![DistinctSketch::default(); column_count],
            hashes: Vec::new(),
        }
    }

    /// Adds the rows of a batch. Columns whose type cannot be hashed stay at zero.
    pub fn add(&mut self, batch: &RecordBatch) {
        for (sketch, column) in self.sketches.iter_mut().zip(batch.columns()) {
            self.hashes.clear();
            self.hashes.resize(column.len(), 0);
            if create_hashes([column], &HLL_RANDOM_STATE, &mut self.hashes).is_ok() {
                for hash in &self.hashes {
                    sketch.add_hash(*hash);
                }
            }
        }
    }

    pub fn finish(self) -> Vec<DistinctSketch> {
        self.sketches
    }
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

/// A batch of two rows from per-column minima and maxima; `None` values become NULL.
pub(crate) fn bounds_batch(
    schema: &SchemaRef,
    bounds: Vec<(Option<ScalarValue>, Option<ScalarValue>)>,
) -> Result<RecordBatch> {
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| std::sync::Arc::new(field.as_ref().clone().with_nullable(true)))
        .collect();
    let columns = bounds
        .into_iter()
        .zip(schema.fields())
        .map(|((min, max), field)| {
            let fit = |value: Option<ScalarValue>| {
                value
                    .and_then(|value| value.cast_to(field.data_type()).ok())
                    .map_or_else(|| ScalarValue::try_from(field.data_type()), Ok)
            };
            ScalarValue::iter_to_array([fit(min)?, fit(max)?])
        })
        .collect::<datafusion::error::Result<Vec<_>>>()?;
    let schema = std::sync::Arc::new(arrow::datatypes::Schema::new(fields));
    Ok(RecordBatch::try_new_with_options(
        schema,
        columns,
        &arrow::array::RecordBatchOptions::new().with_row_count(Some(2)),
    )
    .map_err(datafusion::error::DataFusionError::from)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use std::sync::Arc;

    fn batch(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap()
    }

    #[test]
    fn distinct_counts_are_within_ten_percent() {
        for count in [1i64, 7, 500, 20_000, 300_000] {
            let mut builder = SketchBuilder::new(1);
            builder.add(&batch(Arc::new(Int64Array::from_iter_values(
                (0..count * 2).map(|i| i % count),
            ))));
            let estimate = builder.finish()[0].estimate() as f64;
            assert!(
                (estimate / count as f64 - 1.0).abs() < 0.1,
                "{count}: {estimate}"
            );
        }
    }

    #[test]
    fn merged_sketches_count_common_values_once() {
        let sketch = |range: std::ops::Range<i64>| {
            let mut builder = SketchBuilder::new(1);
            builder.add(&batch(Arc::new(Int64Array::from_iter_values(range))));
            builder.finish().remove(0)
        };
        let mut merged = sketch(0..1000);
        merged.merge(&sketch(500..1500));
        assert!((merged.estimate() as f64 / 1500.0 - 1.0).abs() < 0.1);
    }

    #[test]
    fn bounds_of_files_merge_and_an_unknown_bound_stays_unknown() {
        let schema: SchemaRef = batch(Arc::new(StringArray::from(vec!["x"]))).schema();
        let file = |min: Option<&str>, max: Option<&str>| {
            let mut stats = FileStats::empty(1);
            stats.row_count = 5;
            stats.columns[0].null_count = Some(0);
            stats.columns[0].bounds_exact = true;
            let scalar = |text: Option<&str>| text.map(|text| ScalarValue::Utf8(Some(text.into())));
            stats.bounds = Some(bounds_batch(&schema, vec![(scalar(min), scalar(max))]).unwrap());
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
