//! Rows as sorted packed words: the form from which every layout is built.
//!
//! A [`RowShape`] says where each code and the TID lie in a row's words; comparing the words compares
//! (codes, TID). [`SortedRows`] holds the rows of a table in that order.

mod runs;
mod shape;
mod sort;

pub(crate) use runs::{Run, RunWriter, merge};
pub(crate) use shape::{Field, RowShape, code_bits, place_tightly};
pub use sort::SortedRows;

/// Runs `work` over `items` on up to `thread_count` threads, this one among them, each taking the next item
/// when it is free.
pub(crate) fn for_each_parallel<T: Send>(
    thread_count: usize,
    items: Vec<T>,
    work: impl Fn(T) + Sync,
) {
    let worker_count = thread_count.clamp(1, items.len().max(1));
    if worker_count == 1 {
        items.into_iter().for_each(work);
        return;
    }
    let queue = std::sync::Mutex::new(items.into_iter());
    std::thread::scope(|scope| {
        let take_items = || {
            while let Some(item) = next(&queue) {
                work(item);
            }
        };
        for _ in 1..worker_count {
            scope.spawn(take_items);
        }
        take_items();
    });
}

/// Takes the next item of a queue that threads share.
pub(crate) fn next<T>(queue: &std::sync::Mutex<std::vec::IntoIter<T>>) -> Option<T> {
    // A poisoned queue is still a list of items; the panic itself travels through the scope.
    queue
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .next()
}
