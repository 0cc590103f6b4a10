//! What a statement answers: its rows come from the plan's work on the worker threads, which ends when the answer is
//! dropped. A panic becomes an error.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result as QueryResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{EmptyRecordBatchStream, ExecutionPlan, execute_stream};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use hotshelf_operators::batches::needed_bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

use super::learning::Learning;
use super::room::with_need;
use crate::error::{Error, Result, is_shortage};
use crate::interrupt::Interrupt;

/// Batches made ahead of the reader.
const AHEAD_BATCHES: usize = 1;
/// The first rows are held back until they come to this many bytes, or more come after this long: a query that is
/// short of memory can begin again while none has been sent, and one partition may have rows before another runs
/// short.
const HELD_BYTES: usize = 1 << 20;
const HELD_FOR: Duration = Duration::from_secs(1);
/// What the statement was doing when it panicked.
const RUNNING: &str = "running the statement";

/// What a statement answers: a [`Stream`] of batches of rows, none for statements that change something.
///
/// Rows are made as they are taken. Dropping the answer cancels the query.
pub struct Answer {
    pub(super) batches: SendableRecordBatchStream,
    pub(super) message: Option<String>,
    /// What runs, with its metrics.
    pub(super) plan: Option<RunningPlan>,
}

/// The plan of an answer: another one once it had to begin again.
#[derive(Clone)]
pub(super) struct RunningPlan(Arc<Mutex<Arc<dyn ExecutionPlan>>>);

impl RunningPlan {
    pub fn new(plan: Arc<dyn ExecutionPlan>) -> Self {
        Self(Arc::new(Mutex::new(plan)))
    }

    fn get(&self) -> Arc<dyn ExecutionPlan> {
        self.0.lock().clone()
    }
}

/// Makes the plan for a query that has run out of memory, with operators that spill.
pub(super) type Again = BoxFuture<'static, Result<Arc<dyn ExecutionPlan>>>;

impl Answer {
    /// The answer of a statement without rows.
    pub(super) fn done(message: String) -> Self {
        let schema = Arc::new(arrow::datatypes::Schema::empty());
        Self {
            batches: Box::pin(EmptyRecordBatchStream::new(schema)),
            message: Some(message),
            plan: None,
        }
    }

    /// The answer that is known already.
    pub(super) fn of(rows: RecordBatch) -> Self {
        let schema = rows.schema();
        let rows = futures::stream::iter([Ok(rows)]);
        Self {
            batches: Box::pin(RecordBatchStreamAdapter::new(schema, rows)),
            message: None,
            plan: None,
        }
    }

    /// Columns of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.batches.schema()
    }

    /// What was done, for statements that answer with no rows.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// The next rows; `None` after the last.
    ///
    /// # Errors
    /// The query fails. No rows follow.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> hotshelf::Result<()> {
    /// # let database = hotshelf::Database::temporary(hotshelf::Options::default())?;
    /// # let session = database.session();
    /// let row_count = database.block_on(async {
    ///     let mut answer = session.sql("SELECT * FROM generate_series(1, 100000)").await?;
    ///     let mut row_count = 0;
    ///     while let Some(batch) = answer.next().await {
    ///         row_count += batch?.num_rows();
    ///     }
    ///     Ok::<_, hotshelf::Error>(row_count)
    /// })?;
    /// assert_eq!(row_count, 100_000);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn next(&mut self) -> Option<crate::Result<RecordBatch>> {
        StreamExt::next(self).await
    }

    /// All rows.
    ///
    /// # Errors
    /// The query fails.
    pub async fn collect(mut self) -> crate::Result<Vec<RecordBatch>> {
        let mut rows = Vec::new();
        while let Some(batch) = self.next().await {
            rows.push(batch?);
        }
        Ok(rows)
    }

    /// Runs to the end; the rows are not needed.
    pub(super) async fn drain(mut self) -> Result<()> {
        while let Some(batch) = self.next().await {
            batch?;
        }
        Ok(())
    }

    /// The answer with its rows in memory, once all is done.
    pub(super) async fn taken(mut self) -> Result<Self> {
        let schema = self.batches.schema();
        let mut rows = Vec::new();
        while let Some(batch) = self.next().await {
            rows.push(Ok(batch?));
        }
        let rows = futures::stream::iter(rows);
        self.batches = Box::pin(RecordBatchStreamAdapter::new(schema, rows));
        Ok(self)
    }

    /// What runs, with its metrics.
    pub(crate) fn plan(&self) -> Option<Arc<dyn ExecutionPlan>> {
        self.plan.as_ref().map(RunningPlan::get)
    }
}

impl Stream for Answer {
    type Item = crate::Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let batch = ready!(self.batches.poll_next_unpin(cx));
        Poll::Ready(batch.map(|batch| batch.map_err(|error| Error::from_query(error).into())))
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("schema", &self.schema())
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}

/// Starts a plan on the workers.
///
/// Its rows come through a channel, so the plan's own work never blocks a caller that waits for them, and the caller
/// can always stop waiting.
pub(super) fn start(
    plan: &RunningPlan,
    context: Arc<TaskContext>,
    interrupt: Interrupt,
    again: Option<Again>,
    learning: Option<Learning>,
) -> SendableRecordBatchStream {
    let schema = plan.get().schema();
    let (sender, receiver) = channel(AHEAD_BATCHES);
    let task = tokio::spawn(forward(plan.clone(), context, again, learning, sender));
    Box::pin(AnswerStream {
        schema,
        receiver,
        task: Some(task),
        interrupt,
    })
}

/// Sends a plan's batches until it ends, fails or the receiver is gone. A panic arrives as an error.
async fn forward(
    plan: RunningPlan,
    context: Arc<TaskContext>,
    again: Option<Again>,
    learning: Option<Learning>,
    sender: Sender<QueryResult<RecordBatch>>,
) {
    let run = async {
        let mut held = Held {
            holds: again.is_some(),
            ..Held::default()
        };
        let done = send_all(&plan, &context, &sender, &mut held).await;
        let (Err(error), Some(again)) = (&done, again) else {
            return done;
        };
        if !held.holds || !is_shortage(error) {
            held.send(&sender).await;
            return done;
        }
        tracing::info!(%error, "the query begins again with operators that spill");
        held.batches.clear();
        match again.await {
            Ok(again) => *plan.0.lock() = again,
            Err(error) => {
                tracing::warn!(%error, "the query cannot be planned again");
                return done;
            }
        }
        send_all(&plan, &context, &sender, &mut Held::default()).await
    };
    let done = AssertUnwindSafe(run).catch_unwind().await;
    let failed = match done {
        Ok(Ok(ended)) => {
            if let Some(learning) = learning.filter(|_| ended) {
                learning.note(&plan.get());
            }
            None
        }
        Ok(Err(error)) => Some(error),
        Err(payload) => Some(Error::panicked(RUNNING, payload.as_ref()).into()),
    };
    if let Some(error) = failed {
        let error = with_need(error, &plan.get());
        sender.send(Err(error)).await.ok();
    }
}

/// Sends a plan's batches while the receiver wants them. Whether it wanted all.
async fn send_all(
    plan: &RunningPlan,
    context: &Arc<TaskContext>,
    sender: &Sender<QueryResult<RecordBatch>>,
    held: &mut Held,
) -> QueryResult<bool> {
    let mut batches = execute_stream(plan.get(), context.clone())?;
    while let Some(batch) = batches.next().await {
        if !held.take(batch?, sender).await {
            return Ok(false);
        }
    }
    Ok(held.send(sender).await)
}

/// The first rows of an answer, which are held back while the query may have to begin again.
#[derive(Default)]
struct Held {
    holds: bool,
    batches: Vec<RecordBatch>,
    bytes: usize,
    /// When the first of them came.
    since: Option<Instant>,
}

impl Held {
    /// Takes a batch, or sends it. Whether the receiver wants more.
    async fn take(
        &mut self,
        batch: RecordBatch,
        sender: &Sender<QueryResult<RecordBatch>>,
    ) -> bool {
        if self.holds {
            self.bytes += needed_bytes(&batch) as usize;
            let since = self.since.get_or_insert_with(Instant::now);
            self.holds = self.bytes < HELD_BYTES && since.elapsed() < HELD_FOR;
        }
        self.batches.push(batch);
        self.holds || self.send(sender).await
    }

    /// Sends what is held, and holds no more. Whether the receiver wants more.
    async fn send(&mut self, sender: &Sender<QueryResult<RecordBatch>>) -> bool {
        self.holds = false;
        for batch in self.batches.drain(..) {
            if sender.send(Ok(batch)).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Batches of a running plan. Dropping it stops the plan.
struct AnswerStream {
    schema: SchemaRef,
    receiver: Receiver<QueryResult<RecordBatch>>,
    /// Taken once it has ended.
    task: Option<JoinHandle<()>>,
    interrupt: Interrupt,
}

impl AnswerStream {
    /// The last item after the channel is closed: none, unless the task did not get to its end.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<QueryResult<RecordBatch>>> {
        let Some(task) = &mut self.task else {
            return Poll::Ready(None);
        };
        let ended = ready!(task.poll_unpin(cx));
        self.task = None;
        Poll::Ready(match ended {
            Ok(()) => None,
            Err(error) if error.is_panic() => {
                let payload = error.into_panic();
                Some(Err(Error::panicked(RUNNING, payload.as_ref()).into()))
            }
            Err(_) => Some(Err(Error::Cancelled.into())),
        })
    }
}

impl Stream for AnswerStream {
    type Item = QueryResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match ready!(self.receiver.poll_recv(cx)) {
            Some(batch) => Poll::Ready(Some(batch)),
            None => self.poll_end(cx),
        }
    }
}

impl RecordBatchStream for AnswerStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Drop for AnswerStream {
    fn drop(&mut self) {
        self.interrupt.raise();
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Turns a panic of a statement's own future into an error.
pub(super) async fn guarded<T>(
    what: &'static str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => done,
        Err(payload) => Err(Error::panicked(what, payload.as_ref())),
    }
}
