//! Statistics of data files: what the catalog keeps of each.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{cast, concat};
use arrow::datatypes::{Schema, SchemaRef};

use crate::error::Result;

/// Registers of a sketch: a standard error of 3.25 % (1.04 / sqrt(1024)).
const REGISTERS: usize = 1024;
const REGISTER_BITS: u32 = REGISTERS.trailing_zeros();

/// A HyperLogLog sketch of the distinct values of a column (Flajolet et al., 2007), with linear
/// counting for small counts. Sketches of files merge into the sketch of their table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistinctSketch {
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
    /// Adds the hash of a value.
    pub fn add_hash(&mut self, hash: u64) {
        let register = (hash >> (64 - REGISTER_BITS)) as usize;
        let rank = ((hash << REGISTER_BITS) | (1 << (REGISTER_BITS - 1))).leading_zeros() as u8 + 1;
        if rank > self.registers[register] {
            self.registers[register] = rank;
        }
    }

    /// Adds the values of another sketch.
    pub fn merge(&mut self, other: &Self) {
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

    /// As it is stored.
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
pub struct ColumnStats {
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
pub struct FileStats {
    /// Rows in the file.
    pub row_count: u64,
    /// One entry per column of the schema.
    pub columns: Vec<ColumnStats>,
    /// Row 0 the minima, row 1 the maxima, NULL where unknown. Same columns as the table.
    pub bounds: Option<RecordBatch>,
}

impl FileStats {
    /// Statistics of nothing, for `column_count` columns.
    pub fn empty(column_count: usize) -> Self {
        Self {
            row_count: 0,
            columns: vec![ColumnStats::default(); column_count],
            bounds: None,
        }
    }
}

/// Hashes the values of a column, one hash for each row; `false` if its type cannot be hashed. Sketches merge only if
/// all files of a database are sketched with the same hashes.
pub type HashColumn = fn(&ArrayRef, &mut [u64]) -> bool;

/// Sketches the distinct values of batches as they pass by on their way to a file.
pub struct SketchBuilder {
    sketches: Vec<DistinctSketch>,
    hashes: Vec<u64>,
    hash: HashColumn,
}

impl SketchBuilder {
    /// Empty sketches of this many columns.
    pub fn new(column_count: usize, hash: HashColumn) -> Self {
        Self {
            sketches: vec![DistinctSketch::default(); column_count],
            hashes: Vec::new(),
            hash,
        }
    }

    /// Adds the rows of a batch. Columns whose type cannot be hashed stay at zero.
    pub fn add(&mut self, batch: &RecordBatch) {
        for (sketch, column) in self.sketches.iter_mut().zip(batch.columns()) {
            self.hashes.clear();
            self.hashes.resize(column.len(), 0);
            if (self.hash)(column, &mut self.hashes) {
                for hash in &self.hashes {
                    sketch.add_hash(*hash);
                }
            }
        }
    }

    /// A sketch for every column.
    pub fn finish(self) -> Vec<DistinctSketch> {
        self.sketches
    }
}

/// A batch of two rows from per-column minima and maxima, arrays of one row each; `None` values, and those that do not
/// fit the column's type, become NULL.
pub fn bounds_batch(
    schema: &SchemaRef,
    bounds: Vec<(Option<ArrayRef>, Option<ArrayRef>)>,
) -> Result<RecordBatch> {
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true))
        .collect();
    let columns = bounds
        .into_iter()
        .zip(&fields)
        .map(|((min, max), field)| {
            let fit = |value: Option<ArrayRef>| {
                value
                    .and_then(|value| cast(&value, field.data_type()).ok())
                    .unwrap_or_else(|| new_null_array(field.data_type(), 1))
            };
            Ok(concat(&[&fit(min), &fit(max)])?)
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new_with_options(
        Arc::new(Schema::new(fields)),
        columns,
        &RecordBatchOptions::new().with_row_count(Some(2)),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    fn batch(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap()
    }

    /// SplitMix64 of the numbers.
    fn hash(column: &ArrayRef, hashes: &mut [u64]) -> bool {
        for (hash, value) in hashes
            .iter_mut()
            .zip(column.as_primitive::<Int64Type>().values())
        {
            let z = (*value as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *hash = z ^ (z >> 31);
        }
        true
    }

    #[test]
    fn distinct_counts_are_within_ten_percent() {
        for count in [1i64, 7, 500, 20_000, 300_000] {
            let mut builder = SketchBuilder::new(1, hash);
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
            let mut builder = SketchBuilder::new(1, hash);
            builder.add(&batch(Arc::new(Int64Array::from_iter_values(range))));
            builder.finish().remove(0)
        };
        let mut merged = sketch(0..1000);
        merged.merge(&sketch(500..1500));
        assert!((merged.estimate() as f64 / 1500.0 - 1.0).abs() < 0.1);
    }
}
