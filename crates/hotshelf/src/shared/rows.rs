//! The rows of a part, made once and taken by each of its uses.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::error::Result as QueryResult;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Statistics};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// A part's plan, and its rows as far as they have been made.
pub(super) struct SharedRows {
    pub number: usize,
    pub uses: usize,
    pub plan: Arc<dyn ExecutionPlan>,
    pub statistics: Arc<Statistics>,
    partitions: Vec<Mutex<Option<Arc<Partition>>>>,
}

/// The rows of one partition, in the order they came.
pub(super) struct Partition {
    made: Mutex<Made>,
    /// Told whenever there are more, or no more.
    news: watch::Sender<()>,
    maker: Mutex<Option<AbortHandle>>,
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
    ) -> QueryResult<Arc<Partition>> {
        let mut partition = self.partitions[number].lock();
        if let Some(partition) = partition.as_ref() {
            return Ok(Arc::clone(partition));
        }
        let name = format!("shared part {}", self.number);
        let memory = MemoryConsumer::new(name).register(context.memory_pool());
        let started = Arc::new(Partition {
            made: Mutex::new(Made {
                batches: Vec::new(),
                end: None,
                memory,
            }),
            news: watch::Sender::new(()),
            maker: Mutex::default(),
        });
        let mut rows = self.plan.execute(number, Arc::clone(context))?;
        // Without the partition, and so without a use, there is nothing to make rows for.
        let weak = Arc::downgrade(&started);
        let maker = tokio::spawn(async move {
            loop {
                let next = std::panic::AssertUnwindSafe(rows.next());
                let next = futures::FutureExt::catch_unwind(next).await;
                let next = next.unwrap_or_else(|_| {
                    let panic = "a shared part of the query panicked".to_owned();
                    Some(Err(DataFusionError::Execution(panic)))
                });
                match weak.upgrade() {
                    Some(partition) if !partition.take(next) => {}
                    _ => break,
                }
            }
        });
        *started.maker.lock() = Some(maker.abort_handle());
        *partition = Some(Arc::clone(&started));
        Ok(started)
    }
}

impl Partition {
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

impl Drop for Partition {
    fn drop(&mut self) {
        if let Some(maker) = self.maker.get_mut() {
            maker.abort();
        }
    }
}
