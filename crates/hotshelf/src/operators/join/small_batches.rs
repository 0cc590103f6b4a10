//! Small batches, which become larger ones: each costs the operators above as much as a large one.

use std::mem::take;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::error::Result as QueryResult;

/// Batches of as many rows are handed on as they are, and made of smaller ones.
const ROWS: usize = 2048;
/// At first this many: a limit, or a search for the first rows, should not wait for many.
const FIRST_ROWS: usize = 64;
/// The same for bytes.
const BYTES: usize = 256 << 10;

/// Batches that wait for more rows.
pub(super) struct SmallBatches {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    /// Rows that are handed on.
    enough: usize,
}

impl SmallBatches {
    /// For a join of which this many rows are wanted, or all.
    pub fn new(fetch: Option<usize>) -> Self {
        Self {
            batches: Vec::new(),
            rows: 0,
            bytes: 0,
            enough: fetch.unwrap_or(FIRST_ROWS).clamp(1, FIRST_ROWS),
        }
    }

    /// Takes a batch. What comes back is to be handed on; the order of rows is not kept.
    pub fn push(&mut self, batch: RecordBatch) -> QueryResult<Option<RecordBatch>> {
        let (rows, bytes) = (batch.num_rows(), batch.get_array_memory_size());
        if rows >= self.enough || bytes >= BYTES {
            return Ok(Some(batch));
        }
        self.rows += rows;
        self.bytes += bytes;
        self.batches.push(batch);
        match self.rows >= self.enough || self.bytes >= BYTES {
            true => self.take(),
            false => Ok(None),
        }
    }

    /// What is left.
    pub fn take(&mut self) -> QueryResult<Option<RecordBatch>> {
        let batches = take(&mut self.batches);
        (self.rows, self.bytes) = (0, 0);
        self.enough = (2 * self.enough).min(ROWS);
        let Some(first) = batches.first() else {
            return Ok(None);
        };
        Ok(Some(concat_batches(&first.schema(), &batches)?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    fn numbers(rows: std::ops::Range<i64>) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(rows));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    #[test]
    fn small_batches_become_large_ones_and_no_row_is_lost() {
        let mut small = SmallBatches::new(None);
        let sizes = [1, 700, 5000, 30, 1400, 3, 0, 2047, 2048, 9];
        let mut found = Vec::new();
        let mut start = 0;
        for size in sizes {
            let pushed = small.push(numbers(start..start + size)).unwrap();
            start += size;
            if let Some(batch) = pushed {
                assert!(batch.num_rows() >= FIRST_ROWS);
                found.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
            }
        }
        let rest = small.take().unwrap().unwrap();
        found.extend_from_slice(rest.column(0).as_primitive::<Int64Type>().values());
        assert!(small.take().unwrap().is_none());
        found.sort_unstable();
        assert_eq!(found, (0..start).collect::<Vec<_>>());
    }

    #[test]
    fn long_texts_do_not_wait() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(BYTES)]));
        let batch = RecordBatch::try_from_iter([("s", text)]).unwrap();
        assert!(SmallBatches::new(None).push(batch).unwrap().is_some());
    }

    #[test]
    fn the_first_rows_do_not_wait_for_many() {
        let mut small = SmallBatches::new(Some(3));
        assert!(small.push(numbers(0..2)).unwrap().is_none());
        assert_eq!(small.push(numbers(2..4)).unwrap().unwrap().num_rows(), 4);
        assert!(
            small.push(numbers(4..9)).unwrap().is_none(),
            "twice as many"
        );
    }
}
