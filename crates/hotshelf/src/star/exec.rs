//! `StarPipelineExec`: the operator that replaces a star-shaped part of a plan.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, internal_err};
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::{EmptyRecordBatchStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;

use super::accumulate::Keys;
use super::determined::Lineage;
use super::prepare::{Output, Prepared, Ready, Star, prepare};
use super::ran::Ran;
use super::worker::Worker;
use crate::begun::Begun;
use crate::error::{Error, is_shortage};
use crate::scan::{Reported, ScanMetrics, ScanQueue, ScanStream, TableScan, rows_on_the_way};
use crate::statistics::rows::expected;

/// One preparation serves all partitions, also when the one that began it is dropped, and its failure too:
/// build sides must not run twice.
type Preparation = Shared<BoxFuture<'static, Result<Arc<Prepared>, Arc<DataFusionError>>>>;

/// Scan, look-ups and aggregation in one operator, and the replaced plan, kept for data that is not a star.
pub(super) struct StarPipelineExec {
    star: Arc<Star>,
    lineage: Arc<Lineage>,
    original: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    reported: Arc<Mutex<Reported>>,
    /// The look-ups end with the last row.
    begun: Begun<Preparation>,
    /// Of the original plan.
    statistics: OnceLock<Arc<Statistics>>,
    /// For EXPLAIN ANALYZE.
    outcome: Arc<OnceLock<Outcome>>,
}

/// What happened to a star, without what it holds in memory.
enum Outcome {
    Ran(Arc<ScanQueue>, Arc<Ran>),
    /// Why the original plan ran.
    Original(String),
}

impl StarPipelineExec {
    /// `original` must be a plan of its own: both may have to run.
    pub fn new(star: Arc<Star>, original: Arc<dyn ExecutionPlan>) -> Self {
        let partitions = original.output_partitioning().partition_count();
        // What is the same in all rows still is, and sorts and windows above may count on it.
        let mut known = original.equivalence_properties().clone();
        known.clear_orderings();
        known.clear_per_partition_constants();
        let properties = PlanProperties::new(
            known,
            Partitioning::UnknownPartitioning(partitions),
            match star.output {
                Output::Rows(_) => EmissionType::Incremental,
                Output::Groups(_) => EmissionType::Final,
            },
            Boundedness::Bounded,
        );
        Self {
            lineage: Arc::new(star.lineage()),
            star,
            original,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            reported: Arc::default(),
            begun: Begun::default(),
            statistics: OnceLock::new(),
            outcome: Arc::default(),
        }
    }

    fn preparation(&self, partition: usize, context: &Arc<TaskContext>) -> Preparation {
        let begin = || -> Result<Preparation, Infallible> {
            let (star, context, outcome) =
                (self.star.clone(), context.clone(), self.outcome.clone());
            let (metrics, lineage) = (self.metrics.clone(), self.lineage.clone());
            let run = async move {
                let prepared = Arc::new(prepare(star, context).await.map_err(Arc::new)?);
                let became = match prepared.as_ref() {
                    Prepared::Ready(ready) => {
                        lineage.note_run();
                        if ready.ran.count() > 0 {
                            let metrics = MetricBuilder::new(&metrics);
                            let reused = metrics.global_counter("look_ups_reused");
                            reused.add(ready.ran.reused_count());
                        }
                        Outcome::Ran(ready.queue.clone(), ready.ran.clone())
                    }
                    Prepared::Fallback(reason) => {
                        tracing::debug!(reason, "a star pipeline runs its original plan");
                        Outcome::Original(reason.clone())
                    }
                };
                outcome.set(became).ok();
                Ok(prepared)
            };
            Ok(run.boxed().shared())
        };
        let partitions = self.original.output_partitioning().partition_count();
        let Ok(preparation) = self.begun.share(partition, partitions, begin);
        preparation
    }
}

/// The plan with the plan that a star falls back to changed, if it is a star.
pub(crate) fn with_fallback(
    plan: Arc<dyn ExecutionPlan>,
    change: impl FnOnce(Arc<dyn ExecutionPlan>) -> QueryResult<Arc<dyn ExecutionPlan>>,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let Some(star) = plan.downcast_ref::<StarPipelineExec>() else {
        return Ok(plan);
    };
    let original = change(star.original.clone())?;
    if Arc::ptr_eq(&original, &star.original) {
        return Ok(plan);
    }
    Ok(Arc::new(StarPipelineExec::new(star.star.clone(), original)))
}

/// The plan that a star is in the place of, if it is a star.
pub(crate) fn fallback(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let star = plan.downcast_ref::<StarPipelineExec>()?;
    Some(&star.original)
}

/// The rows that passed all look-ups and filters of a star.
pub(crate) struct Survived {
    pub rows: u64,
    /// Whether no worker was stopped before it had found all of its rows.
    pub are_all: bool,
}

/// What passed a star, if it is one whose build sides have run and were fit for look-ups. It may have begun again as
/// the original plan since.
pub(crate) fn survived(plan: &Arc<dyn ExecutionPlan>) -> Option<Survived> {
    let star = plan.downcast_ref::<StarPipelineExec>()?;
    let Outcome::Ran(queue, ran) = star.outcome.get()? else {
        return None;
    };
    let run = queue.run();
    Some(Survived {
        rows: run.rows_kept,
        are_all: run.finished && ran.ended_count() == run.workers,
    })
}

/// Whether the rest of the query has by now found rows of a part that it does not need: scans may have left them out.
pub(crate) fn is_narrowed(part: &Arc<dyn ExecutionPlan>) -> bool {
    let scan = match part.downcast_ref::<StarPipelineExec>() {
        Some(star) => Some(&star.star.scan),
        None => TableScan::of(part),
    };
    scan.is_some_and(TableScan::is_narrowed) || part.children().into_iter().any(is_narrowed)
}

/// What a partition's rows come from.
enum RowSource {
    Star(Box<Worker>),
    Original(SendableRecordBatchStream),
}

/// The stream of one partition. A whole aggregation that runs out of memory has given nothing away yet: the
/// original plan, which can spill, begins from the start.
fn open(
    ready: &Arc<Ready>,
    original: Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
    metrics: ScanMetrics,
) -> QueryResult<SendableRecordBatchStream> {
    let schema = original.schema();
    let whole = matches!(&ready.star.output, Output::Groups(aggregates) if aggregates.finish);
    let worker = Worker::new(ready.clone(), schema.clone(), partition, &context)?;
    let begin = RowSource::Star(Box::new(worker));
    let decoded = rows_on_the_way(&context);
    let ran = ready.ran.clone();
    let batches = futures::stream::try_unfold(begin, move |mut source| {
        let (original, context, ran) = (original.clone(), context.clone(), ran.clone());
        async move {
            if let RowSource::Star(worker) = &mut source {
                match worker.next().await {
                    Err(Error::Query(error)) if whole && is_shortage(&error) => {
                        tracing::debug!(%error, "a star pipeline begins again as its original plan");
                        let stream = original.execute(partition, context);
                        source = RowSource::Original(stream.map_err(Error::from_query)?);
                    }
                    batch => {
                        let batch = batch?;
                        if batch.is_none() {
                            ran.note_end();
                        }
                        return Ok(batch.map(|batch| (batch, source)));
                    }
                }
            }
            let RowSource::Original(stream) = &mut source else {
                return Ok(None);
            };
            let batch = stream.next().await.transpose();
            Ok::<_, Error>(
                batch
                    .map_err(Error::from_query)?
                    .map(|batch| (batch, source)),
            )
        }
    });
    Ok(Box::pin(ScanStream::new(
        batches.boxed(),
        ready.queue.clone(),
        schema,
        metrics,
        ready.star.scan.env.observers.clone(),
        decoded,
    )))
}

impl ExecutionPlan for StarPipelineExec {
    fn name(&self) -> &str {
        "StarPipelineExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.star.joins.iter().map(|join| &join.build).collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        if children.len() != self.star.joins.len() {
            return internal_err!(
                "{} children for {} look-ups",
                children.len(),
                self.star.joins.len()
            );
        }
        let mut joins = self.star.joins.clone();
        for (join, child) in joins.iter_mut().zip(children) {
            let star = child.downcast_ref::<Self>();
            join.lineage = star.map(|star| star.lineage.clone());
            join.build = child;
        }
        let star = Star {
            scan: self.star.scan.clone(),
            joins,
            narrow: self.star.narrow.clone(),
            filters: self.star.filters.clone(),
            output: match &self.star.output {
                Output::Rows(exprs) => Output::Rows(exprs.clone()),
                Output::Groups(aggregates) => Output::Groups(aggregates.clone()),
            },
        };
        Ok(Arc::new(Self::new(Arc::new(star), self.original.clone())))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> QueryResult<TreeNodeRecursion>,
    ) -> QueryResult<TreeNodeRecursion> {
        let dynamic = self.star.scan.dynamic_filters().iter();
        let dynamic = dynamic.map(|filter| &filter.expr);
        let own = self.star.narrow.exprs.iter().map(|each| &each.expr);
        for expr in dynamic.chain(own) {
            if f(expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let preparation = self.preparation(partition, &context);
        let metrics = ScanMetrics::new(&self.metrics, partition, self.reported.clone());
        let (schema, original) = (self.schema(), self.original.clone());
        let stream = async move {
            let prepared = preparation.await.map_err(DataFusionError::Shared)?;
            match prepared.as_ref() {
                // Workers beyond those that may read the table's shelf together have nothing to do.
                Prepared::Ready(ready) if partition >= ready.readers() => {
                    Ok(Box::pin(EmptyRecordBatchStream::new(original.schema())) as _)
                }
                Prepared::Ready(ready) => open(ready, original, partition, context, metrics),
                Prepared::Fallback(_) => original.execute(partition, context),
            }
        };
        let batches = futures::stream::once(stream).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> QueryResult<Arc<Statistics>> {
        if let (None, Some(known)) = (args.partition(), self.statistics.get()) {
            return Ok(known.clone());
        }
        if args.partition().is_some() {
            return StatisticsContext::default().compute(self.original.as_ref(), args);
        }
        let statistics = expected(&self.original)?;
        self.statistics.set(statistics.clone()).ok();
        Ok(statistics)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

impl fmt::Debug for StarPipelineExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StarPipelineExec")
            .field("scan", &self.star.scan)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for StarPipelineExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let star = &self.star;
        let outcome = self.outcome.get();
        // In a tree a part each line.
        let (start, end, next) = match format {
            DisplayFormatType::TreeRender => ("", "", "\n"),
            _ => ("StarPipelineExec: ", "]", ", "),
        };
        let open = if end.is_empty() { "=" } else { "=[" };
        let scan = match outcome {
            Some(Outcome::Ran(queue, _)) => {
                let plan = &queue.plan;
                star.scan.described(&plan.access, &plan.outcome)
            }
            Some(Outcome::Original(_)) | None => star.scan.planned(),
        };
        let scan = scan.join(next);
        let scan = match format {
            DisplayFormatType::TreeRender => scan.trim_start_matches("table="),
            _ => &scan,
        };
        write!(f, "{start}scan{open}{scan}{end}")?;
        if !star.joins.is_empty() {
            write!(f, "{next}look-ups{open}{}{end}", star.forecast())?;
        }
        for filter in &star.filters {
            write!(f, "{next}filter={}", filter.expr)?;
        }
        if let Output::Groups(aggregates) = &star.output {
            let names: Vec<&str> = aggregates
                .functions
                .iter()
                .map(|each| each.name())
                .collect();
            let step = if aggregates.finish {
                "whole"
            } else {
                "partial"
            };
            let by = match &aggregates.keys {
                Keys::Nothing => "one group",
                Keys::Builds(_) => "groups numbered by build rows",
                Keys::Values(_) => "groups hashed",
            };
            let names = names.join(", ");
            write!(f, "{next}aggregates{open}{names}{end} ({step}), {by}")?;
        }
        match outcome {
            Some(Outcome::Ran(queue, ran)) => {
                let throughput = queue.run().describe();
                write!(f, "{next}ran{open}{}{end}, {throughput}", ran.describe())
            }
            Some(Outcome::Original(reason)) => write!(f, "{next}ran the original plan: {reason}"),
            None => Ok(()),
        }
    }
}
