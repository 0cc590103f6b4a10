//! Ctrl-C: the first ends the work cleanly, the second ends the program.

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
