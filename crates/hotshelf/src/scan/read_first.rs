//! Which rows a sort with a limit wants first, and in which order its scan therefore hands out files and row groups.
//!
//! Those come first whose bounds reach furthest in the direction of the first sort key. After as many row groups as the
//! sort wants rows, its threshold excludes every other one, except for those with equal bounds. The order has no
//! influence on the answer: what is known about a zone decides when it is read, and never whether.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, UInt64Array, new_null_array};
use arrow::compute::{SortColumn, SortOptions, cast, concat, lexsort_to_indices};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use hotshelf_store::statistics::FileStats;

/// What the sort above a scan wants first.
#[derive(Debug, Clone)]
pub(crate) struct ReadFirst {
    /// The first sort key, by index in the table.
    pub column: usize,
    pub name: String,
    pub data_type: DataType,
    pub options: SortOptions,
}

/// Bounds of the first sort key in the zones of a file: its least values, or its greatest where these come first.
pub(super) struct Zones {
    /// Rows of each zone, except for the last one, which may have fewer.
    zone_rows: u64,
    /// NULL where they are not known, or where all values are NULL.
    bounds: ArrayRef,
    may_hold_null: Vec<bool>,
}

impl Zones {
    pub fn new(
        first: &ReadFirst,
        zone_rows: u64,
        bounds: Option<&ArrayRef>,
        may_hold_null: Vec<bool>,
    ) -> Self {
        let count = may_hold_null.len();
        let bounds = bounds.and_then(|bounds| cast(bounds, &first.data_type).ok());
        let bounds = bounds.filter(|bounds| bounds.len() == count);
        Self {
            zone_rows,
            bounds: bounds.unwrap_or_else(|| new_null_array(&first.data_type, count)),
            may_hold_null,
        }
    }

    /// A whole file as one zone.
    pub fn of_file(stats: &FileStats, first: &ReadFirst) -> Self {
        let minima_and_maxima = stats.bounds.as_ref();
        let of_column = minima_and_maxima.and_then(|bounds| bounds.columns().get(first.column));
        let row = usize::from(first.options.descending);
        let bound = of_column.map(|bounds| bounds.slice(row, 1));
        let column = stats.columns.get(first.column);
        let null_count = column.and_then(|column| column.null_count);
        let rows = stats.row_count.max(1);
        Self::new(first, rows, bound.as_ref(), vec![null_count != Some(0)])
    }

    fn rows(&self, zone_idx: usize) -> Range<u64> {
        let start = self.zone_rows.saturating_mul(zone_idx as u64);
        start..start.saturating_add(self.zone_rows)
    }
}

impl ReadFirst {
    /// The numbers of some files in the order in which they are read. Each has one zone.
    pub(super) fn order_files(&self, files: &[Zones]) -> Vec<usize> {
        match self.order(files) {
            Ok(order) => order.into_iter().map(|(file_idx, _)| file_idx).collect(),
            Err(_) => (0..files.len()).collect(),
        }
    }

    /// Pairs of file and row group in the order in which these are read. `row_groups` has the rows of all of each file.
    pub(super) fn order_row_groups(
        &self,
        files: &[Zones],
        row_groups: &[&[Range<u64>]],
    ) -> Vec<(usize, usize)> {
        let order = self.order(files).unwrap_or_default();
        let zones = order
            .into_iter()
            .map(|(file_idx, zone_idx)| (file_idx, files[file_idx].rows(zone_idx)));
        row_groups_of(zones, row_groups)
    }

    /// Pairs of file and zone in the order in which they are read. Zones that may hold NULLs come first if the sort
    /// wants these first. Zones without known bounds come last: they are read whatever the threshold is. Equal ones
    /// stay in the order of the files.
    fn order(&self, files: &[Zones]) -> Result<Vec<(usize, usize)>, ArrowError> {
        let mut places = Vec::new();
        for (file_idx, zones) in files.iter().enumerate() {
            places.extend((0..zones.bounds.len()).map(|zone_idx| (file_idx, zone_idx)));
        }
        let bounds: Vec<&dyn Array> = files.iter().map(|zones| zones.bounds.as_ref()).collect();
        let have_null = files.iter().flat_map(|zones| &zones.may_hold_null);
        let have_null: Vec<bool> = have_null
            .map(|may_hold| self.options.nulls_first && *may_hold)
            .collect();
        let numbers = UInt64Array::from_iter_values(0..places.len() as u64);
        let column = |values: ArrayRef, descending: bool| SortColumn {
            values,
            options: Some(SortOptions {
                descending,
                nulls_first: false,
            }),
        };
        let columns = [
            column(Arc::new(BooleanArray::from(have_null)), true),
            column(concat(&bounds)?, self.options.descending),
            column(Arc::new(numbers), false),
        ];
        let order = lexsort_to_indices(&columns, None)?;
        let order = order.values().iter().map(|idx| places[*idx as usize]);
        Ok(order.collect())
    }
}

impl fmt::Display for ReadFirst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.options.descending {
            true => "greatest",
            false => "least",
        };
        write!(f, "first={bound} {}", self.name)
    }
}

/// Pairs of file and row group: those that hold rows of some zones, in the order of the zones, and then all others.
fn row_groups_of(
    zones: impl Iterator<Item = (usize, Range<u64>)>,
    row_groups: &[&[Range<u64>]],
) -> Vec<(usize, usize)> {
    let mut waiting: Vec<Vec<bool>> = row_groups
        .iter()
        .map(|groups| vec![true; groups.len()])
        .collect();
    let whole_files = (0..row_groups.len()).map(|file_idx| (file_idx, 0..u64::MAX));
    let mut order = Vec::new();
    for (file_idx, rows) in zones.chain(whole_files) {
        let groups = row_groups[file_idx];
        let start = groups.partition_point(|group| group.end <= rows.start);
        let end = groups.partition_point(|group| group.start < rows.end);
        let found = waiting[file_idx].get_mut(start..end).into_iter().flatten();
        for (offset, is_waiting) in found.enumerate() {
            if std::mem::take(is_waiting) {
                order.push((file_idx, start + offset));
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, RecordBatch, StringArray};
    use hotshelf_store::statistics::ColumnStats;

    fn first(descending: bool, nulls_first: bool) -> ReadFirst {
        ReadFirst {
            column: 0,
            name: "a".into(),
            data_type: DataType::Int64,
            options: SortOptions {
                descending,
                nulls_first,
            },
        }
    }

    /// Zones of ten rows.
    fn zones<const N: usize>(
        first: &ReadFirst,
        bounds: [Option<i64>; N],
        may_hold_null: [bool; N],
    ) -> Zones {
        let bounds: ArrayRef = Arc::new(Int64Array::from(bounds.to_vec()));
        Zones::new(first, 10, Some(&bounds), may_hold_null.to_vec())
    }

    #[test]
    fn zones_that_reach_furthest_come_first_and_unknown_ones_last() {
        for (descending, order) in [
            (false, [(0, 2), (1, 0), (0, 1), (1, 1), (0, 0)]),
            (true, [(0, 1), (1, 1), (1, 0), (0, 2), (0, 0)]),
        ] {
            for nulls_first in [false, true] {
                let first = first(descending, nulls_first);
                let one = zones(&first, [None, Some(7), Some(-3)], [false; 3]);
                let other = zones(&first, [Some(5), Some(7)], [false; 2]);
                assert_eq!(first.order(&[one, other]).unwrap(), order);
            }
        }
    }

    #[test]
    fn zones_that_may_hold_null_come_first_where_null_does() {
        for (nulls_first, order) in [(true, [2, 1, 0]), (false, [0, 2, 1])] {
            let first = first(false, nulls_first);
            let zones = zones(&first, [Some(1), None, Some(9)], [false, true, true]);
            let order: Vec<_> = order.map(|zone_idx| (0, zone_idx)).to_vec();
            assert_eq!(first.order(&[zones]).unwrap(), order);
        }
    }

    #[test]
    fn every_row_group_comes_once_wherever_zones_end() {
        let groups: [&[Range<u64>]; 2] = [&[0..10, 10..20, 20..25], &[0..30, 30..40]];
        let zones = |zones: &[(usize, Range<u64>)]| row_groups_of(zones.iter().cloned(), &groups);
        let in_file_order = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)];
        assert_eq!(zones(&[]), in_file_order, "nothing is known");
        let found = zones(&[(1, 20..30), (0, 20..30), (0, 5..15), (1, 0..10)]);
        assert_eq!(found, [(1, 0), (0, 2), (0, 0), (0, 1), (1, 1)]);
    }

    #[test]
    fn bounds_that_do_not_fit_are_not_known() {
        let first = first(true, false);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x", "9"]));
        let unknown = Zones::new(&first, 10, Some(&texts), vec![false; 2]);
        assert_eq!(unknown.bounds.null_count(), 1);
        let short: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let unknown = Zones::new(&first, 10, Some(&short), vec![false; 2]);
        assert_eq!(unknown.bounds.null_count(), 2);
    }

    #[test]
    fn files_come_in_the_order_of_their_bounds() {
        let file = |bounds: Option<[i64; 2]>| {
            let batch = |bounds: [i64; 2]| {
                let column: ArrayRef = Arc::new(Int64Array::from(bounds.to_vec()));
                RecordBatch::try_from_iter([("a", column)]).unwrap()
            };
            FileStats {
                row_count: 3,
                columns: vec![ColumnStats::default()],
                bounds: bounds.map(batch),
            }
        };
        let files = [Some([0, 9]), None, Some([5, 20]), Some([-1, 3])].map(file);
        for (descending, order) in [(false, [3, 0, 2, 1]), (true, [2, 0, 3, 1])] {
            let first = first(descending, false);
            let bounds: Vec<Zones> = files
                .iter()
                .map(|stats| Zones::of_file(stats, &first))
                .collect();
            assert_eq!(first.order_files(&bounds), order);
        }
    }
}
