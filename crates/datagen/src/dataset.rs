//! What both benchmarks' generators look like to those who import or write them.

use std::fmt::Display;
use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

/// Rows a generated batch aims at. Tables of known size cut exactly here; fact tables cut at whole orders nearby.
pub const BATCH_ROWS: u64 = 65_536;

/// A query's name and text.
pub type Query = (&'static str, &'static str);

/// Batches of one partition, in order.
pub type BatchIter = Box<dyn Iterator<Item = RecordBatch> + Send>;

/// Tables that are computed, not stored.
///
/// A table is the concatenation of its partitions in index order. The cut into partitions depends on the scale only, so
/// any number of threads that share the partitions out produces the same rows.
pub trait Dataset: Sync {
    /// Names a table.
    type Table: Copy + Display + Send + Sync + 'static;

    /// The benchmark's name.
    fn benchmark(&self) -> &'static str;

    /// All tables, the largest first.
    fn tables(&self) -> &'static [Self::Table];

    /// The benchmark's queries, in order.
    fn queries(&self) -> &'static [Query];

    /// The scale factor.
    fn scale(&self) -> f64;

    /// Columns of a table; none is nullable.
    fn schema(&self, table: Self::Table) -> SchemaRef;

    /// Exact number of rows. Fact tables count the lines of every order, about 3 ns each.
    fn row_count(&self, table: Self::Table) -> u64;

    /// Number of partitions, at least one.
    fn partition_count(&self, table: Self::Table) -> usize;

    /// Rows of one partition; empty if `partition_idx` is out of range.
    fn partition(&self, table: Self::Table, partition_idx: usize) -> BatchIter;
}

/// Number of partitions of `unit_count` rows or orders, `partition_units` in each.
pub(crate) fn partition_count(unit_count: u64, partition_units: u64) -> usize {
    unit_count.div_ceil(partition_units).max(1) as usize
}

/// Ranges of units, `batch_units` in each, that make up partition `partition_idx` of `unit_count` units.
pub(crate) fn batch_ranges(
    unit_count: u64,
    partition_units: u64,
    batch_units: u64,
    partition_idx: usize,
) -> impl Iterator<Item = Range<u64>> + Send {
    let start = (partition_idx as u64)
        .saturating_mul(partition_units)
        .min(unit_count);
    let end = start.saturating_add(partition_units).min(unit_count);
    (start..end)
        .step_by(batch_units as usize)
        .map(move |first| first..(first + batch_units).min(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_cover_every_unit_once_and_in_order() {
        for unit_count in 0..40 {
            for partition_units in 1..12 {
                for batch_units in 1..8 {
                    let covered: Vec<u64> = (0..partition_count(unit_count, partition_units))
                        .flat_map(|idx| batch_ranges(unit_count, partition_units, batch_units, idx))
                        .inspect(|range| assert!(range.end - range.start <= batch_units))
                        .flatten()
                        .collect();
                    assert!(covered.into_iter().eq(0..unit_count));
                }
            }
        }
    }

    #[test]
    fn a_partition_out_of_range_is_empty() {
        assert_eq!(batch_ranges(10, 4, 2, 3).count(), 0);
        assert_eq!(batch_ranges(10, 4, 2, usize::MAX).count(), 0);
    }
}
