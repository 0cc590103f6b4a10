//! `SpillingSortExec`: the rows of a partition in order, or many of the first ones, whatever the memory.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::limit::LimitStream;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties,
};
use futures::TryStreamExt;
use futures::stream::try_unfold;
use hotshelf_operators::OperatorError;
use hotshelf_operators::sort::{SortKey, SortOptions, SortStats, Sorted, Sorter};

use super::columns::{Columns, are_comparable};
use super::threshold::Threshold;
use super::work::{Pieces, Streams, blocking, environment, failed, handed_on};

/// More of the first rows are found by sorting and cutting; fewer by the engine's heap.
const HEAP_ROWS_MAX: usize = 256;

/// DataFusion's operator, which says what comes in and out, and Hotshelf's way to sort.
#[derive(Clone)]
pub(crate) struct SpillingSortExec {
    sort: SortExec,
    threshold: Option<Arc<Threshold>>,
    metrics: ExecutionPlanMetricsSet,
}

impl SpillingSortExec {
    /// In place of a sort of all rows, or of many first ones. `None`: a sort of few first rows, or of keys that cannot
    /// be compared as bytes.
    pub fn replacing(sort: &SortExec) -> QueryResult<Option<Self>> {
        if sort.fetch().is_some_and(|fetch| fetch <= HEAP_ROWS_MAX) {
            return Ok(None);
        }
        let mut columns = Columns::of(sort.input().schema());
        let keys = keys(sort.expr(), &mut columns)?;
        let types = keys.iter().map(|key| columns.data_type(key.column));
        Ok(are_comparable(types).then(|| Self {
            sort: sort.clone(),
            threshold: Threshold::of(sort),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    /// DataFusion's operator.
    pub(super) fn original(&self) -> &SortExec {
        &self.sort
    }

    fn with_child(&self, child: Arc<dyn ExecutionPlan>) -> QueryResult<Self> {
        let partitioned = self.sort.preserve_partitioning();
        let sort = SortExec::new(self.sort.expr().clone(), child);
        let sort = sort
            .with_preserve_partitioning(partitioned)
            .with_fetch(self.sort.fetch());
        Ok(Self {
            sort: match &self.threshold {
                Some(threshold) => sort.with_dynamic_filter_expr(threshold.filter().clone())?,
                None => sort,
            },
            threshold: self.threshold.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Whether the rows that come in are in order already.
    pub(super) fn is_sorted(&self) -> QueryResult<bool> {
        let input = self.sort.input().equivalence_properties();
        input.ordering_satisfy(self.sort.expr().clone())
    }

    /// The columns of its input, and how they are sorted.
    pub(super) fn sorted_by(&self, context: &TaskContext) -> QueryResult<(Columns, SortOptions)> {
        let mut columns = Columns::of(self.sort.input().schema());
        let options = SortOptions {
            keys: keys(self.sort.expr(), &mut columns)?,
            batch_row_count: context.session_config().batch_size(),
            limit: self.sort.fetch(),
            ..SortOptions::default()
        };
        Ok((columns, options))
    }

    /// The work of a partition.
    pub(super) fn work(
        &self,
        columns: &Arc<Columns>,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
    ) -> SortWork {
        SortWork {
            columns: columns.clone(),
            threshold: self.threshold.clone(),
            baseline: BaselineMetrics::new(metrics, partition),
        }
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

    fn fetch(&self) -> Option<usize> {
        self.sort.fetch()
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
            (Some(child), true) => Ok(Arc::new(self.with_child(child)?)),
            _ => internal_err!("a sort has one child"),
        }
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.sort.dynamic_expressions_produced()
    }

    fn reset_state(self: Arc<Self>) -> QueryResult<Arc<dyn ExecutionPlan>> {
        if let Some(threshold) = &self.threshold {
            threshold.reset()?;
        }
        Ok(Arc::new(self.with_child(self.sort.input().clone())?))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let input = self.sort.input().execute(partition, context.clone())?;
        if self.is_sorted()? {
            return Ok(match self.sort.fetch() {
                Some(_) => {
                    let baseline = BaselineMetrics::new(&self.metrics, partition);
                    Box::pin(LimitStream::new(input, 0, self.sort.fetch(), baseline))
                }
                None => input,
            });
        }
        let (columns, options) = self.sorted_by(&context)?;
        let columns = Arc::new(columns);
        let environment = environment(&context, &self.metrics, partition)?;
        let name = format!("Sort[{partition}]");
        let sorter =
            Sorter::new(&environment, &name, columns.schema().clone(), options).map_err(failed)?;
        let stream = Streams::new(environment.stop.clone()).open();
        let work = self.work(&columns, &self.metrics, partition);
        let input = Pieces::new(input, columns, &context);
        let metrics = self.metrics.clone();
        let sorted = async move {
            let sorted = work.sort(input, sorter).await?;
            note(sorted.stats(), &metrics, partition);
            let rest = (work, stream, sorted);
            let batches = try_unfold(rest, |(work, mut stream, sorted)| async move {
                let next = work.next(sorted).await?;
                if next.is_none() {
                    stream.end();
                }
                Ok(next.map(|(batch, sorted)| (batch, (work, stream, sorted))))
            });
            Ok::<_, DataFusionError>(batches)
        };
        let batches = futures::stream::once(sorted).try_flatten();
        Ok(handed_on(self.schema(), batches, &context))
    }

    super::statistics_of!(sort);

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// What a sort compares.
fn keys(ordering: &LexOrdering, columns: &mut Columns) -> QueryResult<Vec<SortKey>> {
    let key = |sort: &PhysicalSortExpr| {
        Ok(SortKey {
            column: columns.number_of(&sort.expr)?,
            options: sort.options,
        })
    };
    ordering.iter().map(key).collect()
}

/// What the steps of one partition's sort have in common.
pub(super) struct SortWork {
    pub columns: Arc<Columns>,
    threshold: Option<Arc<Threshold>>,
    pub baseline: BaselineMetrics,
}

impl SortWork {
    /// Takes all rows.
    async fn sort(&self, input: Pieces, sorter: Sorter) -> QueryResult<Sorted> {
        let (sorted, _) = self.fill(input, sorter, Sorter::finish).await?;
        Ok(sorted)
    }

    /// Gives all rows to a sorter, and does the last work with it. Few rows are worked on at once, more where blocking
    /// is allowed. Returns also whether they were few.
    pub async fn fill<T: Send + 'static>(
        &self,
        mut input: Pieces,
        mut sorter: Sorter,
        last_work: impl FnOnce(Sorter) -> Result<T, OperatorError> + Send + 'static,
    ) -> QueryResult<(T, bool)> {
        let mut is_small = true;
        let last = loop {
            let piece = input.next().await?;
            if piece.is_last {
                break piece.batches;
            }
            let elapsed = self.baseline.elapsed_compute().clone();
            let threshold = self.threshold.clone();
            let push = move || {
                let _timer = elapsed.timer();
                push_all(&mut sorter, piece.batches)?;
                if let Some(threshold) = threshold {
                    threshold.take(&sorter)?;
                }
                Ok(sorter)
            };
            sorter = blocking(push).await?;
            is_small = false;
        };
        drop(input);
        let elapsed = self.baseline.elapsed_compute().clone();
        let finish = move || {
            let _timer = elapsed.timer();
            push_all(&mut sorter, last)?;
            last_work(sorter)
        };
        let done = match is_small {
            true => finish().map_err(failed)?,
            false => blocking(finish).await?,
        };
        Ok((done, is_small))
    }

    /// The next rows in order. Those that were spilled are read where blocking is allowed.
    async fn next(&self, mut sorted: Sorted) -> QueryResult<Option<(RecordBatch, Sorted)>> {
        let is_spilled = sorted.stats().run_count > 0;
        let elapsed = self.baseline.elapsed_compute().clone();
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
        self.baseline.output_rows().add(batch.num_rows());
        Ok(Some((self.columns.remove(batch)?, sorted)))
    }
}

fn push_all(sorter: &mut Sorter, piece: Vec<RecordBatch>) -> Result<(), OperatorError> {
    piece.into_iter().try_for_each(|batch| sorter.push(batch))
}

/// What EXPLAIN ANALYZE shows.
pub(super) fn note(stats: SortStats, metrics: &ExecutionPlanMetricsSet, partition: usize) {
    let count = |name: &'static str, value: u64| {
        let counter = MetricBuilder::new(metrics).counter(name, partition);
        counter.add(value as usize);
    };
    count("spill_count", stats.run_count);
    count("merge_count", stats.merge_count);
    let peak = MetricBuilder::new(metrics).gauge("peak_mem_used", partition);
    peak.set_max(stats.used_bytes_max as usize);
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
                "SpillingSortExec: {}expr=[{}], preserve_partitioning=[{}]",
                self.fetch()
                    .map_or(String::new(), |fetch| format!("fetch={fetch}, ")),
                self.sort.expr(),
                self.sort.preserve_partitioning()
            ),
        }
    }
}
