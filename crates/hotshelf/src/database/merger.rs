//! The task that merges small files in the background. After each merge it rests in proportion, so that merging takes
//! [`TIME_SHARE`] of one worker's time at most.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::Parts;
use crate::storage::Merging;

/// The part of a worker's time that merging may take.
const TIME_SHARE: f64 = 0.25;

/// Ends the merging when it is dropped, with the last handle of the database.
pub(super) struct Merger(AbortHandle);

impl Drop for Merger {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Merges the tables that want it until the database is closed.
pub(super) fn start(parts: &Arc<Parts>) -> Merger {
    let (weak, merging) = (Arc::downgrade(parts), parts.storage.merging.clone());
    let workers = parts.machine.workers.handle();
    Merger(workers.spawn(run(weak, merging)).abort_handle())
}

async fn run(parts: Weak<Parts>, merging: Arc<Merging>) {
    loop {
        merging.wait().await;
        while let Some(table) = merging.next() {
            let Some(parts) = parts.upgrade() else { return };
            let begun = Instant::now();
            let has_merged = parts.rewriter().merge_once(&table).await;
            drop(parts);
            if has_merged {
                merging.again(table);
            }
            tokio::time::sleep(rest_after(begun.elapsed())).await;
        }
    }
}

fn rest_after(worked: Duration) -> Duration {
    worked.mul_f64(1.0 / TIME_SHARE - 1.0)
}
