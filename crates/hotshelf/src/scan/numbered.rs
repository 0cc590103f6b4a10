//! Scans that number their rows, and scans of the rows that have some numbers.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;

use super::numbers::{RowsByFile, can_number, number_field, place_of};
use super::source::TableScan;

impl TableScan {
    /// The scan with these columns of its output and, as the last one, the rows' numbers. `None` where rows have none.
    pub fn numbered(&self, outputs: &[usize]) -> Option<Self> {
        let is_plain = !self.numbers_rows && self.wanted.is_none() && !self.has_limit();
        let mut files = self.table.files.iter();
        let can = is_plain && files.all(|file| can_number(file.paths.number));
        can.then(|| self.with_numbers(outputs).without_metrics())
    }

    /// A scan of these columns of the output, and numbers, for the rows of some numbers only, whether filters keep them
    /// or not.
    pub fn of_rows(&self, outputs: &[usize], numbers: &[u64]) -> Self {
        let mut ascending = numbers.to_vec();
        ascending.sort_unstable();
        let mut rows = RowsByFile::new();
        for number in ascending {
            let (file, row) = place_of(number);
            let ranges = rows.entry(file).or_default();
            match ranges.last_mut() {
                Some(last) if last.end == row => last.end += 1,
                _ => ranges.push(row..row + 1),
            }
        }
        let mut scan = self.with_numbers(outputs);
        scan.wanted = Some(Arc::new(rows));
        scan.filters.clear();
        scan.dynamic.clear();
        scan.first = None;
        scan.partitions = 1;
        scan
    }

    fn with_numbers(&self, outputs: &[usize]) -> Self {
        let fields = outputs.iter().map(|idx| self.schema.field(*idx).clone());
        let mut scan = self.unchosen();
        scan.columns = outputs.iter().map(|idx| self.columns[*idx]).collect();
        scan.schema = Arc::new(Schema::new(
            fields.chain([number_field()]).collect::<Vec<_>>(),
        ));
        scan.numbers_rows = true;
        scan
    }

    /// The scan with nothing counted.
    pub fn without_metrics(&self) -> Self {
        let mut scan = self.unchosen();
        scan.metrics = ExecutionPlanMetricsSet::new();
        scan.reported = Arc::default();
        scan
    }
}
