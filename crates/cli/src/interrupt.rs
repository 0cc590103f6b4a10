//! Ctrl-C: the first ends the work cleanly, the second ends the program.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hotshelf::Database;

use crate::failure::{Failure, Result};

/// Runs `work` on the database's threads until it is done or Ctrl-C is pressed; then it is dropped, which
/// cancels queries and takes imports back.
pub fn run<T>(database: &Database, work: impl Future<Output = Result<T>>) -> Result<T> {
    database.block_on(async {
        let second = tokio::spawn(async {
            if tokio::signal::ctrl_c().await.is_ok() && tokio::signal::ctrl_c().await.is_ok() {
                std::process::exit(130);
            }
        });
        let done = tokio::select! {
            biased;
            Ok(()) = tokio::signal::ctrl_c() => Err(Failure::Interrupted),
            done = work => done,
        };
        second.abort();
        done
    })
}

/// A flag that Ctrl-C raises, for work that looks at it now and then.
pub fn flag() -> Result<Arc<AtomicBool>> {
    let raised = Arc::new(AtomicBool::new(false));
    let flag = raised.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::io("listen to", Path::new("signals")))?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                flag.store(true, Ordering::Relaxed);
            }
            if tokio::signal::ctrl_c().await.is_ok() {
                std::process::exit(130);
            }
        });
    });
    Ok(raised)
}
