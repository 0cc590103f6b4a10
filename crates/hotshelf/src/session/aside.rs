//! Work on a thread of its own: with a stack for deep statements, where a panic is an error, and which nobody
//! has to wait for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::thread::Builder;

use futures::future::{Either, select};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{Error, Result};

/// Stack for parsing and planning. Only what is used takes memory; [`super::depth`] bounds what is used.
const STACK_BYTES: usize = 1 << 30;
/// Stack where the system refuses the larger one.
const STACK_BYTES_MIN: usize = 64 << 20;
/// Name of the threads, by which a panic hook can tell that a statement panicked.
const THREAD_NAME: &str = "hotshelf-plan";

/// Runs `work` on a thread with a large stack and waits for it.
pub(super) fn run<T: Send>(
    what: &'static str,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let mut work = Some(work);
    let mut refused = None;
    for stack_bytes in [STACK_BYTES, STACK_BYTES_MIN] {
        let slot = &mut work;
        let done = std::thread::scope(|scope| {
            let run = move || match slot.take() {
                Some(work) => work(),
                None => Err(Error::Cancelled),
            };
            let thread = builder(stack_bytes).spawn_scoped(scope, run)?;
            Ok(thread.join())
        });
        match done {
            Ok(done) => {
                return done.unwrap_or_else(|payload| Err(Error::panicked(what, payload.as_ref())));
            }
            Err(error) => refused = Some(error),
        }
    }
    Err(no_thread(refused))
}

/// Runs the future that `work` makes on a thread with a large stack. When the caller stops waiting, the future is
/// dropped at its next await, and the caller does not wait for that.
pub(super) async fn run_async<T, F>(
    what: &'static str,
    handle: Handle,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>>,
{
    let (sender, receiver) = oneshot::channel();
    let mut sender = sender;
    let run = move || {
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
            // Nobody may be waiting any more.
            sender.send(done).ok();
        }
    };
    spawn(run)?;
    receiver.await.unwrap_or(Err(Error::Cancelled))
}

/// Starts a thread with the large stack, or with a smaller one where the system refuses that.
fn spawn(run: impl FnOnce() + Send + 'static) -> Result<()> {
    let shared = std::sync::Arc::new(parking_lot::Mutex::new(Some(run)));
    let mut refused = None;
    for stack_bytes in [STACK_BYTES, STACK_BYTES_MIN] {
        let shared = shared.clone();
        let run = move || {
            let run = shared.lock().take();
            if let Some(run) = run {
                run();
            }
        };
        match builder(stack_bytes).spawn(run) {
            Ok(_) => return Ok(()),
            Err(error) => refused = Some(error),
        }
    }
    Err(no_thread(refused))
}

fn builder(stack_bytes: usize) -> Builder {
    Builder::new()
        .name(THREAD_NAME.to_owned())
        .stack_size(stack_bytes)
}

fn no_thread(refused: Option<std::io::Error>) -> Error {
    let source = refused.unwrap_or_else(|| std::io::ErrorKind::OutOfMemory.into());
    Error::io(
        "start a thread for planning in",
        std::path::Path::new("this process"),
    )(source)
}
