//! `SpillingHashJoinExec`: a hash join of any size, whatever the memory.

mod key_ranges;
mod spec;
mod stream;

use std::sync::{Arc, OnceLock};

use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::limit::LimitStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::{StreamExt, TryFutureExt, TryStreamExt};

use super::original::{as_original, shown_as_original};
use key_ranges::KeyRanges;
use spec::Spec;
use stream::{Build, Built};

/// One build serves all partitions of the probe side, and its failure too.
type SharedBuild = Shared<BoxFuture<'static, Result<Built, Arc<DataFusionError>>>>;

/// DataFusion's operator, which says what comes in and out, and Hotshelf's way to join.
pub(crate) struct SpillingHashJoinExec {
    /// A `HashJoinExec`.
    original: Arc<dyn ExecutionPlan>,
    spec: Spec,
    key_ranges: Option<Arc<KeyRanges>>,
    metrics: ExecutionPlanMetricsSet,
    build: OnceLock<SharedBuild>,
}

impl SpillingHashJoinExec {
    /// In place of a hash join. `None`: another operator, or a join that has to keep an order, or types that cannot be
    /// kept as bytes.
    pub fn replacing(original: &Arc<dyn ExecutionPlan>) -> QueryResult<Option<Self>> {
        let Some(join) = original.downcast_ref::<HashJoinExec>() else {
            return Ok(None);
        };
        if original.output_ordering().is_some() || *join.partition_mode() == PartitionMode::Auto {
            return Ok(None);
        }
        let Some(spec) = Spec::of(join)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            original: original.clone(),
            key_ranges: KeyRanges::of(join, &spec)?.map(Arc::new),
            spec,
            metrics: ExecutionPlanMetricsSet::new(),
            build: OnceLock::new(),
        }))
    }

    fn join(&self) -> QueryResult<&HashJoinExec> {
        match self.original.downcast_ref::<HashJoinExec>() {
            Some(join) => Ok(join),
            None => internal_err!("a spilling join in place of no hash join"),
        }
    }

    /// What builds for a partition of the probe side: its own part of the build side, or all of it for all.
    fn build(&self, partition: usize, context: &Arc<TaskContext>) -> QueryResult<SharedBuild> {
        let join = self.join()?;
        let part = match join.partition_mode() {
            PartitionMode::Partitioned => Some(partition),
            _ => None,
        };
        let probers = match part {
            Some(_) => 1,
            None => join.right().output_partitioning().partition_count(),
        };
        let begin = || {
            let key_ranges = self.key_ranges.clone();
            let begun = Build::begin(&self.spec, key_ranges, context, probers);
            let (input, context) = (join.left().clone(), context.clone());
            let baseline = BaselineMetrics::new(&self.metrics, partition);
            async move {
                let input = input.execute(part.unwrap_or(0), context)?;
                begun?.run(input, &baseline).await
            }
            .map_err(Arc::new)
            .boxed()
            .shared()
        };
        Ok(match part {
            Some(_) => begin(),
            None => self.build.get_or_init(begin).clone(),
        })
    }
}

impl ExecutionPlan for SpillingHashJoinExec {
    fn name(&self) -> &str {
        "SpillingHashJoinExec"
    }

    as_original!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let join = self.join()?;
        let build = self.build(partition, &context)?;
        let probe = join.right().execute(partition, context)?;
        let columns = self.spec.right.clone();
        let metrics = self.metrics.clone();
        let limited = BaselineMetrics::new(&self.metrics, partition);
        let joined = async move {
            let built = build.await.map_err(DataFusionError::Shared)?;
            Ok::<_, DataFusionError>(built.probe(probe, columns, metrics, partition))
        };
        let batches = futures::stream::once(joined).try_flatten().boxed();
        let batches = Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches));
        Ok(match self.original.fetch() {
            Some(rows) => Box::pin(LimitStream::new(batches, 0, Some(rows), limited)),
            None => batches,
        })
    }
}

shown_as_original!(SpillingHashJoinExec);
