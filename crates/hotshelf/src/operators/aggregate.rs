//! `SpillingAggregateExec`: groups of any number, whatever the memory. Those that others merge are handed on.

mod partial;
mod roll_up;
mod sets;
mod spec;

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::stream::try_unfold;
use futures::{StreamExt, TryStreamExt};
use hotshelf_operators::OperatorError;
use hotshelf_operators::aggregate::{
    AggregateStats, HashAggregate, PartialAggregate, Phase, Worker,
};

use super::Reason;
use super::original::as_original;
use super::work::{
    OpenStream, Piece, Pieces, Streams, blocking, environment_with_tables, failed, handed_on,
};
use partial::PartialWork;
use roll_up::{RollUp, Waiting};
use spec::Spec;

/// DataFusion's operator, which says what comes in and out, and Hotshelf's way to aggregate.
pub(crate) struct SpillingAggregateExec {
    /// An `AggregateExec`.
    original: Arc<dyn ExecutionPlan>,
    spec: Arc<Spec>,
    /// Where each set's groups can be made of another's.
    roll_up: Option<Arc<RollUp>>,
    metrics: ExecutionPlanMetricsSet,
}

impl SpillingAggregateExec {
    /// In place of an aggregation by groups. `None`: another operator, or an aggregation that uses or keeps an order,
    /// has a limit, or keys whose equality differs here.
    pub fn replacing(original: &Arc<dyn ExecutionPlan>) -> QueryResult<Option<Self>> {
        let Some(aggregate) = original.downcast_ref::<AggregateExec>() else {
            return Ok(None);
        };
        let Ok(spec) = Spec::of(aggregate)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            original: original.clone(),
            spec: Arc::new(spec),
            roll_up: RollUp::of(aggregate)?.map(Arc::new),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    /// The same where rows that agree in the other keys agree in these, by index: groups are found by the others.
    pub fn carrying(self, keys: &[usize]) -> Self {
        match self.spec.carrying(keys) {
            Some(spec) => Self {
                spec: Arc::new(spec),
                ..self
            },
            None => self,
        }
    }

    /// The one in whose place this is, over inputs with the same rows.
    fn like(self, before: &Self) -> Self {
        self.carrying(before.spec.carried())
    }

    /// Why an aggregation is not replaced, for EXPLAIN.
    pub fn why_left(aggregate: &AggregateExec) -> QueryResult<Reason> {
        Ok(match Spec::of(aggregate)? {
            Ok(_) => {
                "its keys are wide, or several with texts, and what it holds is expected to fit in memory"
            }
            Err(reason) => reason,
        })
    }

    /// The engine's aggregation in whose place it is.
    pub fn aggregate(&self) -> Option<&AggregateExec> {
        self.original.downcast_ref()
    }

    /// Whether it is known to be as quick as DataFusion's operator where memory is plenty, or that one cannot spill
    /// what it holds.
    pub fn is_quick(&self) -> bool {
        self.spec.has_quick_keys() || self.spec.aggregate.phase == Phase::Reduce
    }
}

impl ExecutionPlan for SpillingAggregateExec {
    fn name(&self) -> &str {
        "SpillingAggregateExec"
    }

    as_original!(Self::like);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let input = self.children()[0].execute(partition, context.clone())?;
        let work = Partition {
            spec: self.spec.clone(),
            roll_up: self.roll_up.clone(),
            schema: self.schema(),
            metrics: self.metrics.clone(),
            number: partition,
        };
        if !work.spec.has_empty_set() {
            return work.aggregated(input, &context);
        }
        let output = self.schema();
        let groups = async move {
            let (schema, rows) = (input.schema(), input);
            let rows = rows.try_filter(|batch| std::future::ready(batch.num_rows() > 0));
            let mut rows = Box::pin(rows.peekable());
            if rows.as_mut().peek().await.is_none() {
                let groups = work.spec.of_no_rows()?;
                let baseline = BaselineMetrics::new(&work.metrics, work.number);
                baseline.record_output(groups.num_rows());
                let groups = futures::stream::iter([Ok(groups)]);
                return Ok(Box::pin(RecordBatchStreamAdapter::new(work.schema, groups)) as _);
            }
            let rows = Box::pin(RecordBatchStreamAdapter::new(schema, rows));
            work.aggregated(rows, &context)
        };
        let groups = futures::stream::once(groups).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(output, groups)))
    }
}

/// What the aggregation of one partition knows.
struct Partition {
    spec: Arc<Spec>,
    roll_up: Option<Arc<RollUp>>,
    schema: SchemaRef,
    metrics: ExecutionPlanMetricsSet,
    number: usize,
}

impl Partition {
    /// The groups of these rows.
    fn aggregated(
        self,
        input: SendableRecordBatchStream,
        context: &TaskContext,
    ) -> QueryResult<SendableRecordBatchStream> {
        if let Some(roll_up) = self.roll_up.clone() {
            return self.rolled_up(&roll_up, input, context);
        }
        if self.spec.aggregate.phase.writes_states() {
            return self.partial(self.spec.clone(), input, context);
        }
        let environment = environment_with_tables(context, &self.metrics, self.number)?;
        let input = Pieces::new(input, self.spec.columns.clone(), context);
        let stream = Streams::new(environment.stop.clone()).open();
        let spec = self.spec.aggregate.clone();
        let baseline = BaselineMetrics::new(&self.metrics, self.number);
        let aggregation = HashAggregate::try_new(spec, &environment, 1);
        let aggregation = aggregation.map_err(failed)?;
        let worker = aggregation.worker().map_err(failed)?;
        let work = AggregateWork {
            aggregation,
            spec: self.spec,
            stream,
            baseline,
        };
        let groups = async move {
            let worker = work.take_all(input, worker).await?;
            note(work.aggregation.stats(), &self.metrics, self.number);
            let batches = try_unfold((work, worker), |(mut work, worker)| async move {
                let next = work.next(worker).await?;
                Ok(next.map(|(batch, worker)| (batch, (work, worker))))
            });
            Ok::<_, DataFusionError>(batches)
        };
        let batches = futures::stream::once(groups).try_flatten();
        Ok(handed_on(self.schema, batches, context))
    }

    /// The groups of these rows with their states, for others to merge.
    fn partial(
        &self,
        spec: Arc<Spec>,
        input: SendableRecordBatchStream,
        context: &TaskContext,
    ) -> QueryResult<SendableRecordBatchStream> {
        let environment = environment_with_tables(context, &self.metrics, self.number)?;
        let groups = PartialAggregate::try_new(spec.aggregate.clone(), &environment);
        let work = PartialWork {
            input: Pieces::new(input, spec.columns.clone(), context),
            stream: Streams::new(environment.stop.clone()).open(),
            groups: groups.map_err(failed)?,
            baseline: BaselineMetrics::new(&self.metrics, self.number),
            passed: MetricBuilder::new(&self.metrics).counter("passed_rows", self.number),
            spec,
        };
        Ok(handed_on(self.schema.clone(), work.run(), context))
    }

    /// The same of several sets, each made of the groups of the one before.
    fn rolled_up(
        &self,
        roll_up: &Arc<RollUp>,
        input: SendableRecordBatchStream,
        context: &TaskContext,
    ) -> QueryResult<SendableRecordBatchStream> {
        let waiting = Waiting::default();
        let (all, baseline) = (
            roll_up.clone(),
            BaselineMetrics::new(&self.metrics, self.number),
        );
        let groups = input.map(move |rows| {
            let groups = all.groups(&rows?)?;
            baseline.output_rows().add(groups.num_rows());
            Ok(groups)
        });
        let groups = RecordBatchStreamAdapter::new(self.schema.clone(), groups);
        let mut level: SendableRecordBatchStream = waiting.noting(Box::pin(groups));
        for spec in &roll_up.levels {
            level = waiting.noting(self.partial(spec.clone(), level, context)?);
        }
        let all = waiting.handed_on(level);
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema.clone(),
            all,
        )))
    }
}

/// What the steps of one partition's aggregation have in common.
struct AggregateWork {
    spec: Arc<Spec>,
    aggregation: Arc<HashAggregate>,
    stream: OpenStream,
    baseline: BaselineMetrics,
}

impl AggregateWork {
    /// Takes all rows. Few rows are aggregated at once, more where blocking is allowed.
    async fn take_all(&self, mut input: Pieces, mut worker: Worker) -> QueryResult<Worker> {
        // A piece may become many rows where there are sets.
        let mut is_small = self.spec.sets.is_none();
        loop {
            let Piece { batches, is_last } = input.next().await?;
            let elapsed = self.baseline.elapsed_compute().clone();
            let spec = self.spec.clone();
            let push = move || {
                let _timer = elapsed.timer();
                spec.give(batches, |batch| worker.push(batch))?;
                if is_last {
                    worker.finish()?;
                }
                Ok::<_, OperatorError>(worker)
            };
            is_small &= is_last;
            worker = match is_small {
                true => push().map_err(failed)?,
                false => blocking(push).await?,
            };
            if is_last {
                return Ok(worker);
            }
        }
    }

    /// The next groups. Those that have to be merged are merged where blocking is allowed.
    async fn next(&mut self, mut worker: Worker) -> QueryResult<Option<(RecordBatch, Worker)>> {
        let is_ready = worker.has_output() || self.aggregation.stats().scattered_count == 0;
        let elapsed = self.baseline.elapsed_compute().clone();
        let next = move || {
            let _timer = elapsed.timer();
            worker.next_batch().map(|batch| (batch, worker))
        };
        let (batch, worker) = match is_ready {
            true => next().map_err(failed)?,
            false => blocking(next).await?,
        };
        let Some(batch) = batch else {
            self.stream.end();
            return Ok(None);
        };
        self.baseline.output_rows().add(batch.num_rows());
        Ok(Some((self.spec.as_output(batch)?, worker)))
    }
}

/// What EXPLAIN ANALYZE shows.
fn note(stats: AggregateStats, metrics: &ExecutionPlanMetricsSet, partition: usize) {
    let count = |name: &'static str, value: u64| {
        let counter = MetricBuilder::new(metrics).counter(name, partition);
        counter.add(value as usize);
    };
    count("spilled_rows", stats.spilled_count);
    let peak = MetricBuilder::new(metrics).gauge("peak_mem_used", partition);
    peak.set_max(stats.used_bytes_max as usize);
}

impl fmt::Debug for SpillingAggregateExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillingAggregateExec")
            .field("original", &self.original)
            .finish_non_exhaustive()
    }
}

/// As the operator in whose place it is, and the keys by which groups need not be found.
impl DisplayAs for SpillingAggregateExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_tree = format == DisplayFormatType::TreeRender;
        if !is_tree {
            write!(f, "Spilling")?;
        }
        self.original.fmt_as(format, f)?;
        let schema = self.schema();
        let carried = self.spec.carried().iter();
        let carried = carried.map(|key| schema.field(*key).name().as_str());
        let carried = carried.collect::<Vec<_>>().join(", ");
        match (carried.is_empty(), is_tree) {
            (true, _) => Ok(()),
            (false, true) => writeln!(f, "carried={carried}"),
            (false, false) => write!(f, ", carried=[{carried}]"),
        }
    }
}
