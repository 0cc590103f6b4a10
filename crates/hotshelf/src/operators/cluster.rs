//! Rows in the order of a clustered index, on their way into data files.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use parking_lot::Mutex;

use super::sort::SpillingSortExec;

/// An Elf's codes are in the order of the values, NULL first.
const ELF_ORDER: SortOptions = SortOptions {
    descending: false,
    nulls_first: true,
};

/// The rows of `input` in the order that an Elf over `columns` has, whatever the memory. Equal ones stay in the order
/// in which they came.
pub(crate) fn in_elf_order(
    input: SendableRecordBatchStream,
    columns: &[usize],
    context: Arc<TaskContext>,
) -> QueryResult<SendableRecordBatchStream> {
    let schema = input.schema();
    let key = |&column: &usize| {
        let column = Column::new(schema.field(column).name(), column);
        PhysicalSortExpr::new(Arc::new(column), ELF_ORDER)
    };
    let Some(order) = LexOrdering::new(columns.iter().map(key)) else {
        return Ok(input);
    };
    let rows = Given {
        schema: schema.clone(),
        rows: Mutex::new(Some(input)),
    };
    let rows = StreamingTableExec::try_new(schema, vec![Arc::new(rows)], None, [], false, None)?;
    let sort = SortExec::new(order, Arc::new(rows));
    match SpillingSortExec::replacing(&sort)? {
        Some(sort) => sort.execute(0, context),
        None => sort.execute(0, context),
    }
}

/// A stream as the only partition of a plan, which runs once.
struct Given {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl PartitionStream for Given {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.rows.lock().take();
        rows.unwrap_or_else(|| {
            let none = futures::stream::empty();
            Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), none))
        })
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Database, Options};
    use datafusion::arrow::array::{
        ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray,
    };
    use datafusion::arrow::datatypes::Int64Type;
    use futures::TryStreamExt;
    use hotshelf_store::index::keys::KeyLearner;

    const TEXTS: [&str; 5] = ["", "a", "aa", "b", "ÿ"];
    const FLOATS: [f64; 7] = [0.0, -0.0, 1.5, -1.5, f64::NAN, f64::INFINITY, f64::MIN];

    /// Rows with NULLs, signed zeros, NaN and repeated keys, numbered in the last column.
    fn rows(random: &mut fastrand::Rng, count: usize) -> RecordBatch {
        let mut value = |values: i64| (random.u8(..9) > 0).then(|| random.i64(-values..values));
        let whole: Int64Array = (0..count).map(|_| value(40)).collect();
        let mut pick = |count: usize| (random.u8(..9) > 0).then(|| random.usize(..count));
        let floats = |place: Option<usize>| place.map(|place| FLOATS[place]);
        let floats: Float64Array = (0..count).map(|_| floats(pick(FLOATS.len()))).collect();
        let texts = |place: Option<usize>| place.map(|place| TEXTS[place]);
        let texts: StringArray = (0..count).map(|_| texts(pick(TEXTS.len()))).collect();
        let columns: [(&str, ArrayRef, bool); 4] = [
            ("a", Arc::new(whole), true),
            ("f", Arc::new(floats), true),
            ("s", Arc::new(texts), true),
            (
                "row",
                Arc::new((0..count as i64).collect::<Int64Array>()),
                true,
            ),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    /// The numbers of the rows in the order of their codes.
    fn by_codes(rows: &RecordBatch, columns: &[usize]) -> Vec<i64> {
        let codes = columns.iter().map(|&column| {
            let mut learner = KeyLearner::default();
            learner.add(rows.column(column)).unwrap();
            learner
                .finish()
                .unwrap()
                .encode(rows.column(column))
                .unwrap()
        });
        let codes: Vec<_> = codes.collect();
        let mut order: Vec<usize> = (0..rows.num_rows()).collect();
        order.sort_by_key(|&row| codes.iter().map(|codes| codes.get(row)).collect::<Vec<_>>());
        order.into_iter().map(|row| row as i64).collect()
    }

    #[test]
    fn rows_come_in_the_order_of_an_elfs_codes() {
        let mut random = fastrand::Rng::with_seed(18);
        for (count, budget_bytes) in [
            (0, 8 << 20),
            (1, 8 << 20),
            (5_000, 8 << 20),
            (90_000, 2 << 20),
        ] {
            let options = Options {
                budget_bytes,
                operator_bytes_min: 0,
                ..Options::default()
            };
            let database = Database::temporary(options).unwrap();
            let all = rows(&mut random, count);
            for columns in [vec![0, 1, 2], vec![2, 0], vec![1], vec![]] {
                let batches: Vec<_> = (0..count)
                    .step_by(700)
                    .map(|start| Ok(all.slice(start, 700.min(count - start))))
                    .collect();
                let input = futures::stream::iter(batches);
                let input = RecordBatchStreamAdapter::new(all.schema(), input);
                let context = database.engine().task_context();
                let sorted = in_elf_order(Box::pin(input), &columns, context).unwrap();
                let sorted: Vec<RecordBatch> = database.block_on(sorted.try_collect()).unwrap();
                let numbers = sorted.iter().flat_map(|batch| {
                    let numbers = batch.column(3).as_primitive::<Int64Type>();
                    numbers.values().to_vec()
                });
                let numbers: Vec<i64> = numbers.collect();
                assert!(numbers == by_codes(&all, &columns), "{count} {columns:?}");
            }
        }
    }
}
