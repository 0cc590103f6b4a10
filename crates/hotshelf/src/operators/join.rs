//! `SpillingHashJoinExec`: a hash join of any size, whatever the memory.

mod key_ranges;
mod key_sets;
mod listeners;
mod rest;
mod small_batches;
mod spec;
mod stream;

use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::limit::LimitStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::{StreamExt, TryFutureExt, TryStreamExt};

use super::Reason;
use super::original::{as_original, shown_as_original};
use super::work::{Pieces, Streams, handed_on};
use key_ranges::KeyRanges;
use spec::Spec;
use stream::{Build, Built, ProbeSide};

use crate::begun::Begun;
use crate::past_runs::ExpectedJoin;

/// One build serves all partitions of the probe side, and its failure too.
#[derive(Clone)]
struct SharedBuild {
    built: Shared<BoxFuture<'static, Result<Built, Arc<DataFusionError>>>>,
    streams: Streams,
}

/// DataFusion's operator, which says what comes in and out, and Hotshelf's way to join.
pub(crate) struct SpillingHashJoinExec {
    /// A `HashJoinExec`.
    original: Arc<dyn ExecutionPlan>,
    spec: Spec,
    key_ranges: Option<Arc<KeyRanges>>,
    /// What the order of joins was chosen for.
    expected: Option<ExpectedJoin>,
    metrics: ExecutionPlanMetricsSet,
    begun: Begun<SharedBuild>,
}

impl SpillingHashJoinExec {
    /// In place of a hash join, if that is one that it can replace.
    pub fn replacing(original: &Arc<dyn ExecutionPlan>) -> QueryResult<Option<Self>> {
        let join = original.downcast_ref::<HashJoinExec>();
        Ok(match join {
            Some(join) => Self::of(original, join)?.ok(),
            None => None,
        })
    }

    /// In place of a hash join, or why not.
    fn of(
        original: &Arc<dyn ExecutionPlan>,
        join: &HashJoinExec,
    ) -> QueryResult<Result<Self, Reason>> {
        if original.output_ordering().is_some() {
            return Ok(Err(
                "it keeps an order, and what it holds is expected to fit in memory",
            ));
        }
        if *join.partition_mode() == PartitionMode::Auto {
            return Ok(Err("it is not known which partitions it joins"));
        }
        let spec = match Spec::of(join)? {
            Ok(spec) => spec,
            Err(reason) => return Ok(Err(reason)),
        };
        Ok(Ok(Self {
            original: original.clone(),
            key_ranges: KeyRanges::of(join, &spec)?.map(Arc::new),
            spec,
            expected: None,
            metrics: ExecutionPlanMetricsSet::new(),
            begun: Begun::default(),
        }))
    }

    /// Why a hash join is not replaced, for EXPLAIN.
    pub fn why_left(original: &Arc<dyn ExecutionPlan>, join: &HashJoinExec) -> QueryResult<Reason> {
        Ok(match Self::of(original, join)? {
            Ok(_) => "its keys have texts, and what it holds is expected to fit in memory",
            Err(reason) => reason,
        })
    }

    /// The same where this is expected.
    pub fn expecting(self, expected: Option<ExpectedJoin>) -> Self {
        Self { expected, ..self }
    }

    /// What [`Self::expecting`] said.
    pub fn expected(&self) -> Option<&ExpectedJoin> {
        self.expected.as_ref()
    }

    /// The one in whose place this is.
    fn like(self, before: &Self) -> Self {
        self.expecting(before.expected.clone())
    }

    /// The join of the engine in whose place it is.
    pub fn join(&self) -> QueryResult<&HashJoinExec> {
        match self.original.downcast_ref::<HashJoinExec>() {
            Some(join) => Ok(join),
            None => internal_err!("a spilling join in place of no hash join"),
        }
    }

    /// Whether Hotshelf joins in the place of a hash join.
    pub fn can_replace(join: &HashJoinExec) -> QueryResult<bool> {
        Ok(Spec::of(join)?.is_ok())
    }

    /// Whether it does so as quickly where memory is plenty: keys with texts are copied, which the engine's join does
    /// not.
    pub fn is_quick(join: &HashJoinExec) -> QueryResult<bool> {
        spec::has_narrow_keys(join)
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
        let begin = || -> QueryResult<SharedBuild> {
            let build = Build::begin(
                &self.spec,
                self.key_ranges.clone(),
                context,
                &self.metrics,
                (partition, probers),
            )?;
            let streams = build.streams().clone();
            let inputs = inputs(join.left(), part, context)?;
            let baseline = BaselineMetrics::new(&self.metrics, partition);
            let built = async move { build.run(inputs, &baseline).await };
            let built = built.map_err(Arc::new).boxed().shared();
            Ok(SharedBuild { built, streams })
        };
        match part {
            Some(_) => begin(),
            None => self.begun.share(partition, probers, begin),
        }
    }
}

/// The rows of a part of the build side, or of all of it as they come, not yet in one partition.
fn inputs(
    left: &Arc<dyn ExecutionPlan>,
    part: Option<usize>,
    context: &Arc<TaskContext>,
) -> QueryResult<Vec<SendableRecordBatchStream>> {
    let coalesced = left.downcast_ref::<CoalescePartitionsExec>();
    let coalesced = coalesced.filter(|coalesced| part.is_none() && coalesced.fetch().is_none());
    let Some(coalesced) = coalesced else {
        return Ok(vec![left.execute(part.unwrap_or(0), context.clone())?]);
    };
    let input = coalesced.input();
    let parts = 0..input.output_partitioning().partition_count();
    parts
        .map(|part| input.execute(part, context.clone()))
        .collect()
}

impl ExecutionPlan for SpillingHashJoinExec {
    fn name(&self) -> &str {
        "SpillingHashJoinExec"
    }

    as_original!(Self::like);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let join = self.join()?;
        let SharedBuild { built, streams } = self.build(partition, &context)?;
        let limited = BaselineMetrics::new(&self.metrics, partition);
        let side = ProbeSide {
            // Opened before any stream can end.
            stream: streams.open(),
            metrics: self.metrics.clone(),
            partition,
            threads: context.session_config().target_partitions(),
            fetch: self.original.fetch(),
            input: Pieces::new(
                join.right().execute(partition, context.clone())?,
                self.spec.right.clone(),
                &context,
            ),
        };
        let joined = async move {
            let built = built.await.map_err(DataFusionError::Shared)?;
            Ok::<_, DataFusionError>(built.probe(side))
        };
        let batches = futures::stream::once(joined).try_flatten().boxed();
        let batches = handed_on(self.schema(), batches, &context);
        Ok(match self.original.fetch() {
            Some(rows) => Box::pin(LimitStream::new(batches, 0, Some(rows), limited)),
            None => batches,
        })
    }
}

shown_as_original!(SpillingHashJoinExec);
