//! The machine side of a database: how this machine wants to be used, the threads that work and the engine that reads
//! files.
//!
//! It knows neither tables nor queries. Everything above may see it.

mod profile;
mod workers;

use std::path::Path;
use std::sync::Arc;

use hotshelf_store::data_file::WriteGate;
use hotshelf_tier::io::{IoEngine, IoOptions};

use crate::error::{Error, Result};
use crate::options::Options;

pub(crate) use profile::{EngineProfile, NAMES, ProfileLine, described};
pub(crate) use workers::Workers;

/// What a database uses of the machine.
pub(crate) struct Machine {
    /// How this machine wants to be used.
    pub profile: Arc<EngineProfile>,
    /// Reads files.
    pub io: Arc<IoEngine>,
    /// Lets as many write at once as the device serves well.
    pub write_gate: Arc<WriteGate>,
    /// Threads of a query, unless its session has its own number.
    pub threads: usize,
    pub workers: Workers,
}

impl Machine {
    /// Starts the threads of a database in `folder`, as the machine profile there says.
    pub fn start(folder: &Path, options: &Options) -> Result<Self> {
        let profile = EngineProfile::load(folder, options.machine_profile, options.threads);
        if let Some(notice) = &profile.notice {
            tracing::warn!("{notice}");
        }
        let profile = Arc::new(profile);
        let workers = Workers::start(options.threads, profile.clone())
            .map_err(Error::io("start worker threads for", folder))?;
        let look_ahead_bytes = profile.look_ahead_bytes(profile.storage_bandwidth.value as f64);
        let io = IoEngine::start(IoOptions {
            threads: profile.io_threads.value,
            depth: profile.io_depth.value,
            merge_bytes_max: profile.io_bytes.value,
            in_flight_bytes_max: look_ahead_bytes as usize,
            direct: options.direct_io,
            bandwidth_bytes_per_s_max: options.storage_bandwidth_max,
            // Freed buffers kept for reuse are memory too: small budgets keep few.
            pool_bytes_max: (options.budget_bytes / 16).min(look_ahead_bytes) as usize,
            ..IoOptions::default()
        })?;
        let readers = profile.serialise.value.then(|| io.clone());
        Ok(Self {
            write_gate: Arc::new(WriteGate::new(
                profile.writers.value,
                profile.write_bytes.value,
                readers,
            )),
            profile,
            io,
            threads: options.threads,
            workers,
        })
    }
}
