//! The pieces of an import: files, or ranges of large files, each read with its own columns.
//!
//! Streams take pieces from one queue, so an error knows its file and mostly its row.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use parking_lot::Mutex;

use super::ImportInput;
use crate::error::{Error, Result};
use crate::input::FileFormat;
use crate::input::exact::exact_cast;

/// A partition of a plan that reads one file.
struct ImportPiece {
    path: PathBuf,
    plan: Arc<dyn ExecutionPlan>,
    partition: usize,
}

/// What is still to be read.
pub(super) struct Pieces {
    queue: Mutex<VecDeque<ImportPiece>>,
    context: Arc<TaskContext>,
    wanted: SchemaRef,
    /// Rows of all pieces, if all files say so.
    pub known_rows: Option<u64>,
}

/// Plans how the files are read into the wanted columns, by this many threads.
pub(super) async fn pieces(
    context: &SessionContext,
    input: &ImportInput,
    wanted: &SchemaRef,
    threads: usize,
) -> Result<Arc<Pieces>> {
    let state = context.state();
    let mut queue = VecDeque::new();
    let mut known_rows = Some(0);
    for (file, own) in input.files.iter().zip(&input.own) {
        let own = read_types(input.tables.options.format, own, wanted);
        let table = input
            .tables
            .table(&state, std::slice::from_ref(file), own)?;
        let plan = table
            .scan(&state, None, &[], None)
            .await
            .map_err(Error::from_query)?;
        known_rows = known_rows
            .zip(row_count(&plan))
            .map(|(sum, rows)| sum + rows);
        let plan = match threads {
            1 => plan,
            _ => in_ranges(plan, &state, threads)?,
        };
        for partition in 0..plan.output_partitioning().partition_count() {
            queue.push_back(ImportPiece {
                path: file.path.clone(),
                plan: plan.clone(),
                partition,
            });
        }
    }
    Ok(Arc::new(Pieces {
        queue: Mutex::new(queue),
        context: context.task_ctx(),
        wanted: wanted.clone(),
        known_rows,
    }))
}

fn in_ranges(
    plan: Arc<dyn ExecutionPlan>,
    state: &datafusion::execution::SessionState,
    threads: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let ranges = plan.repartitioned(threads, state.config_options());
    Ok(ranges.map_err(Error::from_query)?.unwrap_or(plan))
}

/// The rows a plan says it will make.
fn row_count(plan: &Arc<dyn ExecutionPlan>) -> Option<u64> {
    let statistics = StatisticsContext::default()
        .compute(plan.as_ref(), &StatisticsArgs::default())
        .ok()?;
    statistics.num_rows.get_value().map(|rows| *rows as u64)
}

/// The types that a file is read with, before its columns become the wanted ones.
fn read_types(format: FileFormat, own: &SchemaRef, wanted: &SchemaRef) -> SchemaRef {
    let fields = own.fields().iter().map(|field| {
        let want = wanted
            .field_with_name(field.name())
            .map_or(field.data_type(), Field::data_type);
        let data_type = match format {
            FileFormat::Csv => csv_type(field.data_type(), want),
            FileFormat::Json => json_type(field.data_type(), want),
            FileFormat::Parquet | FileFormat::Arrow => field.data_type().clone(),
        };
        field
            .as_ref()
            .clone()
            .with_data_type(data_type)
            .with_nullable(true)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Text for a text or decimal column stays text, so that no zero or digit is lost.
fn csv_type(own: &DataType, want: &DataType) -> DataType {
    match own {
        _ if is_text(want) || want.is_decimal() => DataType::Utf8,
        DataType::Null => want.clone(),
        _ if own.is_numeric() && want.is_floating() => want.clone(),
        _ => own.clone(),
    }
}

/// Numbers that look whole in the first lines are read as text: Arrow's reader would cut fractions that come later.
fn json_type(own: &DataType, want: &DataType) -> DataType {
    match own {
        DataType::Null => want.clone(),
        _ if own.is_integer() => DataType::Utf8,
        _ => own.clone(),
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

impl Pieces {
    /// Streams that share the pieces.
    pub fn streams(self: Arc<Self>, count: usize) -> Vec<SendableRecordBatchStream> {
        let stream = || {
            let start = (self.clone(), None);
            let batches = futures::stream::unfold(start, |(pieces, current)| async move {
                let (batch, current) = pieces.next(current).await?;
                Some((batch, (pieces, current)))
            });
            Box::pin(RecordBatchStreamAdapter::new(self.wanted.clone(), batches)) as _
        };
        (0..count.min(self.queue.lock().len()).max(1))
            .map(|_| stream())
            .collect()
    }

    /// The next batch of a stream that reads `current`, and the piece it reads then.
    async fn next(
        &self,
        mut current: Option<Reading>,
    ) -> Option<(QueryResult<RecordBatch>, Option<Reading>)> {
        loop {
            let mut reading = match current.take() {
                Some(reading) => reading,
                None => match self.open(self.queue.lock().pop_front()?) {
                    Ok(reading) => reading,
                    Err(error) => return Some((Err(error), None)),
                },
            };
            match reading.batches.next().await {
                None => {}
                Some(Err(error)) => return Some((Err(error), None)),
                Some(Ok(batch)) => {
                    let arranged = reading.arrange(&batch, &self.wanted);
                    return Some((arranged.map_err(DataFusionError::from), Some(reading)));
                }
            }
        }
    }

    fn open(&self, piece: ImportPiece) -> QueryResult<Reading> {
        let batches = piece.plan.execute(piece.partition, self.context.clone())?;
        Ok(Reading {
            batches,
            path: piece.path,
            rows_before: (piece.partition == 0).then_some(0),
        })
    }
}

/// A piece that is being read.
struct Reading {
    path: PathBuf,
    batches: SendableRecordBatchStream,
    /// Rows of the file before the next batch, where that is known.
    rows_before: Option<u64>,
}

impl Reading {
    /// Puts the columns of a batch in the wanted order and types; those that the file lacks are NULL.
    fn arrange(&mut self, batch: &RecordBatch, wanted: &SchemaRef) -> Result<RecordBatch> {
        let columns = wanted
            .fields()
            .iter()
            .map(|field| self.column(batch, field));
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let rows = batch.num_rows();
        self.rows_before = self.rows_before.map(|before| before + rows as u64);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(wanted.clone(), columns, &options).map_err(|error| {
            Error::BadInput {
                path: self.path.clone(),
                what: error.to_string(),
            }
        })
    }

    fn column(&self, batch: &RecordBatch, want: &Field) -> Result<ArrayRef> {
        let data_type = want.data_type();
        match batch.column_by_name(want.name()) {
            None => Ok(new_null_array(data_type, batch.num_rows())),
            Some(column) => exact_cast(column, data_type).map_err(|misfit| {
                misfit.in_file(&self.path, want.name(), data_type, self.rows_before)
            }),
        }
    }
}
