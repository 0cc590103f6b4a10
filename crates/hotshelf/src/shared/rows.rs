//! The rows of a part, made once and taken by each of its uses.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::Result as QueryResult;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Statistics};
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::Error;

/// A part's plan, and its rows as far as they have been made.
pub(super) struct SharedRows {
    pub number: usize,
    pub uses: usize,
    pub plan: Arc<dyn ExecutionPlan>,
    pub statistics: Arc<Statistics>,
    partitions: Vec<Mutex<Option<Partition>>>,
}

/// The rows of one partition, and what makes them: dropping it ends that.
struct Partition {
    rows: Arc<PartitionRows>,
    _maker: SpawnedTask<()>,
}

/// The rows of one partition, in the order they came.
pub(super) struct PartitionRows {
    made: Mutex<Made>,
    /// Told whenever there are more, or no more.
    news: watch::Sender<()>,
}

struct Made {
    batches: Vec<RecordBatch>,
    end: Option<QueryResult<(), Arc<DataFusionError>>>,
    /// What the batches take.
    memory: MemoryReservation,
}

impl SharedRows {
    pub fn new(number: usize, uses: usize, plan: Arc<dyn ExecutionPlan>) -> QueryResult<Self> {
        let count = plan.output_partitioning().partition_count();
        let all = StatisticsArgs::default();
        Ok(Self {
            number,
            uses,
            statistics: StatisticsContext::default().compute(plan.as_ref(), &all)?,
            plan,
            partitions: (0..count).map(|_| Mutex::default()).collect(),
        })
    }

    /// The rows of a partition; its first use starts them.
    pub fn partition(
        &self,
        number: usize,
        context: &Arc<TaskContext>,
    ) -> QueryResult<Arc<PartitionRows>> {
        let mut partition = self.partitions[number].lock();
        if let Some(partition) = partition.as_ref() {
            return Ok(Arc::clone(&partition.rows));
        }
        let name = format!("shared part {}", self.number);
        let rows = Arc::new(PartitionRows {
            made: Mutex::new(Made {
                batches: Vec::new(),
                end: None,
                memory: MemoryConsumer::new(name).register(context.memory_pool()),
            }),
            news: watch::Sender::new(()),
        });
        let batches = self.plan.execute(number, Arc::clone(context))?;
        let maker = SpawnedTask::spawn(Arc::clone(&rows).make(batches));
        *partition = Some(Partition {
            rows: Arc::clone(&rows),
            _maker: maker,
        });
        Ok(rows)
    }
}

impl PartitionRows {
    /// Keeps what a stream gives until it ends or fails. A panic fails it.
    async fn make(self: Arc<Self>, mut batches: SendableRecordBatchStream) {
        loop {
            let next = AssertUnwindSafe(batches.next()).catch_unwind().await;
            let next = next.unwrap_or_else(|payload| {
                let doing = "making rows that the statement uses more than once";
                Some(Err(Error::panicked(doing, payload.as_ref()).into()))
            });
            if self.take(next) {
                break;
            }
        }
    }

    /// Keeps what came next. Whether that was the last.
    fn take(&self, next: Option<QueryResult<RecordBatch>>) -> bool {
        let mut made = self.made.lock();
        let kept = next.map(|batch| {
            let batch = batch?;
            made.memory.try_grow(get_record_batch_memory_size(&batch))?;
            made.batches.push(batch);
            Ok(())
        });
        made.end = match kept {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(Err(Arc::new(error))),
            None => Some(Ok(())),
        };
        let is_last = made.end.is_some();
        drop(made);
        self.news.send_replace(());
        is_last
    }

    /// The batch of a number, once it has been made; nothing behind the last.
    pub async fn batch(&self, number: usize) -> QueryResult<Option<RecordBatch>> {
        let mut news = self.news.subscribe();
        loop {
            {
                let made = self.made.lock();
                if let Some(batch) = made.batches.get(number) {
                    return Ok(Some(batch.clone()));
                }
                match &made.end {
                    Some(Ok(())) => return Ok(None),
                    Some(Err(error)) => return Err(DataFusionError::Shared(Arc::clone(error))),
                    None => {}
                }
            }
            if news.changed().await.is_err() {
                return Ok(None);
            }
        }
    }
}
