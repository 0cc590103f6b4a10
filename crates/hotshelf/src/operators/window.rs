//! `SpillingWindowExec`: functions over the rows of a partition that need all of them before they know the first value.
//!
//! Rows come in the order of their partitions. Partitions that end soon are answered many at a time, as DataFusion does
//! with all of its input. A long one is kept, on disk if need be, where its functions have one value for the whole
//! partition (`sum(x) OVER (PARTITION BY g)`): that value is computed as the rows come. For others the rows stay in
//! memory, on the budget, until the partition ends.

mod job;

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::common::internal_err;
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, Gauge, MetricBuilder,
};
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion::scalar::ScalarValue;
use futures::StreamExt;
use futures::stream::try_unfold;
use hotshelf_operators::batches::{held_bytes, own, slices};
use hotshelf_operators::memory::Grant;
use hotshelf_operators::sort::Sorted;

use super::columns::Columns;
use super::original::{as_original, shown_as_original};
use super::work::{OpenStream, Pieces, Streams, blocking, environment, handed_on};
use job::{Job, Kept, LongPartition, last_row};

/// A partition that takes more, in bytes, is a long one.
const LONG_BYTES: u64 = 4 << 20;

/// DataFusion's operator, which says what comes in and out, and Hotshelf's way to keep the rows.
pub(crate) struct SpillingWindowExec {
    /// A `WindowAggExec`.
    original: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

impl SpillingWindowExec {
    /// In place of window functions that keep their rows. `None`: another operator.
    pub fn replacing(original: &Arc<dyn ExecutionPlan>) -> QueryResult<Option<Self>> {
        let window = original.downcast_ref::<WindowAggExec>();
        Ok(window.map(|_| Self {
            original: original.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn window(&self) -> QueryResult<&WindowAggExec> {
        match self.original.downcast_ref::<WindowAggExec>() {
            Some(window) => Ok(window),
            None => internal_err!("spilling window functions in place of none"),
        }
    }
}

impl ExecutionPlan for SpillingWindowExec {
    fn name(&self) -> &str {
        "SpillingWindowExec"
    }

    as_original!();

    fn maintains_input_order(&self) -> Vec<bool> {
        self.original.maintains_input_order()
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let window = self.window()?;
        let input = window.input().execute(partition, context.clone())?;
        let environment = environment(&context, &self.metrics, partition)?;
        let columns = Arc::new(Columns::of(input.schema()));
        let gauge = |name| MetricBuilder::new(&self.metrics).gauge(name, partition);
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let windows = Windows {
            stream: Streams::new(environment.stop.clone()).open(),
            job: Arc::new(Job {
                exprs: window.window_expr().to_vec(),
                partition_keys: window.partition_by_sort_keys()?,
                output: window.schema(),
                batch_rows: context.session_config().batch_size(),
                grant: Grant::open(&*environment.broker, "window functions", 0),
                elapsed: baseline.elapsed_compute().clone(),
                environment,
            }),
            input: Pieces::new(input, columns, &context),
            has_ended: false,
            phase: Phase::Short { open: None },
            ready: VecDeque::new(),
            ready_bytes: 0,
            baseline,
            spill_count: gauge("spill_count"),
        };
        let batches = try_unfold(windows, |mut windows| async move {
            let next = windows.next().await?;
            Ok(next.map(|batch| (batch, windows)))
        });
        Ok(handed_on(self.schema(), batches.boxed(), &context))
    }
}

/// The window functions of one stream.
struct Windows {
    job: Arc<Job>,
    stream: OpenStream,
    input: Pieces,
    /// Whether all input was read.
    has_ended: bool,
    phase: Phase,
    /// Whole partitions that go out next.
    ready: VecDeque<RecordBatch>,
    /// What the grant lends for them, in bytes.
    ready_bytes: u64,
    baseline: BaselineMetrics,
    spill_count: Gauge,
}

/// Where the partition is that was read last.
enum Phase {
    /// It is small so far. Its rows, if any came.
    Short { open: Option<RecordBatch> },
    /// It goes on.
    Long(Box<LongPartition>),
    /// It has ended, goes out, and then comes what was read beyond it.
    Ended {
        rows: Box<Sorted>,
        values: Vec<ScalarValue>,
        beyond: Option<RecordBatch>,
    },
}

impl Windows {
    /// The next rows. `None`: there are no more.
    async fn next(&mut self) -> QueryResult<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                if self.ready.is_empty() {
                    self.job.grant.shrink(std::mem::take(&mut self.ready_bytes));
                }
                self.baseline.record_output(batch.num_rows());
                return Ok(Some(batch));
            }
            match std::mem::replace(&mut self.phase, Phase::Short { open: None }) {
                Phase::Ended {
                    rows,
                    values,
                    beyond,
                } => self.give(rows, values, beyond).await?,
                Phase::Short { open: None } if self.has_ended => {
                    self.stream.end();
                    return Ok(None);
                }
                Phase::Short { open } => self.read(open).await?,
                Phase::Long(long) => self.read_long(*long).await?,
            }
        }
    }

    /// Reads on behind the rows of a small partition.
    async fn read(&mut self, open: Option<RecordBatch>) -> QueryResult<()> {
        let mut batches: Vec<RecordBatch> = open.into_iter().collect();
        if !self.has_ended {
            let piece = self.input.next().await?;
            self.has_ended = piece.is_last;
            batches.extend(piece.batches);
        }
        let Some(first) = batches.first() else {
            return Ok(());
        };
        let rows = concat_batches(&first.schema(), &batches)?;
        drop(batches);
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let mut partitions = self.job.partitions(&rows)?;
        if !self.has_ended
            && let Some(open) = partitions.pop()
        {
            // A slice would keep the texts of all rows, and what is made of it, too.
            let open = own(rows.slice(open.start, open.len()))?;
            self.phase = match held_bytes(&open) > LONG_BYTES && partitions.is_empty() {
                true => Phase::Long(Box::new(self.job.begin_long(open).await?)),
                false => Phase::Short { open: Some(open) },
            };
        }
        if let Some(last) = partitions.last() {
            let whole = rows.slice(0, last.end);
            drop(rows);
            let timer = self.job.elapsed.timer();
            let answer = self.job.answer(&whole, &partitions)?;
            drop(timer);
            self.make_ready(&answer);
        }
        Ok(())
    }

    fn make_ready(&mut self, rows: &RecordBatch) {
        self.ready.extend(slices(rows, self.job.batch_rows));
    }

    /// Reads on in a long partition.
    async fn read_long(&mut self, long: LongPartition) -> QueryResult<()> {
        let LongPartition { kept, last } = long;
        if self.has_ended {
            return self.end_long(kept, None).await;
        }
        let piece = self.input.next().await?;
        self.has_ended = piece.is_last;
        let batches = piece
            .batches
            .into_iter()
            .filter(|batch| batch.num_rows() > 0);
        let mut batches: VecDeque<RecordBatch> = batches.collect();
        let (mut more, mut has_ended) = (Vec::new(), false);
        let mut before = last;
        while let Some(batch) = batches.pop_front() {
            let len = self.job.len_after(&before, &batch)?;
            if len > 0 {
                more.push(batch.slice(0, len));
            }
            if len < batch.num_rows() {
                batches.push_front(batch.slice(len, batch.num_rows() - len));
                has_ended = true;
                break;
            }
            before = last_row(&batch)?;
        }
        let kept = self.job.keep(kept, more).await?;
        if !has_ended {
            let last = before;
            self.phase = Phase::Long(Box::new(LongPartition { kept, last }));
            return Ok(());
        }
        let beyond: Vec<_> = batches.into();
        let beyond = concat_batches(&before.schema(), &beyond)?;
        self.end_long(kept, Some(beyond)).await
    }

    /// A long partition has ended.
    async fn end_long(&mut self, kept: Kept, beyond: Option<RecordBatch>) -> QueryResult<()> {
        match kept {
            Kept::Spilling {
                rows,
                totals,
                totals_bytes,
            } => {
                let values = totals.values()?;
                self.job.grant.shrink(totals_bytes);
                let rows = blocking(move || rows.finish()).await?;
                let spilled = self.spill_count.value() + rows.stats().run_count as usize;
                self.spill_count.set(spilled);
                self.phase = Phase::Ended {
                    rows: Box::new(rows),
                    values,
                    beyond,
                };
            }
            Kept::Held { rows, bytes } => {
                let Some(first) = rows.first() else {
                    return internal_err!("a long partition without rows");
                };
                // The rows at once, and their values.
                self.job.grant.grow(bytes);
                let (schema, job) = (first.schema(), self.job.clone());
                let answer = blocking(move || {
                    let whole = concat_batches(&schema, &rows)?;
                    drop(rows);
                    let partition = 0..whole.num_rows();
                    Ok(job.answer(&whole, &[partition]))
                });
                let answer = answer.await;
                self.job.grant.shrink(bytes);
                self.ready_bytes += bytes;
                self.make_ready(&answer??);
                self.phase = Phase::Short { open: beyond };
            }
        }
        Ok(())
    }

    /// The next rows of a long partition that has ended.
    async fn give(
        &mut self,
        mut rows: Box<Sorted>,
        values: Vec<ScalarValue>,
        beyond: Option<RecordBatch>,
    ) -> QueryResult<()> {
        let next = blocking(move || rows.next_batch().map(|batch| (batch, rows)));
        let (batch, rows) = next.await?;
        let Some(batch) = batch else {
            self.phase = Phase::Short { open: beyond };
            return Ok(());
        };
        let mut columns = batch.columns().to_vec();
        for value in &values {
            columns.push(value.to_array_of_size(batch.num_rows())?);
        }
        let output = self.job.output.clone();
        self.ready.push_back(RecordBatch::try_new(output, columns)?);
        self.phase = Phase::Ended {
            rows,
            values,
            beyond,
        };
        Ok(())
    }
}

shown_as_original!(SpillingWindowExec);
