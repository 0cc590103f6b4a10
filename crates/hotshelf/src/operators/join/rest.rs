//! What remains of a join when all right rows have arrived: pairs of spilled partitions, joined by several threads.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::physical_plan::metrics::Time;
use hotshelf_operators::join::HashJoin;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::super::work::failed;

/// The threads, which end when this is dropped.
pub(super) struct Rest {
    batches: Receiver<QueryResult<RecordBatch>>,
    threads: Vec<SpawnedTask<()>>,
}

impl Rest {
    pub fn begin(join: &Arc<HashJoin>, threads: usize, elapsed: &Time) -> Self {
        let (sender, batches) = channel(threads.max(1));
        let threads = (0..threads.max(1)).map(|_| {
            let (join, sender, elapsed) = (join.clone(), sender.clone(), elapsed.clone());
            SpawnedTask::spawn_blocking(move || work(&join, &sender, &elapsed))
        });
        Self {
            threads: threads.collect(),
            batches,
        }
    }

    /// The next batch, from whichever thread has one.
    pub async fn next(&mut self) -> QueryResult<Option<RecordBatch>> {
        if let Some(batch) = self.batches.recv().await {
            return batch.map(Some);
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked sent nothing more.
            let ended = thread.join_unwind().await;
            ended.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
        }
        Ok(None)
    }
}

fn work(join: &Arc<HashJoin>, sender: &Sender<QueryResult<RecordBatch>>, elapsed: &Time) {
    let mut helper = join.helper();
    loop {
        let next = {
            let _timer = elapsed.timer();
            helper.next_batch().map_err(failed).transpose()
        };
        let Some(batch) = next else {
            return;
        };
        let is_over = batch.is_err();
        if sender.blocking_send(batch).is_err() || is_over {
            return;
        }
    }
}
