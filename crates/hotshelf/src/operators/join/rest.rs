//! What remains of a join when all right rows have arrived: pairs of spilled partitions, joined by several threads.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::physical_plan::metrics::Time;
use hotshelf_operators::join::{HashJoin, Prober};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::super::work::blocking;

/// The tasks, which end when this is dropped.
pub(super) struct Rest {
    batches: Receiver<QueryResult<RecordBatch>>,
    tasks: Vec<SpawnedTask<()>>,
}

impl Rest {
    pub fn begin(join: &Arc<HashJoin>, threads: usize, elapsed: &Time) -> Self {
        let (sender, batches) = channel(threads.max(1));
        let tasks = (0..threads.max(1)).map(|_| {
            let (helper, sender) = (join.helper(), sender.clone());
            SpawnedTask::spawn(help(helper, sender, elapsed.clone()))
        });
        Self {
            tasks: tasks.collect(),
            batches,
        }
    }

    /// The next batch, from whichever task has one.
    pub async fn next(&mut self) -> QueryResult<Option<RecordBatch>> {
        if let Some(batch) = self.batches.recv().await {
            return batch.map(Some);
        }
        for task in self.tasks.drain(..) {
            // A task that panicked sent nothing more.
            let ended = task.join_unwind().await;
            ended.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
        }
        Ok(None)
    }
}

/// Sends what a helper finds. No thread is held while it is not taken.
async fn help(mut helper: Prober, sender: Sender<QueryResult<RecordBatch>>, elapsed: Time) {
    loop {
        let found = match work(elapsed.clone(), helper).await {
            Ok((None, _)) => return,
            Ok((Some(batch), back)) => {
                helper = back;
                Ok(batch)
            }
            Err(error) => {
                sender.send(Err(error)).await.ok();
                return;
            }
        };
        if sender.send(found).await.is_err() {
            return;
        }
    }
}

/// Has a prober work where blocking is allowed: rows may be on disk, and a batch may meet very many others. What holds
/// the stream open remains, so that dropping it ends the work.
pub(super) async fn work(
    elapsed: Time,
    mut prober: Prober,
) -> QueryResult<(Option<RecordBatch>, Prober)> {
    let work = move || {
        let _timer = elapsed.timer();
        let batch = prober.next_batch()?;
        Ok((batch, prober))
    };
    blocking(work).await
}
