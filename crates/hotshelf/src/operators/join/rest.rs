//! What remains of a join when all right rows have arrived: pairs of spilled partitions, joined by several threads.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::physical_plan::metrics::Time;
use hotshelf_operators::OperatorError;
use hotshelf_operators::join::{HashJoin, Prober, Step};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::super::work::{blocking, failed};

/// Found batches are handed on together, up to this many bytes and batches: waking a thread takes as long as some
/// thousands of rows.
const FOUND_BYTES: usize = 512 << 10;
const FOUND_BATCHES: usize = 16;

/// What a prober comes to.
type Found<T> = Result<T, OperatorError>;

/// The tasks, which end when this is dropped.
pub(super) struct Rest {
    found: VecDeque<RecordBatch>,
    batches: Receiver<Found<Vec<RecordBatch>>>,
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
            found: VecDeque::new(),
            batches,
        }
    }

    /// The next batch, from whichever task has one.
    pub async fn next(&mut self) -> QueryResult<Option<RecordBatch>> {
        if let Some(batch) = self.found.pop_front() {
            return Ok(Some(batch));
        }
        let mut is_stopped = false;
        while let Some(found) = self.batches.recv().await {
            match found {
                Ok(batches) if !is_stopped => {
                    self.found = batches.into();
                    if let Some(batch) = self.found.pop_front() {
                        return Ok(Some(batch));
                    }
                }
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
    sender: Sender<Found<Vec<RecordBatch>>>,
    elapsed: Time,
) -> QueryResult<()> {
    loop {
        let (done, back) = work(&elapsed, helper, VecDeque::new()).await?;
        helper = back;
        let is_last = done.as_ref().map_or(true, |done| done.has_ended);
        let found = done.map(|done| done.batches);
        if sender.send(found).await.is_err() || is_last {
            return Ok(());
        }
    }
}

/// What some work of a prober comes to.
pub(super) struct Done {
    pub batches: Vec<RecordBatch>,
    /// Batches that it has not come to.
    pub given: VecDeque<RecordBatch>,
    /// Whether it has nothing more to do.
    pub has_ended: bool,
}

/// Has a prober work where blocking is allowed: rows may be on disk, and a batch may meet very many others. It takes
/// what is `given` when it has nothing else to do. No thread is held while it waits for other probers, as these need
/// one. What holds the stream open remains, so that dropping it ends the work.
pub(super) async fn work(
    elapsed: &Time,
    mut prober: Prober,
    mut given: VecDeque<RecordBatch>,
) -> QueryResult<(Found<Done>, Prober)> {
    loop {
        let elapsed = elapsed.clone();
        let given = take(&mut given);
        let work = move || {
            let _timer = elapsed.timer();
            Ok((probe(&mut prober, given), prober))
        };
        let done;
        (done, prober) = blocking(work).await?;
        match done.transpose() {
            Some(done) => return Ok((done, prober)),
            None => prober.later().await,
        }
    }
}

/// Some batches. None: others have to do something first, which they do only for probers that were given everything.
fn probe(prober: &mut Prober, mut given: VecDeque<RecordBatch>) -> Found<Option<Done>> {
    let mut batches = Vec::new();
    let mut bytes = 0;
    let has_ended = loop {
        if bytes >= FOUND_BYTES || batches.len() >= FOUND_BATCHES {
            break false;
        }
        match prober.next_step()? {
            Step::Batch(batch) => {
                bytes += batch.get_array_memory_size();
                batches.push(batch);
            }
            Step::Pause => {}
            Step::Later if batches.is_empty() => return Ok(None),
            Step::Later => break false,
            Step::End => match given.pop_front() {
                Some(batch) => prober.push(batch)?,
                None => break true,
            },
        }
    };
    Ok(Some(Done {
        batches,
        given,
        has_ended,
    }))
}
