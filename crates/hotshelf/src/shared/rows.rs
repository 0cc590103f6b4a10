//! The rows of a part, made once and taken by each of its uses.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Statistics};
use futures::{FutureExt, StreamExt};
use hotshelf_operators::batches::held_bytes;
use hotshelf_operators::memory::Grant;
use hotshelf_operators::spill::{SpillFile, SpilledBatch};
use hotshelf_operators::{Environment, OperatorError};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::Error;
use crate::operators::{blocking, environment};

/// A part's plan, and its rows as far as they have been made.
pub(super) struct SharedRows {
    pub number: usize,
    pub uses: usize,
    pub plan: Arc<dyn ExecutionPlan>,
    pub statistics: Arc<Statistics>,
    pub metrics: ExecutionPlanMetricsSet,
    partitions: Vec<Mutex<Option<Partition>>>,
}

/// The rows of one partition, and what makes them: dropping it ends that.
struct Partition {
    rows: Arc<PartitionRows>,
    _maker: SpawnedTask<()>,
}

/// The rows of one partition, in the order they came. They are in memory until some are refused a place there: then all
/// of them are in a file, and so is what comes later.
pub(super) struct PartitionRows {
    made: Mutex<Made>,
    /// Told whenever there are more, or no more.
    news: watch::Sender<()>,
    environment: Environment,
    /// What the batches in memory take.
    memory: Grant,
    file: OnceLock<Arc<SpillFile>>,
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
        let count = plan.output_partitioning().partition_count();
        let all = StatisticsArgs::default();
        Ok(Self {
            number,
            uses,
            statistics: StatisticsContext::default().compute(plan.as_ref(), &all)?,
            metrics: ExecutionPlanMetricsSet::new(),
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
        let environment = environment(context, &self.metrics, number)?;
        let rows = Arc::new(PartitionRows {
            made: Mutex::new(Made {
                batches: Vec::new(),
                end: None,
            }),
            news: watch::Sender::new(()),
            memory: Grant::open(environment.broker.as_ref(), &name, 0),
            environment,
            file: OnceLock::new(),
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
            let kept = match next {
                Some(Ok(batch)) => self.keep(batch).await.map(|()| None),
                Some(Err(error)) => Err(error),
                None => Ok(Some(Ok(()))),
            };
            let end = kept.unwrap_or_else(|error| Some(Err(Arc::new(error))));
            let is_last = end.is_some();
            self.made.lock().end = end;
            self.news.send_replace(());
            if is_last {
                break;
            }
        }
    }

    async fn keep(self: &Arc<Self>, batch: RecordBatch) -> QueryResult<()> {
        if self.file.get().is_none() && self.memory.try_grow(held_bytes(&batch)) {
            self.made.lock().batches.push(Kept::InMemory(batch));
            return Ok(());
        }
        let rows = Arc::clone(self);
        blocking(move || rows.spill(&batch)).await
    }

    /// Writes a batch behind the others, which are written first.
    fn spill(&self, batch: &RecordBatch) -> Result<(), OperatorError> {
        let file = match self.file.get() {
            Some(file) => file,
            None => {
                let file = self.environment.spill_file(batch.schema())?;
                let file = self.file.get_or_init(|| file);
                self.spill_those_in_memory(file)?;
                file
            }
        };
        let written = file.write(batch)?;
        self.made.lock().batches.push(Kept::InFile(written));
        Ok(())
    }

    fn spill_those_in_memory(&self, file: &Arc<SpillFile>) -> Result<(), OperatorError> {
        let count = self.made.lock().batches.len();
        for number in 0..count {
            let kept = self.made.lock().batches[number].clone();
            let Kept::InMemory(batch) = kept else {
                continue;
            };
            let written = file.write(&batch)?;
            self.made.lock().batches[number] = Kept::InFile(written);
            self.memory.shrink(held_bytes(&batch));
        }
        Ok(())
    }

    /// The batch of a number, once it has been made; nothing behind the last.
    pub async fn batch(&self, number: usize) -> QueryResult<Option<RecordBatch>> {
        let Some(kept) = self.kept(number).await? else {
            return Ok(None);
        };
        let batch = match kept {
            Kept::InMemory(batch) => batch,
            Kept::InFile(spilled) => blocking(move || spilled.read()).await?,
        };
        Ok(Some(batch))
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
