//! The engine as a whole, against plain file reads, over every back end and both kinds of file access.

mod ending;
mod faults;
mod limits;
mod reading;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::NamedTempFile;

use super::*;
use crate::TierError;

type Answer = Result<Bytes, TierError>;

const PAGE: usize = PAGE_BYTES;
/// No answer takes this long unless it is lost.
const LOST: Duration = Duration::from_secs(60);
/// Not the time that the work takes on a slow engine, even on a machine that is busy with something else.
const AT_ONCE: Duration = Duration::from_secs(8);

fn content(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16).wrapping_mul(7)) as u8)
        .collect()
}

fn file_of(len: usize) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&content(len)).unwrap();
    file
}

/// An engine of each back end the machine has, with direct and with buffered access.
fn engines(options: &IoOptions) -> Vec<Arc<IoEngine>> {
    let mut engines = Vec::new();
    for backend in [Backend::Uring, Backend::Pread] {
        for direct in [true, false] {
            let options = IoOptions {
                backend,
                direct,
                pread_threads: 3,
                ..options.clone()
            };
            match IoEngine::start(options) {
                Ok(engine) => engines.push(engine),
                Err(TierError::System { .. }) if backend == Backend::Uring => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
    engines
}

fn each_engine(test: impl Fn(Arc<IoEngine>)) {
    engines(&IoOptions::default()).into_iter().for_each(test);
}

/// An engine so slow that reads wait for as long as a test needs.
fn slow() -> IoOptions {
    IoOptions {
        bandwidth_bytes_per_s_max: Some(2 * PAGE as u64),
        ..IoOptions::default()
    }
}

/// A callback that sends the answer with a tag.
fn sending<T: Send + 'static>(to: &Sender<(T, Answer)>, tag: T) -> Done {
    let to = to.clone();
    Box::new(move |answer| drop(to.send((tag, answer))))
}

/// Reads all ranges as one batch; answers in the order of the ranges.
fn read_batch(engine: &IoEngine, file: &Arc<IoFile>, ranges: &[(u64, usize)]) -> Vec<Answer> {
    let (sender, receiver) = channel();
    let request = |(idx, &(offset, len)): (usize, &(u64, usize))| ReadRequest {
        file: Arc::clone(file),
        offset,
        len,
        done: sending(&sender, idx),
    };
    let tickets = engine.submit_batch(ranges.iter().enumerate().map(request));
    let mut answers: Vec<_> = tickets
        .iter()
        .map(|_| receiver.recv_timeout(LOST).unwrap())
        .collect();
    answers.sort_by_key(|(idx, _)| *idx);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Waits for the answers and makes sure that no more than these come.
fn all_answers<T>(receiver: Receiver<(T, Answer)>, count: usize) -> Vec<(T, Answer)> {
    let answers: Vec<_> = (0..count)
        .map(|_| receiver.recv_timeout(LOST).unwrap())
        .collect();
    assert!(receiver.recv_timeout(Duration::from_millis(1)).is_err());
    answers
}

fn is_cancelled(answer: &Answer) -> bool {
    matches!(answer, Err(TierError::Cancelled { .. }))
}
