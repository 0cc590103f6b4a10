//! `SpillingWindowExec`: functions over the rows of a partition that need all of them before they know the first value.
//!
//! Rows come in the order of their partitions. Partitions that end soon are answered many at a time, as DataFusion does
//! with all of its input. A long one is kept, on disk if need be, where its functions have one value for the whole
//! partition (`sum(x) OVER (PARTITION BY g)`): that value is computed as the rows come. For others the rows stay in
//! memory, on the budget, until the partition ends.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::{concat, concat_batches};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::utils::evaluate_partition_ranges;
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Accumulator, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, WindowExpr};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricsSet, Time,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};
use datafusion::scalar::ScalarValue;
use futures::StreamExt;
use futures::stream::try_unfold;
use hotshelf_operators::Environment;
use hotshelf_operators::batches::{held_bytes, own};
use hotshelf_operators::memory::Grant;
use hotshelf_operators::sort::{SortOptions, Sorted, Sorter};

use super::columns::Columns;
use super::work::{OpenStream, Pieces, Streams, blocking, environment, failed};

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
    pub fn replacing(original: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        original.downcast_ref::<WindowAggExec>().map(|_| Self {
            original: original.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
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

    fn properties(&self) -> &Arc<PlanProperties> {
        self.original.properties()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.original.input_distribution_requirements()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.original.maintains_input_order()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.original.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> QueryResult<TreeNodeRecursion>,
    ) -> QueryResult<TreeNodeRecursion> {
        self.original.apply_expressions(f)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let original = self.original.clone().replace_children(children, options)?;
        Ok(match Self::replacing(&original) {
            Some(own) => Arc::new(own),
            None => original,
        })
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let window = self.window()?;
        let input = window.input().execute(partition, context.clone())?;
        let environment = environment(&context)?;
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
            input: Pieces::new(input, columns),
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
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches.boxed(),
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// What is computed for each partition, and with what.
struct Job {
    exprs: Vec<Arc<dyn WindowExpr>>,
    partition_keys: Vec<PhysicalSortExpr>,
    output: SchemaRef,
    batch_rows: usize,
    environment: Environment,
    grant: Grant,
    elapsed: Time,
}

impl Job {
    /// Where partitions begin and end in rows that are in their order.
    fn partitions(&self, rows: &RecordBatch) -> QueryResult<Vec<Range<usize>>> {
        let keys = self.partition_keys.iter();
        let keys = keys.map(|key| key.evaluate_to_sort_column(rows));
        evaluate_partition_ranges(rows.num_rows(), &keys.collect::<QueryResult<Vec<_>>>()?)
    }

    /// Whole partitions with their values.
    fn answer(&self, rows: &RecordBatch, partitions: &[Range<usize>]) -> QueryResult<RecordBatch> {
        let mut columns = rows.columns().to_vec();
        let slices = partitions.iter();
        let slices = slices.map(|range| rows.slice(range.start, range.len()));
        let slices: Vec<RecordBatch> = slices.collect();
        for expr in &self.exprs {
            let values = slices.iter().map(|partition| expr.evaluate(partition));
            let values = values.collect::<QueryResult<Vec<_>>>()?;
            let values: Vec<_> = values.iter().map(AsRef::as_ref).collect();
            columns.push(concat(&values)?);
        }
        Ok(RecordBatch::try_new(self.output.clone(), columns)?)
    }

    /// For each function how to compute its only value. `None`: one of them has many.
    fn totals(&self) -> QueryResult<Option<Totals>> {
        let mut accumulators = Vec::new();
        for expr in &self.exprs {
            match with_one_value(expr) {
                Some(aggregate) => accumulators.push(aggregate.create_accumulator()?),
                None => return Ok(None),
            }
        }
        Ok(Some(Totals(accumulators)))
    }

    async fn begin_long(self: &Arc<Self>, rows: RecordBatch) -> QueryResult<LongPartition> {
        let kept = match self.totals()? {
            Some(totals) => {
                let options = SortOptions {
                    batch_row_count: self.batch_rows,
                    ..SortOptions::default()
                };
                // Without keys rows stay in their order.
                let name = "window functions";
                let sorter = Sorter::new(&self.environment, name, rows.schema(), options);
                Kept::Spilling {
                    rows: Box::new(sorter.map_err(failed)?),
                    totals,
                    totals_bytes: 0,
                }
            }
            None => Kept::Held {
                rows: Vec::new(),
                bytes: 0,
            },
        };
        let last = last_row(&rows)?;
        let kept = self.keep(kept, vec![rows]).await?;
        Ok(LongPartition { kept, last })
    }

    /// More rows of a long partition.
    async fn keep(self: &Arc<Self>, kept: Kept, batches: Vec<RecordBatch>) -> QueryResult<Kept> {
        let job = self.clone();
        match kept {
            Kept::Held {
                mut rows,
                mut bytes,
            } => {
                for batch in batches {
                    let more = held_bytes(&batch);
                    job.grant.grow(more);
                    bytes += more;
                    rows.push(batch);
                }
                Ok(Kept::Held { rows, bytes })
            }
            Kept::Spilling {
                mut rows,
                mut totals,
                totals_bytes,
            } => {
                let kept = blocking(move || {
                    let _timer = job.elapsed.timer();
                    for batch in batches {
                        if let Err(error) = totals.add(&job, &batch) {
                            return Ok(Err(error));
                        }
                        rows.push(batch)?;
                    }
                    let bytes = totals.bytes();
                    job.grant.replace(totals_bytes, bytes);
                    Ok(Ok(Kept::Spilling {
                        rows,
                        totals,
                        totals_bytes: bytes,
                    }))
                });
                kept.await?
            }
        }
    }
}

/// A function that is an aggregate of the same rows for every row of a partition: all of them.
fn with_one_value(expr: &Arc<dyn WindowExpr>) -> Option<&AggregateFunctionExpr> {
    let window = expr.as_any().downcast_ref::<PlainAggregateWindowExpr>()?;
    let frame = window.get_window_frame();
    let peers_are_all = frame.units == WindowFrameUnits::Range && window.order_by().is_empty();
    let reaches_the_end = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => peers_are_all,
        bound => bound.is_unbounded(),
    };
    // The condition of a FILTER clause is told nowhere else.
    let has_no_condition = format!("{window:?}").ends_with("filter: None }");
    let bounds = [&frame.start_bound, &frame.end_bound];
    (has_no_condition && bounds.into_iter().all(reaches_the_end))
        .then(|| window.get_aggregate_expr())
}

/// What each function has seen of a partition.
struct Totals(Vec<Box<dyn Accumulator>>);

impl Totals {
    fn add(&mut self, job: &Job, rows: &RecordBatch) -> QueryResult<()> {
        for (expr, total) in job.exprs.iter().zip(&mut self.0) {
            total.update_batch(&expr.evaluate_args(rows)?)?;
        }
        Ok(())
    }

    fn values(mut self) -> QueryResult<Vec<ScalarValue>> {
        let totals = self.0.iter_mut();
        totals.map(|total| total.evaluate()).collect()
    }

    fn bytes(&self) -> u64 {
        let sizes = self.0.iter().map(|total| total.size() as u64);
        sizes.sum()
    }
}

/// A copy of the last row: it is kept longer than the others.
fn last_row(rows: &RecordBatch) -> QueryResult<RecordBatch> {
    Ok(own(rows.slice(rows.num_rows().saturating_sub(1), 1))?)
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

/// A partition that takes much memory.
struct LongPartition {
    kept: Kept,
    /// Its last row.
    last: RecordBatch,
}

enum Kept {
    /// On disk if need be.
    Spilling {
        rows: Box<Sorter>,
        totals: Totals,
        totals_bytes: u64,
    },
    /// In memory, with what the grant lends for it.
    Held { rows: Vec<RecordBatch>, bytes: u64 },
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
        let starts = (0..rows.num_rows()).step_by(self.job.batch_rows);
        let slices = starts.map(|start| {
            let len = self.job.batch_rows.min(rows.num_rows() - start);
            rows.slice(start, len)
        });
        self.ready.extend(slices);
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
        let (mut more, mut end) = (Vec::new(), None);
        let mut before = last;
        while let Some(batch) = batches.pop_front() {
            // The first partition of the last row and those that follow has one row that is known.
            let both = concat_batches(&batch.schema(), [&before, &batch])?;
            let partitions = self.job.partitions(&both)?;
            let len = partitions.first().map_or(0, |first| first.len() - 1);
            if len > 0 {
                more.push(batch.slice(0, len));
            }
            if len < batch.num_rows() {
                batches.push_front(batch.slice(len, batch.num_rows() - len));
                end = Some(());
                break;
            }
            before = last_row(&batch)?;
        }
        let kept = self.job.keep(kept, more).await?;
        if end.is_none() {
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

impl fmt::Debug for SpillingWindowExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.original.fmt(f)
    }
}

impl DisplayAs for SpillingWindowExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => self.original.fmt_as(format, f),
            _ => {
                write!(f, "Spilling")?;
                self.original.fmt_as(format, f)
            }
        }
    }
}
