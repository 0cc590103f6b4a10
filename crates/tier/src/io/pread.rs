//! Runs operations by `preadv` on a pool of threads, where `io_uring` is not allowed.
//!
//! One thread leads: it holds the backlog, waits for mail, and leaves with an operation. The next one then leads.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use super::backlog::{Backlog, Next};
use super::lane::Lane;
use super::operation::{Operation, Progress};
use super::shared::Shared;
use crate::TierError;

/// Starts the pool. On an error, threads started so far end when the lane stops.
pub(super) fn start(
    shared: &Arc<Shared>,
    lane: &Arc<Lane>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<(), TierError> {
    let backlog = Arc::<Mutex<Backlog>>::default();
    for idx in 0..shared.options.pread_threads {
        let (shared, lane, backlog) = (Arc::clone(shared), Arc::clone(lane), Arc::clone(&backlog));
        let thread = thread::Builder::new()
            .name(format!("hotshelf-pread-{idx}"))
            .spawn(move || while serve_one(&shared, &lane, &backlog) {})
            .map_err(|error| TierError::system("start an I/O thread", error))?;
        threads.push(thread);
    }
    Ok(())
}

/// Waits for one operation and runs it; false when the engine stops.
fn serve_one(shared: &Shared, lane: &Lane, backlog: &Mutex<Backlog>) -> bool {
    match lead(shared, lane, &mut backlog.lock()) {
        None => false,
        Some(operation) => {
            run(operation, shared);
            true
        }
    }
}

fn lead(shared: &Shared, lane: &Lane, backlog: &mut Backlog) -> Option<Operation> {
    loop {
        backlog.accept(lane.collect(), shared);
        if backlog.is_stopping() {
            return None;
        }
        let time_max = match backlog.next(usize::MAX, shared) {
            Next::Run(operation) => return Some(operation),
            Next::Hold(time) => Some(time),
            Next::Nothing | Next::NoRoom => None,
        };
        backlog.accept(lane.wait(time_max), shared);
    }
}

/// Runs an operation, and what it falls apart into, to the end.
pub(super) fn run(operation: Operation, shared: &Shared) {
    let mut remaining = vec![operation];
    while let Some(mut operation) = remaining.pop() {
        match call_until_over(&mut operation, shared) {
            Ok(result) => remaining.extend(operation.end(result, shared)),
            Err(error) => operation.abandon(shared, |_| error.clone()),
        }
    }
}

fn call_until_over(
    operation: &mut Operation,
    shared: &Shared,
) -> Result<Result<(), i32>, TierError> {
    loop {
        let result = match operation.prepare(shared)? {
            Some(errno) => -errno,
            None => preadv(operation),
        };
        if let Progress::Over(result) = operation.progress(result, shared) {
            return Ok(result);
        }
    }
}

/// One device call: bytes read, or a negative error number.
fn preadv(operation: &Operation) -> i32 {
    let vectors = operation.vectors();
    let fd = operation.file().raw_fd();
    let Ok(position) = libc::off_t::try_from(operation.position()) else {
        return -libc::EINVAL;
    };
    // SAFETY: The vectors describe memory that the operation's reads (or the scratch buffer) own and keep until the
    // operation ends; there are at most UIO_MAXIOV of them. The file stays open as long as the operation.
    let bytes = unsafe { libc::preadv(fd, vectors.as_ptr(), vectors.len() as i32, position) };
    if bytes >= 0 {
        return i32::try_from(bytes).unwrap_or(i32::MAX);
    }
    -std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}
