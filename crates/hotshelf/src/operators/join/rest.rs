//! What remains of a join when all right rows have arrived: pairs of spilled partitions, joined by several threads.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::physical_plan::metrics::Time;
use hotshelf_operators::OperatorError;
use hotshelf_operators::join::{HashJoin, Prober, Step};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::super::work::{blocking, failed};

/// What a prober comes to.
type Found<T> = Result<T, OperatorError>;

/// The tasks, which end when this is dropped.
pub(super) struct Rest {
    batches: Receiver<Found<RecordBatch>>,
    tasks: Vec<SpawnedTask<QueryResult<()>>>,
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
        let mut is_stopped = false;
        while let Some(found) = self.batches.recv().await {
            match found {
                Ok(batch) if !is_stopped => return Ok(Some(batch)),
                Ok(_) => {}
                // Another one has failed, and says why.
                Err(OperatorError::Stopped) => is_stopped = true,
                Err(error) => return Err(failed(error)),
            }
        }
        for task in self.tasks.drain(..) {
            // A task that panicked sent nothing more.
            let ended = task.join_unwind().await;
            ended.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??;
        }
        match is_stopped {
            true => Err(failed(OperatorError::Stopped)),
            false => Ok(None),
        }
    }
}

/// Sends what a helper finds. No thread is held while it is not taken.
async fn help(
    mut helper: Prober,
    sender: Sender<Found<RecordBatch>>,
    elapsed: Time,
) -> QueryResult<()> {
    loop {
        let (found, back) = work(&elapsed, helper).await?;
        helper = back;
        let Some(found) = found.transpose() else {
            return Ok(());
        };
        let has_failed = found.is_err();
        if sender.send(found).await.is_err() || has_failed {
            return Ok(());
        }
    }
}

/// Has a prober work where blocking is allowed: rows may be on disk, and a batch may meet very many others. No thread
/// is held while it waits for other probers, as these need one. What holds the stream open remains, so that dropping it
/// ends the work.
pub(super) async fn work(
    elapsed: &Time,
    mut prober: Prober,
) -> QueryResult<(Found<Option<RecordBatch>>, Prober)> {
    loop {
        let elapsed = elapsed.clone();
        let work = move || {
            let _timer = elapsed.timer();
            let found = loop {
                match prober.next_step() {
                    Ok(Step::Batch(batch)) => break Some(Ok(Some(batch))),
                    Ok(Step::Pause) => {}
                    Ok(Step::Later) => break None,
                    Ok(Step::End) => break Some(Ok(None)),
                    Err(error) => break Some(Err(error)),
                }
            };
            Ok((found, prober))
        };
        let found;
        (found, prober) = blocking(work).await?;
        match found {
            Some(found) => return Ok((found, prober)),
            None => prober.later().await,
        }
    }
}
