//! `SharedSortExec`: the rows of all partitions in one order, which all workers put them in.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Statistics;
use datafusion::common::internal_err;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};
use futures::future::{ready, try_join_all};
use futures::stream::{BoxStream, try_unfold};
use futures::{Stream, StreamExt, TryStreamExt};
use hotshelf_operators::sort::{Distributed, Portion, Ranges, SortedRanges, Sorter, Together};

use super::sort::{SortWork, SpillingSortExec, note};
use super::work::{Pieces, Streams, blocking, environment, failed, handed_on, joined};

/// Sorts that do not merge their rows, and DataFusion's operator that would.
#[derive(Clone)]
pub(crate) struct SharedSortExec {
    sort: SpillingSortExec,
    /// A `SortPreservingMergeExec` of `sort`, which says what comes out.
    merge: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

type Batches = BoxStream<'static, QueryResult<RecordBatch>>;

impl SharedSortExec {
    /// In place of a merge of sorts. `None`: another operator.
    pub fn replacing(node: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let merge = node.downcast_ref::<SortPreservingMergeExec>()?;
        let sort = merge.input().downcast_ref::<SpillingSortExec>()?;
        let is_one_order = merge.expr() == sort.original().expr() && merge.fetch() == sort.fetch();
        let input = sort.original().input().output_partitioning();
        let is_shared = sort.original().preserve_partitioning() && input.partition_count() > 1;
        (is_one_order && is_shared).then(|| Self {
            sort: sort.clone(),
            merge: node.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    fn with_sort(&self, sort: Arc<dyn ExecutionPlan>) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let merge = over(self.merge.clone(), vec![sort])?;
        Ok(match Self::replacing(&merge) {
            Some(own) => Arc::new(own),
            None => merge,
        })
    }
}

/// The same operator over other children.
fn over(
    operator: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    operator.replace_children(children, options)
}

impl ExecutionPlan for SharedSortExec {
    fn name(&self) -> &str {
        "SharedSortExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.merge.properties()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.merge.input_distribution_requirements()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn fetch(&self) -> Option<usize> {
        self.merge.fetch()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.sort.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> QueryResult<TreeNodeRecursion>,
    ) -> QueryResult<TreeNodeRecursion> {
        self.sort.apply_expressions(f)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        self.with_sort(over(Arc::new(self.sort.clone()), children)?)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.sort.dynamic_expressions_produced()
    }

    fn reset_state(self: Arc<Self>) -> QueryResult<Arc<dyn ExecutionPlan>> {
        self.with_sort(Arc::new(self.sort.clone()).reset_state()?)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        if self.sort.is_sorted()? || partition != 0 {
            return self.merge.execute(partition, context);
        }
        let (columns, options) = self.sort.sorted_by(&context)?;
        let columns = Arc::new(columns);
        let environment = environment(&context, &self.metrics, partition)?;
        let input = self.sort.original().input();
        let mut workers = Vec::new();
        for partition in 0..input.output_partitioning().partition_count() {
            let rows = input.execute(partition, context.clone())?;
            let name = format!("Sort[{partition}]");
            let schema = columns.schema().clone();
            let sorter = Sorter::new(&environment, &name, schema, options.clone());
            workers.push(Worker {
                input: Pieces::new(rows, columns.clone(), &context),
                sorter: sorter.map_err(failed)?,
                work: self.sort.work(&columns, &self.metrics, partition),
            });
        }
        let sharing = Sharing {
            work: self.sort.work(&columns, &self.metrics, 0),
            range_count_max: context.session_config().target_partitions() + 1,
            metrics: self.metrics.clone(),
        };
        let limit = self.fetch().unwrap_or(usize::MAX);
        let stream = Streams::new(environment.stop.clone()).open();
        let sorted = async move {
            let output_rows = sharing.work.baseline.output_rows().clone();
            let batches = sharing.sort(workers).await?;
            let rest = Some((batches, stream, limit));
            let batches = try_unfold(rest, |rest| async move {
                let Some((mut batches, mut stream, remaining)) = rest else {
                    return Ok(None);
                };
                let Some(batch) = batches.try_next().await? else {
                    stream.end();
                    return Ok(None);
                };
                let batch = batch.slice(0, remaining.min(batch.num_rows()));
                let remaining = remaining - batch.num_rows();
                // At the limit, dropping the stream stops what is under way.
                let rest = (remaining > 0).then_some((batches, stream, remaining));
                Ok(Some((batch, rest)))
            });
            let counted = batches.inspect_ok(move |batch| output_rows.add(batch.num_rows()));
            Ok::<_, DataFusionError>(counted)
        };
        let batches = futures::stream::once(sorted).try_flatten();
        Ok(handed_on(self.schema(), batches, &context))
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> QueryResult<Arc<Statistics>> {
        self.sort.statistics_from_inputs(inputs, args)
    }

    fn child_stats_requests(&self, _partition: Option<usize>) -> Vec<ChildStats> {
        // All partitions become one.
        vec![ChildStats::At(None)]
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The sort of one partition's rows.
struct Worker {
    input: Pieces,
    sorter: Sorter,
    work: SortWork,
}

impl Worker {
    /// Takes all rows. Returns also whether they were few.
    async fn fill(self) -> QueryResult<(Sorter, bool)> {
        let end = |mut sorter: Sorter| sorter.end().map(|()| sorter);
        self.work.fill(self.input, self.sorter, end).await
    }
}

/// A sorter without rows in memory: they are merged with those of others, which were spilled.
async fn spilled(mut sorter: Sorter) -> QueryResult<Sorter> {
    blocking(move || sorter.spill_rest().map(|()| sorter)).await
}

/// What is done when all partitions have ended.
struct Sharing {
    work: SortWork,
    /// Ranges that are sorted, or wait to be handed on: while one waits, the workers have others.
    range_count_max: usize,
    metrics: ExecutionPlanMetricsSet,
}

impl Sharing {
    async fn sort(self, workers: Vec<Worker>) -> QueryResult<Batches> {
        let tasks = workers.into_iter();
        let tasks: Vec<_> = tasks
            .map(|worker| SpawnedTask::spawn(worker.fill()))
            .collect();
        let filled = try_join_all(tasks.into_iter().map(|task| async { joined(task).await? }));
        let filled = filled.await?;
        let is_small = filled.iter().all(|(_, is_small)| *is_small);
        let sorters: Vec<Sorter> = filled.into_iter().map(|(sorter, _)| sorter).collect();
        let sorters = match sorters.iter().any(Sorter::has_spilled) {
            true => try_join_all(sorters.into_iter().map(spilled)).await?,
            false => sorters,
        };
        let mut sorters = sorters.into_iter();
        let Some(first) = sorters.next() else {
            return internal_err!("a sort of no partitions");
        };
        let others = sorters.collect();
        let elapsed = self.work.baseline.elapsed_compute().clone();
        let finish = move || {
            let _timer = elapsed.timer();
            first.finish_with(others)
        };
        let together = match is_small {
            true => finish().map_err(failed)?,
            false => blocking(finish).await?,
        };
        match together {
            Together::Held(portions) if is_small => self.small(portions),
            Together::Held(portions) => self.ranges(portions).await,
            Together::Merged(ranges) => {
                note(ranges.stats(), &self.metrics, 0);
                self.in_order(*ranges).await
            }
        }
    }

    /// Few rows, sorted at once.
    fn small(self, portions: Vec<Portion>) -> QueryResult<Batches> {
        let elapsed = self.work.baseline.elapsed_compute().clone();
        let _timer = elapsed.timer();
        let distributed = portions.into_iter().map(Portion::distribute);
        let ranges = self.divided(distributed.collect::<Result<_, _>>().map_err(failed)?)?;
        let rows = |range| ranges.rows(range).map_err(failed);
        let batches = (0..ranges.range_count()).map(rows);
        let batches = batches.collect::<QueryResult<Vec<_>>>()?.concat();
        Ok(self.handed_on(futures::stream::iter([Ok(batches)])))
    }

    /// Rows in memory, in ranges.
    async fn ranges(self, portions: Vec<Portion>) -> QueryResult<Batches> {
        let distribute = |portion: Portion| {
            let elapsed = self.work.baseline.elapsed_compute().clone();
            blocking(move || {
                let _timer = elapsed.timer();
                portion.distribute()
            })
        };
        let distributed = try_join_all(portions.into_iter().map(distribute)).await?;
        let ranges = self.divided(distributed)?;
        self.in_order(ranges).await
    }

    /// Ranges that workers put in order side by side.
    async fn in_order(self, mut ranges: impl Ranges + 'static) -> QueryResult<Batches> {
        let range_count_max = self.range_count_max;
        let reserved = blocking(move || {
            let at_once = ranges.reserve(range_count_max);
            Ok((ranges, at_once))
        });
        let (ranges, at_once) = reserved.await?;
        let ranges = Arc::new(ranges);
        let elapsed = self.work.baseline.elapsed_compute().clone();
        let sorted = futures::stream::iter(0..ranges.range_count()).map(move |range| {
            let (ranges, elapsed) = (ranges.clone(), elapsed.clone());
            blocking(move || {
                let _timer = elapsed.timer();
                ranges.rows(range)
            })
        });
        Ok(self.handed_on(sorted.buffered(at_once)))
    }

    fn divided(&self, distributed: Vec<Distributed>) -> QueryResult<SortedRanges> {
        let Some(ranges) = SortedRanges::new(distributed) else {
            return internal_err!("a sort of no partitions");
        };
        note(ranges.stats(), &self.metrics, 0);
        Ok(ranges)
    }

    fn handed_on(
        self,
        batches: impl Stream<Item = QueryResult<Vec<RecordBatch>>> + Send + 'static,
    ) -> Batches {
        let columns = self.work.columns;
        let batches = batches
            .map_ok(|batches| futures::stream::iter(batches.into_iter().map(Ok)))
            .try_flatten();
        batches
            .and_then(move |batch| ready(columns.remove(batch)))
            .boxed()
    }
}

impl fmt::Debug for SharedSortExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSortExec")
            .field("sort", &self.sort)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for SharedSortExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => self.merge.fmt_as(format, f),
            _ => {
                let fetch = self.fetch();
                let fetch = fetch.map_or(String::new(), |fetch| format!("fetch={fetch}, "));
                let sort = self.sort.original();
                write!(f, "SharedSortExec: {fetch}expr=[{}]", sort.expr())
            }
        }
    }
}
