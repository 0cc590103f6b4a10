//! `ExchangeExec`: rows from some partitions to others, whatever the memory.
//!
//! Takes the place of DataFusion's `RepartitionExec`, whose spilled rows can wait for each other forever
//! (`docs/upstream/repartition-that-waits.md`). Which row goes where is DataFusion's to say, so that both sides of a
//! join agree with all that relies on it.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock, OnceLock};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::internal_err;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, Gauge, MetricBuilder, Time,
};
use datafusion::physical_plan::repartition::{BatchPartitioner, RepartitionExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
};
use futures::stream::try_unfold;
use futures::{FutureExt, StreamExt};
use hotshelf_operators::Stop;
use hotshelf_operators::exchange::{Exchange, ExchangeStats, Taken};
use tokio::sync::Notify;

use super::original::as_original;
use super::work::{blocking, environment, failed, handed_on};
use crate::begun::Begun;
use crate::error::Error;

/// DataFusion's operator, which says what comes in and out, and Hotshelf's way to get it there.
pub(crate) struct ExchangeExec {
    /// A `RepartitionExec`.
    original: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
    /// It ends with the partitions.
    begun: Begun<Arc<Flow>>,
}

impl ExchangeExec {
    /// In place of a repartitioning. `None`: another operator, or one that merges sorted partitions.
    pub fn replacing(original: &Arc<dyn ExecutionPlan>) -> QueryResult<Option<Self>> {
        let Some(repartition) = original.downcast_ref::<RepartitionExec>() else {
            return Ok(None);
        };
        let merges = repartition.preserve_order()
            && repartition.input().output_partitioning().partition_count() > 1;
        Ok((!merges).then(|| Self {
            original: original.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
            begun: Begun::default(),
        }))
    }

    fn repartition(&self) -> QueryResult<&RepartitionExec> {
        match self.original.downcast_ref::<RepartitionExec>() {
            Some(repartition) => Ok(repartition),
            None => internal_err!("an exchange in place of no repartitioning"),
        }
    }

    /// What all partitions share.
    fn flow(&self, partition: usize, context: &Arc<TaskContext>) -> QueryResult<Arc<Flow>> {
        let repartition = self.repartition()?;
        let lanes = repartition.partitioning().partition_count();
        let begin = || Flow::begin(repartition, &self.metrics, context).map(Arc::new);
        self.begun.share(partition, lanes, begin)
    }
}

impl ExecutionPlan for ExchangeExec {
    fn name(&self) -> &str {
        "ExchangeExec"
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
        let flow = self.flow(partition, &context)?;
        let receiver = Receiver {
            flow,
            lane: partition,
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        let batches = try_unfold(receiver, |receiver| async move {
            let next = receiver.next().await?;
            Ok(next.map(|batch| (batch, receiver)))
        });
        Ok(handed_on(self.schema(), batches.boxed(), &context))
    }
}

impl fmt::Debug for ExchangeExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExchangeExec")
            .field("original", &self.original)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for ExchangeExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let Some(repartition) = self.original.downcast_ref::<RepartitionExec>() else {
            return self.original.fmt_as(format, f);
        };
        match format {
            DisplayFormatType::TreeRender => self.original.fmt_as(format, f),
            _ => write!(
                f,
                "ExchangeExec: partitioning={}, input_partitions={}",
                repartition.partitioning(),
                repartition.input().output_partitioning().partition_count()
            ),
        }
    }
}

type Tasks = Vec<SpawnedTask<()>>;

/// An exchange with its senders, who begin to work when a receiver first wants something.
struct Flow {
    exchange: Arc<Exchange>,
    arrivals: Arc<Arrivals>,
    /// Dropped with the last receiver, which ends them.
    senders: LazyLock<Tasks, Box<dyn FnOnce() -> Tasks + Send>>,
    stop: Stop,
    shown: Shown,
}

/// What EXPLAIN ANALYZE shows.
struct Shown {
    spill_count: Gauge,
    used_bytes_max: Gauge,
}

/// What wakes receivers and senders.
struct Arrivals {
    /// A lane has something new, or an end.
    lanes: Vec<Notify>,
    /// A lane has less.
    room: Notify,
    /// Why there will be nothing more.
    failure: OnceLock<Arc<DataFusionError>>,
}

/// One input, and where its rows go.
struct Sender {
    input: SendableRecordBatchStream,
    partitioner: BatchPartitioner,
    exchange: Arc<Exchange>,
    arrivals: Arc<Arrivals>,
}

impl Flow {
    fn begin(
        repartition: &RepartitionExec,
        metrics: &ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> QueryResult<Self> {
        let (input, partitioning) = (repartition.input(), repartition.partitioning());
        let senders = input.output_partitioning().partition_count();
        let lanes = partitioning.partition_count();
        let environment = environment(context, metrics, 0)?;
        let batch_rows = context.session_config().batch_size();
        let exchange = Exchange::new(
            &environment,
            "exchange",
            repartition.schema(),
            senders,
            lanes,
            batch_rows,
        );
        let exchange = Arc::new(exchange);
        let arrivals = Arc::new(Arrivals {
            lanes: (0..lanes).map(|_| Notify::new()).collect(),
            room: Notify::new(),
            failure: OnceLock::new(),
        });
        let sender = |number: usize| {
            let timer: Time = MetricBuilder::new(metrics).subset_time("repartition_time", number);
            Ok(Sender {
                input: input.execute(number, context.clone())?,
                partitioner: BatchPartitioner::try_new(
                    partitioning.clone(),
                    timer,
                    number,
                    senders,
                )?,
                exchange: exchange.clone(),
                arrivals: arrivals.clone(),
            })
        };
        let senders = (0..senders).map(sender).collect::<QueryResult<Vec<_>>>()?;
        let start = || {
            let senders = senders.into_iter();
            let tasks = senders.map(|sender| SpawnedTask::spawn(sender.run()));
            tasks.collect()
        };
        Ok(Self {
            exchange,
            arrivals,
            senders: LazyLock::new(Box::new(start)),
            stop: environment.stop,
            shown: Shown::new(metrics),
        })
    }
}

impl Shown {
    fn new(metrics: &ExecutionPlanMetricsSet) -> Self {
        let gauge = |name| MetricBuilder::new(metrics).global_gauge(name);
        Self {
            spill_count: gauge("spill_count"),
            used_bytes_max: gauge("peak_mem_used"),
        }
    }

    fn show(&self, stats: ExchangeStats) {
        self.spill_count.set_max(stats.spilled_batch_count as usize);
        self.used_bytes_max.set_max(stats.used_bytes_max as usize);
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.stop.raise();
    }
}

impl Arrivals {
    /// Waits until a receiver has nothing to do.
    async fn wait_for_room(&self, exchange: &Exchange) {
        loop {
            let mut taken = std::pin::pin!(self.room.notified());
            taken.as_mut().enable();
            if !exchange.is_full() {
                return;
            }
            taken.await;
        }
    }

    fn fail(&self, error: DataFusionError) {
        // The first error counts.
        let _ = self.failure.set(Arc::new(error));
        self.lanes.iter().for_each(Notify::notify_one);
    }
}

impl Sender {
    async fn run(mut self) {
        let sent = AssertUnwindSafe(self.send_all()).catch_unwind().await;
        let sent = sent.unwrap_or_else(|payload| {
            Err(Error::panicked("sharing out rows", payload.as_ref()).into())
        });
        if let Err(error) = sent {
            self.arrivals.fail(error);
        }
    }

    async fn send_all(&mut self) -> QueryResult<()> {
        while let Some(batch) = self.input.next().await.transpose()? {
            self.arrivals.wait_for_room(&self.exchange).await;
            let parts: Vec<(usize, RecordBatch)> = self
                .partitioner
                .partition_iter(batch)?
                .collect::<QueryResult<_>>()?;
            for (lane, part) in parts {
                let pushed = self.exchange.push(lane, part).map_err(failed)?;
                if pushed.has_arrived {
                    self.arrivals.lanes[lane].notify_one();
                }
                if pushed.is_crowded && self.exchange.can_spill() {
                    let exchange = self.exchange.clone();
                    if let Some(lane) = blocking(move || exchange.spill()).await? {
                        self.arrivals.lanes[lane].notify_one();
                    }
                }
            }
        }
        self.exchange.end_sender().map_err(failed)?;
        self.arrivals.lanes.iter().for_each(Notify::notify_one);
        Ok(())
    }
}

/// The rows of one partition.
struct Receiver {
    flow: Arc<Flow>,
    lane: usize,
    baseline: BaselineMetrics,
}

impl Receiver {
    async fn next(&self) -> QueryResult<Option<RecordBatch>> {
        // Rows may always be there, and others want to run, too.
        tokio::task::consume_budget().await;
        let (flow, arrivals) = (&self.flow, &self.flow.arrivals);
        LazyLock::force(&flow.senders);
        loop {
            if let Some(error) = arrivals.failure.get() {
                return Err(DataFusionError::Shared(error.clone()));
            }
            let taken = flow.exchange.take(self.lane);
            arrivals.room.notify_waiters();
            let batch = match taken {
                Taken::Batch(batch) => batch,
                Taken::Spilled(spilled) => {
                    let exchange = flow.exchange.clone();
                    blocking(move || exchange.read(&spilled)).await?
                }
                Taken::Nothing => {
                    arrivals.lanes[self.lane].notified().await;
                    continue;
                }
                Taken::End => return Ok(None),
            };
            self.baseline.record_output(batch.num_rows());
            return Ok(Some(batch));
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.flow.shown.show(self.flow.exchange.stats());
        self.flow.exchange.close(self.lane);
        self.flow.arrivals.room.notify_waiters();
    }
}
