//! `SpillingSortExec`: all rows of a partition in order, whatever the memory.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::internal_err;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};
use hotshelf_operators::sort::{SortOptions, SortStats, Sorted, Sorter};
use hotshelf_operators::spill::SpillFolder;
use hotshelf_operators::{Environment, OperatorError, Stop};

use super::keys::SortColumns;
use super::memory::PoolBroker;
use crate::error::Error;

/// Rows are given to the sort in pieces of this many rows or bytes: each piece may be sorted and written, and
/// is worked on where blocking is allowed.
const PIECE_ROWS: usize = 32_768;
const PIECE_BYTES: usize = 1 << 20;

/// DataFusion's operator, which says what comes in and out, and Hotshelf's way to sort.
#[derive(Clone)]
pub(crate) struct SpillingSortExec {
    sort: SortExec,
    metrics: ExecutionPlanMetricsSet,
}

impl SpillingSortExec {
    /// In place of a sort of all rows. `None`: a sort of the first rows only, or of keys that cannot be compared as
    /// bytes.
    pub fn replacing(sort: &SortExec) -> QueryResult<Option<Self>> {
        if sort.fetch().is_some() {
            return Ok(None);
        }
        let columns = SortColumns::new(sort.expr(), sort.input().schema())?;
        Ok(columns.are_comparable().then(|| Self {
            sort: sort.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn with_child(&self, child: Arc<dyn ExecutionPlan>) -> Self {
        let partitioned = self.sort.preserve_partitioning();
        let sort = SortExec::new(self.sort.expr().clone(), child);
        Self {
            sort: sort.with_preserve_partitioning(partitioned),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn environment(context: &TaskContext) -> QueryResult<Environment> {
        let Some(spill) = context.session_config().get_extension::<SpillFolder>() else {
            return internal_err!("a session without a folder for what does not fit");
        };
        Ok(Environment {
            broker: Arc::new(PoolBroker(context.memory_pool().clone())),
            spill,
            stop: Stop::default(),
        })
    }
}

impl ExecutionPlan for SpillingSortExec {
    fn name(&self) -> &str {
        "SpillingSortExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.sort.properties()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.sort.input_distribution_requirements()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![self.sort.input()]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> QueryResult<TreeNodeRecursion>,
    ) -> QueryResult<TreeNodeRecursion> {
        self.sort.apply_expressions(f)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(child), true) => Ok(Arc::new(self.with_child(child))),
            _ => internal_err!("a sort has one child"),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let input = self.sort.input().execute(partition, context.clone())?;
        let is_sorted = self.sort.input().equivalence_properties();
        if is_sorted.ordering_satisfy(self.sort.expr().clone())? {
            return Ok(input);
        }
        let columns = Arc::new(SortColumns::new(self.sort.expr(), input.schema())?);
        let options = SortOptions {
            keys: columns.keys.clone(),
            batch_row_count: context.session_config().batch_size(),
            ..SortOptions::default()
        };
        let environment = Self::environment(&context)?;
        let stop = StopWhenDropped(environment.stop.clone());
        let name = format!("Sort[{partition}]");
        let sorter = Sorter::new(&environment, &name, columns.schema.clone(), options);
        let work = Work {
            columns: columns.clone(),
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        let metrics = (self.metrics.clone(), partition);
        let sorted = async move {
            let sorted = work.sort(input, sorter.map_err(failed)?).await?;
            note(sorted.stats(), &metrics.0, metrics.1);
            Ok::<_, DataFusionError>(work.batches(sorted, stop))
        };
        let batches = futures::stream::once(sorted).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// What the steps of one partition's sort have in common.
struct Work {
    columns: Arc<SortColumns>,
    baseline: BaselineMetrics,
}

impl Work {
    /// Takes all rows. Few rows are sorted at once, more where blocking is allowed.
    async fn sort(
        &self,
        mut input: SendableRecordBatchStream,
        mut sorter: Sorter,
    ) -> QueryResult<Sorted> {
        let mut piece = Vec::new();
        let (mut rows, mut bytes, mut is_small) = (0, 0, true);
        while let Some(batch) = input.next().await.transpose()? {
            rows += batch.num_rows();
            bytes += batch.get_array_memory_size();
            piece.push(self.columns.add(batch)?);
            if rows >= PIECE_ROWS || bytes >= PIECE_BYTES {
                let piece = std::mem::take(&mut piece);
                let elapsed = self.baseline.elapsed_compute().clone();
                let push = move || {
                    let _timer = elapsed.timer();
                    push_all(&mut sorter, piece).map(|()| sorter)
                };
                sorter = blocking(push).await?;
                (rows, bytes, is_small) = (0, 0, false);
            }
        }
        drop(input);
        let elapsed = self.baseline.elapsed_compute().clone();
        let finish = move || {
            let _timer = elapsed.timer();
            push_all(&mut sorter, piece)?;
            sorter.finish()
        };
        match is_small {
            true => finish().map_err(failed),
            false => blocking(finish).await,
        }
    }

    /// The rows in order. Those that were spilled are read where blocking is allowed.
    fn batches(
        self,
        sorted: Sorted,
        stop: StopWhenDropped,
    ) -> impl futures::Stream<Item = QueryResult<RecordBatch>> {
        let is_spilled = sorted.stats().run_count > 0;
        futures::stream::try_unfold(
            (self, sorted, stop),
            move |(work, mut sorted, stop)| async move {
                let elapsed = work.baseline.elapsed_compute().clone();
                let next = move || {
                    let _timer = elapsed.timer();
                    sorted.next_batch().map(|batch| (batch, sorted))
                };
                let (batch, sorted) = match is_spilled {
                    true => blocking(next).await?,
                    false => next().map_err(failed)?,
                };
                let Some(batch) = batch else {
                    return Ok(None);
                };
                work.baseline.output_rows().add(batch.num_rows());
                let batch = work.columns.remove(batch)?;
                Ok(Some((batch, (work, sorted, stop))))
            },
        )
    }
}

fn push_all(sorter: &mut Sorter, piece: Vec<RecordBatch>) -> Result<(), OperatorError> {
    piece.into_iter().try_for_each(|batch| sorter.push(batch))
}

/// Runs work that may wait for the device.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OperatorError> + Send + 'static,
) -> QueryResult<T> {
    let done = SpawnedTask::spawn_blocking(work).join_unwind().await;
    done.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?
        .map_err(failed)
}

fn failed(error: OperatorError) -> DataFusionError {
    Error::from(error).into()
}

/// What EXPLAIN ANALYZE shows.
fn note(stats: SortStats, metrics: &ExecutionPlanMetricsSet, partition: usize) {
    let count = |name: &'static str, value: u64| {
        let counter = MetricBuilder::new(metrics).counter(name, partition);
        counter.add(value as usize);
    };
    count("spill_count", stats.run_count);
    count("merge_count", stats.merge_count);
    let peak = MetricBuilder::new(metrics).gauge("peak_mem_used", partition);
    peak.set_max(stats.used_bytes_max as usize);
}

/// Ends a sort whose rows are not wanted any more, also in the middle of its work.
struct StopWhenDropped(Stop);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.raise();
    }
}

impl fmt::Debug for SpillingSortExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sort.fmt(f)
    }
}

impl DisplayAs for SpillingSortExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => self.sort.fmt_as(format, f),
            _ => write!(
                f,
                "SpillingSortExec: expr=[{}], preserve_partitioning=[{}]",
                self.sort.expr(),
                self.sort.preserve_partitioning()
            ),
        }
    }
}
