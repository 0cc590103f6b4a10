//! The worker threads. They end with the database, or before it if the program is about to exit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hotshelf_tier::topology::{allowed_cpus, pin_to};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

use super::profile::EngineProfile;

/// Stack of a worker. Only what is used takes memory.
const STACK_BYTES: usize = 16 << 20;

/// The worker threads of a database.
pub(crate) struct Workers {
    handle: Handle,
    runtime: Mutex<Option<Runtime>>,
}

impl Workers {
    /// Starts the threads where the profile wants them.
    pub fn start(threads: usize, profile: Arc<EngineProfile>) -> std::io::Result<Self> {
        let (started, anywhere) = (AtomicUsize::new(0), allowed_cpus());
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("hotshelf")
            .thread_stack_size(STACK_BYTES)
            .on_thread_start(move || {
                let worker_idx = started.fetch_add(1, Ordering::Relaxed);
                let cpus = profile.cpus_of(worker_idx, threads);
                // A thread begins where the one may run that starts it, which can be near a shelf for a moment. A
                // system that refuses leaves it there.
                if let Err(error) = pin_to(cpus.as_deref().unwrap_or(&anywhere)) {
                    tracing::debug!(%error, "cannot pin a worker");
                }
            })
            .enable_all()
            .build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
        })
    }

    /// The runtime to work on: the caller's, or else the workers'.
    pub fn handle(&self) -> Handle {
        Handle::try_current().unwrap_or_else(|_| self.handle.clone())
    }

    /// Runs a future on the workers and waits for it. Not to be called from async code.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Ends the threads, and waits at most `patience` for them.
    pub fn end(&self, patience: Duration) {
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            runtime.shutdown_timeout(patience);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // A task may drop the last handle of the database: its thread cannot wait for itself.
        if Handle::try_current().is_ok()
            && let Some(runtime) = self.runtime.get_mut().take()
        {
            runtime.shutdown_background();
        }
    }
}
