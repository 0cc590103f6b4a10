//! How long a future computes: its waits, and what others do on the same threads, are not counted.

use std::future::{Future, poll_fn};
use std::pin::pin;

use hotshelf_tier::thread_time_ns;

/// Runs a future, and gives the time of the threads that polled it, in nanoseconds.
pub(crate) async fn computed<T>(future: impl Future<Output = T>) -> (T, f64) {
    let mut future = pin!(future);
    let mut took_ns = 0;
    let output = poll_fn(|context| {
        let start_ns = thread_time_ns();
        let polled = future.as_mut().poll(context);
        took_ns += thread_time_ns().saturating_sub(start_ns);
        polled
    });
    let output = output.await;
    (output, took_ns as f64)
}
