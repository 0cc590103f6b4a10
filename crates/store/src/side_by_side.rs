//! Work that mostly waits for a device, on a few threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Threads that wait at the same time.
const THREADS: usize = 8;
/// Fewer items than this are not worth a thread of their own.
const ITEMS_MIN: usize = 4;

/// The results of `work` for each item, in their order.
pub fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = (items.len() / ITEMS_MIN).min(THREADS);
    if threads < 2 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let run = || {
        while let Some((idx, item)) = {
            let idx = next.fetch_add(1, Ordering::Relaxed);
            items.get(idx).map(|item| (idx, item))
        } {
            let result = work(item);
            done.lock().push((idx, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If no thread can be started, the others do its share.
            let spawned = std::thread::Builder::new().spawn_scoped(scope, run);
            spawned.ok();
        }
        run();
    });
    let mut done = done.into_inner();
    done.sort_unstable_by_key(|(idx, _)| *idx);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        for count in [0, 1, 7, 8, 100] {
            let items: Vec<usize> = (0..count).collect();
            let expected: Vec<usize> = items.iter().map(|item| item * 2).collect();
            assert_eq!(side_by_side(&items, |item| item * 2), expected);
        }
    }
}
