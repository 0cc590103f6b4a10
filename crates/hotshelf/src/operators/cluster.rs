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
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::StreamExt;
use futures::stream::{Fuse, unfold};
use tokio::sync::Mutex;

use super::shared_sort::SharedSortExec;
use super::sort::SpillingSortExec;
use super::work::{memory_bytes, partitions_max};

/// An Elf's codes are in the order of the values, NULL first.
const ELF_ORDER: SortOptions = SortOptions {
    descending: false,
    nulls_first: true,
};

/// The rows of each input in the order that an Elf over `columns` has, whatever the memory. Equal ones come in any
/// order, but with one thread in that of the input. All threads sort, also those of one input.
pub(crate) fn in_elf_order(
    inputs: Vec<SendableRecordBatchStream>,
    columns: &[usize],
    context: &Arc<TaskContext>,
) -> QueryResult<Vec<SendableRecordBatchStream>> {
    let threads = context.session_config().target_partitions();
    let workers = threads
        .min(partitions_max(memory_bytes(context)))
        .div_ceil(inputs.len().max(1));
    let sorted = |input| sorted(input, columns, workers, context.clone());
    inputs.into_iter().map(sorted).collect()
}

fn sorted(
    input: SendableRecordBatchStream,
    columns: &[usize],
    workers: usize,
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
    let sort = SortExec::new(order.clone(), dealt(input, workers)?);
    let sort = sort.with_preserve_partitioning(true);
    let sort: Arc<dyn ExecutionPlan> = match SpillingSortExec::replacing(&sort)? {
        Some(own) => Arc::new(own),
        None => Arc::new(sort),
    };
    let merge: Arc<dyn ExecutionPlan> = Arc::new(SortPreservingMergeExec::new(order, sort));
    match SharedSortExec::replacing(&merge) {
        Some(own) => own.execute(0, context),
        None => merge.execute(0, context),
    }
}

/// A stream as `count` partitions of a plan, which runs once: each takes the next batch when it has worked on one.
fn dealt(input: SendableRecordBatchStream, count: usize) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let schema = input.schema();
    let rows = Arc::new(Mutex::new(input.fuse()));
    let partitions = (0..count).map(|_| {
        let (schema, rows) = (schema.clone(), rows.clone());
        Arc::new(Dealt { schema, rows }) as _
    });
    let rows =
        StreamingTableExec::try_new(schema.clone(), partitions.collect(), None, [], false, None)?;
    Ok(Arc::new(rows))
}

struct Dealt {
    schema: SchemaRef,
    rows: Arc<Mutex<Fuse<SendableRecordBatchStream>>>,
}

impl PartitionStream for Dealt {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = unfold(self.rows.clone(), |rows| async move {
            let batch = rows.lock().await.next().await?;
            Some((batch, rows))
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}

impl fmt::Debug for Dealt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dealt").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Database, Options};
    use datafusion::arrow::array::{
        ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array,
    };
    use datafusion::arrow::compute::{concat_batches, take_record_batch};
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

    /// What orders each row: the codes of these columns.
    fn codes(rows: &RecordBatch, columns: &[usize]) -> Vec<Vec<u64>> {
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
        let code = |row| codes.iter().map(|codes| codes.get(row).into()).collect();
        (0..rows.num_rows()).map(code).collect()
    }

    #[test]
    fn rows_come_in_the_order_of_an_elfs_codes() {
        let mut random = fastrand::Rng::with_seed(18);
        for (count, budget_bytes, threads) in [
            (0, 8 << 20, 2),
            (1, 8 << 20, 2),
            (5_000, 8 << 20, 2),
            (90_000, 2 << 20, 2),
            (5_000, 8 << 20, 1),
            (90_000, 2 << 20, 1),
        ] {
            let options = Options {
                budget_bytes,
                operator_bytes_min: 0,
                threads,
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
                let sorted = in_elf_order(vec![Box::pin(input)], &columns, &context).unwrap();
                let sorted = sorted.into_iter().next().unwrap();
                let sorted: Vec<RecordBatch> = database.block_on(sorted.try_collect()).unwrap();
                let numbers = sorted.iter().flat_map(|batch| {
                    let numbers = batch.column(3).as_primitive::<Int64Type>();
                    numbers.values().to_vec()
                });
                let mut numbers: Vec<i64> = numbers.collect();
                let codes = codes(&all, &columns);
                let in_order = numbers.is_sorted_by_key(|&row| &codes[row as usize]);
                assert!(in_order, "{count} {columns:?}");
                let mut stable: Vec<i64> = (0..count as i64).collect();
                stable.sort_by_key(|&row| &codes[row as usize]);
                // One thread leaves equal rows in the order in which they came.
                assert!(threads > 1 || numbers == stable, "{count} {columns:?}");
                let sorted = concat_batches(&all.schema(), &sorted).unwrap();
                let places = numbers
                    .iter()
                    .map(|&row| row as u64)
                    .collect::<UInt64Array>();
                assert_eq!(
                    sorted,
                    take_record_batch(&all, &places).unwrap(),
                    "{count} {columns:?}"
                );
                numbers.sort_unstable();
                assert!(
                    numbers.into_iter().eq(0..count as i64),
                    "{count} {columns:?}"
                );
            }
        }
    }
}
