//! One worker of a scan: takes row groups from the queue, filters on encoded data, decodes what survives.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::thread::ThreadId;
use std::time::Instant;

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::error::Result as QueryResult;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{RecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::RecordOutput;
use futures::Stream;
use futures::stream::BoxStream;
use hotshelf_cache::model::RunningPipeline;
use hotshelf_operators::batches::needed_bytes;
use hotshelf_tier::thread_time_ns;
use hotshelf_tier::topology::Near;
use vortex::array::{ArrayRef, MaskFuture, VortexSessionExecute};
use vortex::error::VortexResult;
use vortex::expr::BoundExpression;
use vortex::mask::Mask;
use vortex_arrow::ArrowSessionExt;

use super::file::Morsel;
use super::metrics::ScanMetrics;
use super::numbers::{Numbers, with_numbers};
use super::queue::ScanQueue;
use crate::error::{Error, Result};
use crate::index::Selected;
use crate::pipelines::Observers;
use crate::prices::computed;

/// An account of rows that one operator has made and another works on. What it needs it gets.
pub(crate) fn rows_on_the_way(context: &TaskContext) -> MemoryReservation {
    MemoryConsumer::new("rows on the way").register(context.memory_pool())
}

/// The batches of one partition.
pub(crate) fn open(
    queue: Arc<ScanQueue>,
    schema: SchemaRef,
    metrics: ScanMetrics,
    observers: Observers,
    decoded: MemoryReservation,
) -> ScanStream {
    let fields = schema.fields().iter().take(queue.plan.columns.len());
    let stored = match queue.plan.numbers_rows {
        true => Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>())),
        false => schema.clone(),
    };
    let worker = Worker {
        queue: queue.clone(),
        stored,
        schema: schema.clone(),
        rows_at_once: queue.rows_at_once(&schema),
        rest: None,
    };
    let batches = futures::stream::try_unfold(worker, |mut worker| async move {
        let batch = worker.next().await?;
        Ok::<_, Error>(batch.map(|batch| (batch, worker)))
    });
    let batches = Box::pin(batches);
    ScanStream::new(batches, queue, schema, metrics, observers, decoded)
}

/// What reads the rows of one partition.
struct Worker {
    queue: Arc<ScanQueue>,
    schema: SchemaRef,
    /// Of the columns that are stored: all but the numbers of rows.
    stored: SchemaRef,
    rows_at_once: usize,
    /// What remains of the row group that is read.
    rest: Option<Rest>,
}

/// Survivors of a row group that are not decoded yet.
struct Rest {
    morsel: Morsel,
    rows: ArrayRef,
    /// Whether they are all rows: of a filtered array every part would filter all of it.
    are_all: bool,
    numbers: Option<Numbers>,
}

/// The survivors of a row group.
enum Survivors {
    Nothing,
    /// Rows without columns.
    Count(RecordBatch),
    Encoded {
        rows: ArrayRef,
        are_all: bool,
        numbers: Option<Numbers>,
    },
}

impl Worker {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(covering) = self.queue.covering()
            && let Some(rows) = covering.next().await?
        {
            let batch = covering.batch(&rows, &self.schema)?;
            self.queue.work.cover(rows.count);
            self.queue.work.decode_batch(&batch);
            return Ok(Some(batch));
        }
        loop {
            if let Some(rest) = self.rest.take() {
                return self.decode(rest).map(Some);
            }
            let Some(mut morsel) = self.queue.next().await? else {
                return Ok(None);
            };
            match read(&self.queue, &morsel, &self.schema).await {
                Ok(Survivors::Encoded {
                    rows,
                    are_all,
                    numbers,
                }) => {
                    self.rest = Some(Rest {
                        morsel,
                        rows,
                        are_all,
                        numbers,
                    });
                }
                survivors => {
                    let matched = !matches!(survivors, Ok(Survivors::Nothing));
                    self.queue.release(&mut morsel, matched);
                    if let Survivors::Count(batch) = survivors? {
                        return Ok(Some(batch));
                    }
                }
            }
        }
    }

    /// Decodes as many rows of a row group as memory should hold at once.
    fn decode(&mut self, rest: Rest) -> Result<RecordBatch> {
        let Rest {
            mut morsel,
            rows,
            are_all,
            mut numbers,
        } = rest;
        let decoded = self.decode_first(rows, are_all);
        let decoded = decoded.map_err(|error| morsel.file.segments.typed(error));
        let (batch, later) = match decoded {
            Ok((batch, later)) => (self.numbered(batch, numbers.as_mut()), later),
            Err(error) => (Err(error), None),
        };
        match later {
            Some(rows) => {
                self.rest = Some(Rest {
                    morsel,
                    rows,
                    are_all,
                    numbers,
                });
            }
            None => self.queue.release(&mut morsel, true),
        }
        let batch = batch?;
        self.queue.work.decode_batch(&batch);
        Ok(batch)
    }

    /// Decoded rows as they are handed out.
    fn numbered(&self, rows: RecordBatch, numbers: Option<&mut Numbers>) -> Result<RecordBatch> {
        let Some(numbers) = numbers else {
            return Ok(rows);
        };
        let numbers = numbers.next(rows.num_rows());
        Ok(with_numbers(&rows, numbers, &self.schema)?)
    }

    /// The first rows, and those that remain.
    fn decode_first(
        &self,
        rows: ArrayRef,
        are_all: bool,
    ) -> VortexResult<(RecordBatch, Option<ArrayRef>)> {
        let most = self.rows_at_once;
        if !are_all || rows.len() <= most + most / 2 {
            return Ok((decode(&self.queue, rows, &self.stored)?, None));
        }
        let batch = decode(&self.queue, rows.slice(0..most)?, &self.stored)?;
        Ok((batch, Some(rows.slice(most..rows.len())?)))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(mut rest) = self.rest.take() {
            self.queue.release(&mut rest.morsel, true);
        }
    }
}

/// The surviving rows of a row group.
async fn read(queue: &ScanQueue, morsel: &Morsel, schema: &SchemaRef) -> Result<Survivors> {
    let typed = |error| morsel.file.segments.typed(error);
    let (mask, took_ns) = computed(filter(morsel)).await;
    let mask = mask.map_err(typed)?;
    queue.work.test(morsel, took_ns);
    let mask = narrow_rows(queue, morsel, mask).await.map_err(typed)?;
    queue.work.filter();
    let row_count = mask.true_count();
    if row_count == 0 {
        return Ok(Survivors::Nothing);
    }
    queue.work.survive();
    queue.work.keep(row_count);
    if schema.fields().is_empty() {
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let batch = RecordBatch::try_new_with_options(schema.clone(), vec![], &options);
        return Ok(Survivors::Count(
            batch.map_err(datafusion::error::DataFusionError::from)?,
        ));
    }
    let are_all = mask.all_true();
    let first = morsel.file.first_number;
    let numbers = first.map(|first| Numbers::of(&mask, first + morsel.rows.start));
    let rows = project(morsel, mask).await.map_err(typed)?;
    Ok(Survivors::Encoded {
        rows,
        are_all,
        numbers,
    })
}

/// Evaluates the predicates one after the other, each only on the rows that remain; but not those that the worker tests
/// itself.
pub(crate) async fn filter(morsel: &Morsel) -> VortexResult<Mask> {
    let mask = match &morsel.selected {
        Selected::Rows(mask) => mask.clone(),
        Selected::Unknown => Mask::new_true((morsel.rows.end - morsel.rows.start) as usize),
    };
    evaluate(morsel, mask, morsel.file.to_evaluate(&morsel.selected)).await
}

async fn evaluate(
    morsel: &Morsel,
    mut mask: Mask,
    predicates: impl Iterator<Item = &BoundExpression>,
) -> VortexResult<Mask> {
    for predicate in predicates {
        if mask.all_false() {
            break;
        }
        mask = morsel
            .file
            .reader
            .filter_evaluation(&morsel.rows, predicate, MaskFuture::ready(mask))?
            .await?;
    }
    Ok(mask)
}

/// Drops rows by what became known while the query runs.
pub(crate) async fn narrow_rows(
    queue: &ScanQueue,
    morsel: &Morsel,
    mask: Mask,
) -> VortexResult<Mask> {
    let before = mask.true_count();
    if morsel.narrowing.is_empty() || before == 0 {
        return Ok(mask);
    }
    let known = morsel.narrowing.iter().map(|part| &part.expr);
    let mask = evaluate(morsel, mask, known).await?;
    queue.work.narrowing.add(before, mask.true_count());
    Ok(mask)
}

async fn project(morsel: &Morsel, mask: Mask) -> VortexResult<ArrayRef> {
    let file = &morsel.file;
    file.reader
        .projection_evaluation(&morsel.rows, &file.projection, MaskFuture::ready(mask))?
        .await
}

fn decode(queue: &ScanQueue, array: ArrayRef, schema: &SchemaRef) -> VortexResult<RecordBatch> {
    let target = Field::new_struct("", schema.fields().clone(), false);
    let mut context = queue.session.create_execution_ctx();
    let decoded = queue
        .session
        .arrow()
        .execute_arrow(array, Some(&target), &mut context)?;
    let (_, columns, _) = decoded.as_struct().clone().into_parts();
    let options = RecordBatchOptions::new().with_row_count(Some(decoded.len()));
    Ok(RecordBatch::try_new_with_options(
        schema.clone(),
        columns,
        &options,
    )?)
}

/// The stream of one partition, timing its own work, its waits and the work above it.
pub(crate) struct ScanStream {
    batches: BoxStream<'static, Result<RecordBatch>>,
    queue: Arc<ScanQueue>,
    schema: SchemaRef,
    metrics: ScanMetrics,
    observers: Observers,
    suspended: Option<Suspended>,
    /// For the batch that was handed out last.
    decoded: MemoryReservation,
    /// How often it worked on the processors near its table's shelf.
    near_polls: usize,
}

/// When and where the stream last returned to its caller.
struct Suspended {
    at: Instant,
    thread: ThreadId,
    thread_ns: u64,
    /// Whether with a batch, or waiting for a read.
    with_batch: bool,
}

impl Suspended {
    fn now(with_batch: bool) -> Self {
        Self {
            at: Instant::now(),
            thread: std::thread::current().id(),
            thread_ns: thread_time_ns(),
            with_batch,
        }
    }

    /// What was computed since, in nanoseconds: the thread's own time if the stream is back on it, which does not
    /// count what others took from the processor.
    fn computed_ns(&self) -> u64 {
        if self.thread == std::thread::current().id() {
            thread_time_ns().saturating_sub(self.thread_ns)
        } else {
            self.at.elapsed().as_nanos() as u64
        }
    }
}

impl ScanStream {
    /// A worker's stream over the row groups of `queue`; what it did goes to the tuner.
    pub fn new(
        batches: BoxStream<'static, Result<RecordBatch>>,
        queue: Arc<ScanQueue>,
        schema: SchemaRef,
        metrics: ScanMetrics,
        observers: Observers,
        decoded: MemoryReservation,
    ) -> Self {
        if queue.work.enter()
            && let Some(tuner) = &observers.tuner
        {
            let running: Arc<dyn RunningPipeline> = queue.clone();
            tuner.watch(Arc::downgrade(&running));
        }
        Self {
            batches,
            queue,
            schema,
            metrics,
            observers,
            suspended: None,
            decoded,
            near_polls: 0,
        }
    }
}

impl Stream for ScanStream {
    type Item = QueryResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(suspended) = self.suspended.take() {
            let work = &self.queue.work;
            let elapsed = suspended.at.elapsed();
            if suspended.with_batch {
                self.metrics.downstream.add_duration(elapsed);
                work.busy_ns
                    .fetch_add(suspended.computed_ns(), Ordering::Relaxed);
            } else {
                let wait_ns = elapsed.as_nanos() as u64;
                self.metrics.io_wait.add_duration(elapsed);
                work.wait_ns.fetch_add(wait_ns, Ordering::Relaxed);
            }
        }
        let start = Suspended::now(true);
        let near = self.queue.plan.near.as_deref().and_then(Near::to);
        self.near_polls += usize::from(near.is_some());
        let polled = self.batches.as_mut().poll_next(context);
        drop(near);
        let busy_ns = start.computed_ns();
        self.queue
            .work
            .busy_ns
            .fetch_add(busy_ns, Ordering::Relaxed);
        self.metrics.decode.add_duration(start.at.elapsed());
        self.suspended = Some(Suspended::now(polled.is_ready()));
        if let Poll::Ready(item) = &polled {
            let batch = item.as_ref().and_then(|batch| batch.as_ref().ok());
            self.decoded.resize(batch.map_or(0, needed_bytes) as usize);
        }
        let polled = polled.map(|item| {
            item.map(|batch| {
                batch
                    .map_err(Into::into)
                    .record_output(&self.metrics.baseline)
            })
        });
        if matches!(polled, Poll::Ready(None)) {
            self.suspended = None;
        }
        polled
    }
}

impl RecordBatchStream for ScanStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Drop for ScanStream {
    fn drop(&mut self) {
        // A row group that was begun counts, too.
        self.batches = Box::pin(futures::stream::empty());
        self.metrics.report(&self.queue);
        if self.queue.plan.near.is_some() {
            self.metrics.report_near(self.near_polls);
        }
        if !self.queue.work.leave() {
            return;
        }
        self.queue.work.teach(&self.queue.plan);
        let run = self.queue.run();
        self.metrics.report_throughput(&run);
        self.observers.log.add(run);
        let Some(observation) = self.queue.observation() else {
            return;
        };
        let predicted_s = self.queue.plan.predicted_s;
        self.metrics.report_run(&observation, predicted_s);
        if let Some(tuner) = &self.observers.tuner {
            tuner.observe(observation);
        }
    }
}
