//! What the product's Elf is compared with: the papers' layout ([`linear`]), scans, and a choice between Elf and
//! scan with prices fitted to the machine ([`calibrate()`]).

mod calibrate;
pub mod linear;
mod planner;
pub mod scan;
#[cfg(test)]
mod tests;

pub use calibrate::{Calibration, calibrate, sample_queries};
pub use planner::{Path, START, ScanCost, choose, fit};

/// Runs `work` over `items` on up to `thread_count` threads, this one among them.
fn for_each_parallel<T: Send>(thread_count: usize, items: Vec<T>, work: impl Fn(T) + Sync) {
    let queue = std::sync::Mutex::new(items.into_iter());
    let take_items = || {
        loop {
            let item = queue.lock().expect("no item panics").next();
            match item {
                Some(item) => work(item),
                None => break,
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..thread_count {
            scope.spawn(take_items);
        }
        take_items();
    });
}
