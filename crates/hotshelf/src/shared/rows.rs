//! The rows of a part, made once and taken by each of its uses.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::Result as QueryResult;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, PlanProperties, Statistics,
};
use futures::{FutureExt, StreamExt};
use hotshelf_operators::batches::held_bytes;
use hotshelf_operators::memory::Grant;
use hotshelf_operators::spill::{SpillFile, SpilledBatch};
use hotshelf_operators::{Environment, OperatorError, Stop};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::Error;
use crate::operators::{blocking, environment};
use crate::statistics::rows::expected;

/// A part's plan, and its rows as far as they have been made.
pub(crate) struct SharedRows {
    pub number: usize,
    pub uses: usize,
    pub plan: Arc<dyn ExecutionPlan>,
    /// Of the plan that runs.
    pub properties: Arc<PlanProperties>,
    pub statistics: Arc<Statistics>,
    pub metrics: ExecutionPlanMetricsSet,
    partitions: Vec<Mutex<Option<Partition>>>,
}

/// The rows of one partition, and what makes them: dropping it ends that.
struct Partition {
    rows: Arc<PartitionRows>,
    stop: Stop,
    _maker: SpawnedTask<()>,
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.stop.raise();
    }
}

/// The rows of one partition, in the order they came. They are in memory until some are refused a place there: then all
/// of them are in a file, and so is what comes later.
pub(crate) struct PartitionRows {
    made: Mutex<Made>,
    /// Told whenever there are more, or no more.
    news: watch::Sender<()>,
    /// What the batches in memory take.
    memory: Grant,
}

struct Made {
    batches: Vec<Kept>,
    end: Option<QueryResult<(), Arc<DataFusionError>>>,
}

#[derive(Clone)]
enum Kept {
    InMemory(RecordBatch),
    InFile(SpilledBatch),
}

impl SharedRows {
    pub fn new(number: usize, uses: usize, plan: Arc<dyn ExecutionPlan>) -> QueryResult<Self> {
        let statistics = expected(&plan)?;
        Ok(Self::expecting(number, uses, plan, statistics))
    }

    /// The same part with another plan for it.
    pub fn of_plan(&self, plan: Arc<dyn ExecutionPlan>) -> Self {
        Self::expecting(self.number, self.uses, plan, self.statistics.clone())
    }

    /// The same part where its plan is an outline of the one that runs.
    pub fn in_outline(self, outline: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            plan: outline,
            ..self
        }
    }

    fn expecting(
        number: usize,
        uses: usize,
        plan: Arc<dyn ExecutionPlan>,
        statistics: Arc<Statistics>,
    ) -> Self {
        let count = plan.output_partitioning().partition_count();
        Self {
            number,
            uses,
            statistics,
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::clone(plan.properties()),
            plan,
            partitions: (0..count).map(|_| Mutex::default()).collect(),
        }
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
        let environment = environment(context, &self.metrics, number)?;
        let rows = Arc::new(PartitionRows {
            made: Mutex::new(Made {
                batches: Vec::new(),
                end: None,
            }),
            news: watch::Sender::new(()),
            memory: Grant::open(environment.broker.as_ref(), &name, 0),
        });
        let batches = self.plan.execute(number, Arc::clone(context))?;
        let stop = environment.stop.clone();
        let maker = SpawnedTask::spawn(Arc::clone(&rows).make(batches, environment));
        *partition = Some(Partition {
            rows: Arc::clone(&rows),
            stop,
            _maker: maker,
        });
        Ok(rows)
    }
}

impl PartitionRows {
    /// Keeps what a stream gives until it ends or fails. A panic fails it.
    async fn make(self: Arc<Self>, batches: SendableRecordBatchStream, environment: Environment) {
        let making = AssertUnwindSafe(self.keep_all(batches, environment)).catch_unwind();
        let end = making.await.unwrap_or_else(|payload| {
            let doing = "making rows that the statement uses more than once";
            Err(Error::panicked(doing, payload.as_ref()).into())
        });
        self.made.lock().end = Some(end.map_err(Arc::new));
        self.news.send_replace(());
    }

    async fn keep_all(
        self: &Arc<Self>,
        mut batches: SendableRecordBatchStream,
        environment: Environment,
    ) -> QueryResult<()> {
        let mut file = None;
        while let Some(batch) = batches.next().await.transpose()? {
            let kept = if file.is_none() && self.memory.try_grow(held_bytes(&batch)) {
                Kept::InMemory(batch)
            } else {
                let file = match &file {
                    Some(file) => Arc::clone(file),
                    None => {
                        let (rows, environment) = (Arc::clone(self), environment.clone());
                        let schema = batch.schema();
                        let spilled = blocking(move || rows.spill(&environment, schema)).await?;
                        Arc::clone(file.insert(spilled))
                    }
                };
                Kept::InFile(blocking(move || file.write(&batch)).await?)
            };
            self.made.lock().batches.push(kept);
            self.news.send_replace(());
        }
        Ok(())
    }

    /// Writes all that is in memory to a file.
    fn spill(
        &self,
        environment: &Environment,
        schema: SchemaRef,
    ) -> Result<Arc<SpillFile>, OperatorError> {
        let file = environment.spill_file(schema)?;
        for number in 0.. {
            environment.stop.check()?;
            let kept = self.made.lock().batches.get(number).cloned();
            let Some(Kept::InMemory(batch)) = kept else {
                break;
            };
            let written = file.write(&batch)?;
            self.made.lock().batches[number] = Kept::InFile(written);
            self.memory.shrink(held_bytes(&batch));
        }
        Ok(file)
    }

    /// The batch of a number, once it has been made; nothing behind the last. What is read of a file is put on an
    /// account, in the place of what was read before.
    pub async fn batch(
        &self,
        number: usize,
        read: &MemoryReservation,
    ) -> QueryResult<Option<RecordBatch>> {
        Ok(match self.kept(number).await? {
            Some(Kept::InMemory(batch)) => Some(batch),
            Some(Kept::InFile(spilled)) => {
                read.resize(spilled.read_bytes() as usize);
                Some(blocking(move || spilled.read()).await?)
            }
            None => None,
        })
    }

    async fn kept(&self, number: usize) -> QueryResult<Option<Kept>> {
        let mut news = self.news.subscribe();
        loop {
            {
                let made = self.made.lock();
                if let Some(kept) = made.batches.get(number) {
                    return Ok(Some(kept.clone()));
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
