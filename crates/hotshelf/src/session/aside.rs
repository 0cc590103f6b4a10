//! Work on separate threads, which have a stack for deep statements, turn a panic into an error, and need not be waited
//! for.
//!
//! Threads are kept for the next statement, as starting one with a large stack costs more than planning a small query.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{Error, Result};

/// Stack for parsing and planning. Only what is used takes memory; [`super::depth`] bounds what is used.
const STACK_BYTES: usize = 1 << 30;
/// Stack where the system refuses the larger one.
const STACK_BYTES_MIN: usize = 64 << 20;
/// Name of the threads, by which a panic hook knows that a statement panicked.
const THREAD_NAME: &str = "hotshelf-plan";
/// Threads that wait for work, at most.
const IDLE_MAX: usize = 4;
/// How long a thread waits for work.
const IDLE_FOR: Duration = Duration::from_secs(5);
/// Work of this length may have used much of the stack: its thread ends and gives the memory back.
const LONG: Duration = Duration::from_millis(100);

type Job = Box<dyn FnOnce() + Send>;

/// The threads that wait for work: a number, and where to send it.
static IDLE: Mutex<Vec<(u64, Sender<Job>)>> = Mutex::new(Vec::new());

/// Runs `work` on a thread with a large stack and waits for it.
pub(super) fn run<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = channel();
    submit(Box::new(move || {
        let done = catch_unwind(AssertUnwindSafe(work));
        let done = done.unwrap_or_else(|payload| Err(Error::panicked(what, payload.as_ref())));
        sender.send(done).ok();
    }))?;
    receiver.recv().unwrap_or(Err(Error::Cancelled))
}

/// Runs the future that `work` makes on a thread with a large stack. When the caller stops waiting, the future is
/// dropped at its next await, and the caller does not wait for that.
pub(crate) async fn run_async<T, F>(
    what: &'static str,
    handle: Handle,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>>,
{
    let (mut sender, receiver) = oneshot::channel();
    submit(Box::new(move || {
        let waited_for = catch_unwind(AssertUnwindSafe(|| {
            handle.block_on(async {
                match select(pin!(work()), pin!(sender.closed())).await {
                    Either::Left((done, _)) => Some(done),
                    Either::Right(_) => None,
                }
            })
        }));
        let done =
            waited_for.unwrap_or_else(|payload| Some(Err(Error::panicked(what, payload.as_ref()))));
        if let Some(done) = done {
            // The caller may have stopped waiting.
            sender.send(done).ok();
        }
    }))?;
    receiver.await.unwrap_or(Err(Error::Cancelled))
}

/// Gives the work to a thread that waits, or to a new one.
fn submit(mut job: Job) -> Result<()> {
    loop {
        let idle = IDLE.lock().pop();
        let Some((_, worker)) = idle else { break };
        match worker.send(job) {
            Ok(()) => return Ok(()),
            Err(refused) => job = refused.0,
        }
    }
    let (sender, receiver) = channel();
    if sender.send(job).is_err() {
        return Err(Error::Cancelled);
    }
    let mut refused = None;
    let receiver = std::sync::Arc::new(Mutex::new(receiver));
    for stack_bytes in [STACK_BYTES, STACK_BYTES_MIN] {
        let (sender, receiver) = (sender.clone(), receiver.clone());
        let builder = Builder::new()
            .name(THREAD_NAME.to_owned())
            .stack_size(stack_bytes);
        match builder.spawn(move || serve(&sender, &receiver.lock())) {
            Ok(_) => return Ok(()),
            Err(error) => refused = Some(error),
        }
    }
    Err(no_thread(refused))
}

/// Does work until none has come for a while.
fn serve(sender: &Sender<Job>, jobs: &Receiver<Job>) {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    while let Ok(job) = jobs.recv_timeout(IDLE_FOR) {
        let start = Instant::now();
        job();
        let mut idle = IDLE.lock();
        if start.elapsed() > LONG || idle.len() >= IDLE_MAX {
            return;
        }
        idle.push((number, sender.clone()));
    }
    let mut idle = IDLE.lock();
    idle.retain(|(other, _)| *other != number);
    drop(idle);
    // Work may have been sent just before this thread left the list.
    if let Ok(job) = jobs.try_recv() {
        job();
    }
}

fn no_thread(refused: Option<std::io::Error>) -> Error {
    let source = refused.unwrap_or_else(|| std::io::ErrorKind::OutOfMemory.into());
    Error::io(
        "start a thread for planning in",
        std::path::Path::new("this process"),
    )(source)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn work_is_done_by_threads_that_are_used_again_and_outlive_panics() {
        let name = || run("testing", || Ok(std::thread::current().id()));
        let threads: HashSet<_> = (0..200).map(|_| name().unwrap()).collect();
        assert!(threads.len() < 200, "no thread was used twice");
        let panicked = run("testing", || -> Result<()> { panic!("on purpose") });
        assert!(matches!(panicked, Err(Error::Panic { .. })), "{panicked:?}");
        assert!(name().is_ok());
    }

    #[test]
    fn many_callers_get_their_own_answers() {
        let callers: Vec<_> = (0..32)
            .map(|number| {
                std::thread::spawn(move || {
                    (0..50).all(|each| {
                        run("testing", move || Ok(number * each)).unwrap() == number * each
                    })
                })
            })
            .collect();
        assert!(callers.into_iter().all(|caller| caller.join().unwrap()));
    }
}
