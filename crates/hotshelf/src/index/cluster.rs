//! Puts rows in the order of a clustered index on their way into a data file, stretch by stretch.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::DataType;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};
use hotshelf_elf::keys::CodeTable;
use hotshelf_elf::layout::packed::{PackedElf, PackedOptions};
use hotshelf_store::StoreError;

use super::keys::KeyLearner;
use crate::error::Result;

/// Rows of the batches that come out.
const BATCH_ROWS: usize = 1 << 15;

/// The rows of `input`, every `stretch_rows` of them in the order that an Elf over `columns` has.
pub(crate) fn cluster(
    input: SendableRecordBatchStream,
    columns: Vec<usize>,
    stretch_rows: u64,
    threads: usize,
) -> SendableRecordBatchStream {
    let schema = input.schema();
    let state = (input, None::<RecordBatch>, columns);
    let stretches =
        futures::stream::try_unfold(state, move |(mut input, rest, columns)| async move {
            let (batches, rest) = collect(&mut input, rest, stretch_rows as usize).await?;
            if batches.is_empty() {
                return Ok(None);
            }
            let by = columns.clone();
            let sorted = SpawnedTask::spawn_blocking(move || sort(batches, &by, threads));
            let stopped = |error| DataFusionError::ExecutionJoin(Box::new(error));
            let sorted = sorted.await.map_err(stopped)??;
            Ok::<_, DataFusionError>(Some((sorted, (input, rest, columns))))
        });
    let batches = stretches
        .map_ok(|sorted| futures::stream::iter(sorted.batches()))
        .try_flatten();
    Box::pin(RecordBatchStreamAdapter::new(schema, batches.boxed()))
}

/// Batches of up to `row_count` rows, and the rest of the last.
async fn collect(
    input: &mut SendableRecordBatchStream,
    rest: Option<RecordBatch>,
    row_count: usize,
) -> QueryResult<(Vec<RecordBatch>, Option<RecordBatch>)> {
    let mut batches = Vec::new();
    let mut missing = row_count;
    let mut next = rest;
    loop {
        let batch = match next.take() {
            Some(batch) => batch,
            None => match input.try_next().await? {
                Some(batch) => batch,
                None => return Ok((batches, None)),
            },
        };
        if batch.num_rows() > missing {
            let rest = batch.slice(missing, batch.num_rows() - missing);
            if missing > 0 {
                batches.push(batch.slice(0, missing));
            }
            return Ok((batches, Some(rest)));
        }
        missing -= batch.num_rows();
        if batch.num_rows() > 0 {
            batches.push(batch);
        }
    }
}

/// Rows and the order they come out in.
struct Sorted {
    rows: RecordBatch,
    order: Vec<u32>,
}

fn sort(batches: Vec<RecordBatch>, columns: &[usize], threads: usize) -> QueryResult<Sorted> {
    let rows = concat_batches(&batches[0].schema(), &batches)?;
    drop(batches);
    let order = elf_order(&rows, columns, threads)?;
    Ok(Sorted { rows, order })
}

/// The rows' numbers in the order of an Elf over `columns`.
fn elf_order(rows: &RecordBatch, columns: &[usize], threads: usize) -> Result<Vec<u32>> {
    let codes = columns.iter().map(|column| {
        let mut learner = KeyLearner::exact();
        learner.add(rows.column(*column))?;
        learner.finish()?.encode(rows.column(*column))
    });
    let table = CodeTable::new(codes.collect::<Result<_, StoreError>>()?)?;
    let options = PackedOptions {
        clustered: true,
        zones: false,
        thread_count: threads,
        ..PackedOptions::default()
    };
    Ok(PackedElf::build_with_order(&table, &options)?.1)
}

impl Sorted {
    fn batches(self) -> impl Iterator<Item = QueryResult<RecordBatch>> {
        let Self { rows, order } = self;
        let chunks = (0..order.len()).step_by(BATCH_ROWS);
        chunks.map(move |start| {
            let end = order.len().min(start + BATCH_ROWS);
            let indices = UInt32Array::from(order[start..end].to_vec());
            let columns = rows
                .columns()
                .iter()
                .map(|column| Ok(compact(take(column, &indices, None)?)))
                .collect::<QueryResult<Vec<_>>>()?;
            Ok(RecordBatch::try_new(rows.schema(), columns)?)
        })
    }
}

/// Views without the bytes they do not show.
fn compact(column: ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => std::sync::Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => std::sync::Arc::new(column.as_binary_view().gc()),
        _ => column,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int64Array;
    use std::sync::Arc;

    #[tokio::test]
    async fn every_stretch_is_sorted_and_keeps_its_rows() {
        let numbers: Vec<Option<i64>> = (0..100)
            .map(|i| (i % 9 != 0).then_some(i * 37 % 50))
            .collect();
        let batches: Vec<_> = numbers
            .chunks(7)
            .map(|chunk| {
                let column: ArrayRef = Arc::new(Int64Array::from(chunk.to_vec()));
                Ok(RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap())
            })
            .collect();
        let schema = batches[0].as_ref().map(RecordBatch::schema).unwrap();
        let input = RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches));
        let output = cluster(Box::pin(input), vec![0], 40, 1);
        let output: Vec<RecordBatch> = output.try_collect().await.unwrap();
        let mut found = Vec::new();
        for batch in &output {
            found.extend(
                batch
                    .column(0)
                    .as_primitive::<arrow::datatypes::Int64Type>()
                    .iter(),
            );
        }
        for (stretch, input) in found.chunks(40).zip(numbers.chunks(40)) {
            let mut expected = input.to_vec();
            expected.sort_unstable();
            assert_eq!(stretch, expected);
        }
    }
}
