//! A statement on a thread of its own, so that the caller can stop waiting for its rows at any time: an operator
//! may compute for long without yielding its thread.

use std::path::Path;
use std::sync::mpsc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use hotshelf::{Error, Session, Statement};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::failure::{Failure, Result};
use crate::interrupt::PATIENCE;

/// Stack of the thread, in bytes: what main threads have. Planning recurses.
const STACK_BYTES: usize = 8 << 20;
/// Batches that may wait to be taken.
const BATCHES_AHEAD: usize = 2;

/// A statement that runs. Dropping it cancels the statement and waits a moment for it to let go.
pub struct Running {
    parts: Receiver<Result<Part, Error>>,
    /// Closed at the end of the thread.
    ended: mpsc::Receiver<()>,
}

enum Part {
    Head(SchemaRef, Option<String>),
    Rows(RecordBatch),
    /// There are no more rows. A thread that panicked does not get to say so.
    End,
}

impl Running {
    pub fn start(session: &Session, statement: Statement) -> Result<Self> {
        let (sender, parts) = channel(BATCHES_AHEAD);
        let (end, ended) = mpsc::channel();
        let session = session.clone();
        let thread = std::thread::Builder::new()
            .name("statement".to_owned())
            .stack_size(STACK_BYTES);
        let started = thread.spawn(move || {
            // Dropped last, when the session is no longer held.
            let _end: mpsc::Sender<()> = end;
            work(session, statement, sender);
        });
        started.map_err(Failure::io("start a thread for", Path::new("a statement")))?;
        Ok(Self { parts, ended })
    }

    /// The columns of the answer, or what was done instead. To be called once, and first.
    pub async fn head(&mut self) -> Result<(SchemaRef, Option<String>)> {
        match self.part().await? {
            Part::Head(schema, message) => Ok((schema, message)),
            Part::Rows(_) | Part::End => Err(Failure::Panicked),
        }
    }

    /// The next rows.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        match self.part().await? {
            Part::Rows(batch) => Ok(Some(batch)),
            Part::End => Ok(None),
            Part::Head(..) => Err(Failure::Panicked),
        }
    }

    async fn part(&mut self) -> Result<Part> {
        let part = self.parts.recv().await.ok_or(Failure::Panicked)?;
        Ok(part?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.parts.close();
        self.ended.recv_timeout(PATIENCE).ok();
    }
}

fn work(session: Session, statement: Statement, sender: Sender<Result<Part, Error>>) {
    let database = session.database().clone();
    database.block_on(async {
        tokio::select! {
            biased;
            () = sender.closed() => {}
            failed = send_all(&session, statement, &sender) => {
                if let Err(error) = failed {
                    sender.send(Err(error)).await.ok();
                }
            }
        }
    });
}

async fn send_all(
    session: &Session,
    statement: Statement,
    sender: &Sender<Result<Part, Error>>,
) -> Result<(), Error> {
    let mut answer = session.execute(statement).await?;
    let head = Part::Head(answer.schema(), answer.message().map(str::to_owned));
    // A failure to send means that the receiver is gone: then this future is about to be dropped.
    sender.send(Ok(head)).await.ok();
    while let Some(batch) = answer.next().await {
        sender.send(Ok(Part::Rows(batch?))).await.ok();
    }
    sender.send(Ok(Part::End)).await.ok();
    Ok(())
}
