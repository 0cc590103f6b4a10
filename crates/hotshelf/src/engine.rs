//! The engine side of a database: the memory and the temporary files of running queries, what HPCache learns of them,
//! and the settings that all sessions share.
//!
//! It sees the machine, and of the storage only what scans need. Scans see the [`ScanEnv`] alone.

mod memory;
mod settings;
mod temp_files;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::execution::TaskContext;
use datafusion::execution::cache::cache_manager::CacheManagerConfig;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;
use hotshelf_cache::CacheManager;
use hotshelf_cache::tuner::TunerThread;
use hotshelf_operators::spill::{SpillFolder, SpillOptions};

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::options::Options;
use crate::pipelines::{Observers, PipelineLog};
use crate::prices::PriceBook;
use crate::scan::ScanEnv;
use crate::settings::SessionSettings;
use crate::storage::{Merging, Storage};

use temp_files::TempFiles;

pub(crate) use memory::{OperatorKind, OperatorPool, QueryMemory, QueryPool};

/// What runs the queries of a database.
pub(crate) struct Engine {
    pub machine: Arc<Machine>,
    pub cache: Arc<CacheManager>,
    /// Chooses what the HPCache policies keep. Without it (the system refused a thread) they keep what they kept.
    pub tuner: Option<Arc<TunerThread>>,
    /// The memory of operators.
    pub pool: Arc<OperatorPool>,
    pub runtime_env: Arc<RuntimeEnv>,
    /// Where operators spill.
    pub spill: Arc<SpillFolder>,
    /// The latest runs of pipelines.
    pub pipelines: Arc<PipelineLog>,
    /// All that scans see of the database.
    pub scan_env: Arc<ScanEnv>,
    merging: Arc<Merging>,
    query_count: AtomicU64,
}

impl Engine {
    /// An engine over a storage.
    pub fn start(storage: &Arc<Storage>, options: &Options) -> Result<Self> {
        let (machine, cache) = (storage.machine.clone(), storage.cache.clone());
        let prices = Arc::new(PriceBook::new(&cache, &machine.io, &machine.profile));
        let tuner = TunerThread::start(&cache, prices.tuner_options())
            .inspect_err(|error| tracing::warn!(%error, "no thread for the tuner"));
        let tuner = tuner.ok().map(Arc::new);
        let pool = Arc::new(OperatorPool::new(
            cache.clone(),
            options.operator_bytes_min,
            options.owns_process,
            machine
                .profile
                .write_bandwidth
                .value
                .map(|rate| rate as f64),
        ));
        let folder = storage.scratch.spill();
        let spill = SpillOptions {
            path: folder.to_owned(),
            limit_bytes: spill_bytes_max(folder, options),
        };
        let spill = SpillFolder::open(spill, machine.io.clone())?;
        let temp_files = Arc::new(TempFiles(spill.clone()));
        let runtime_env = RuntimeEnvBuilder::new()
            .with_memory_pool(pool.clone())
            .with_disk_manager_builder(
                DiskManagerBuilder::default().with_temp_file_factory(temp_files),
            )
            .with_cache_manager(without_file_caches())
            .build_arc()
            .map_err(Error::from_query)?;
        let pipelines = Arc::<PipelineLog>::default();
        let scan_env = ScanEnv {
            cache: cache.clone(),
            elfs: storage.elfs.clone(),
            look_ups: storage.look_ups.clone(),
            shelves: storage.opener.shelves().clone(),
            vortex: storage.vortex.clone(),
            observers: Observers::new(&tuner, &pipelines),
            prices,
            io: machine.io.clone(),
            descriptor_count_max: storage.opener.descriptors().limit(),
            _held_open: storage.clone(),
        };
        Ok(Self {
            machine,
            cache,
            tuner,
            pool,
            runtime_env,
            spill,
            pipelines,
            scan_env: Arc::new(scan_env),
            merging: storage.merging.clone(),
            query_count: AtomicU64::new(0),
        })
    }

    /// A number for a query, from 1.
    pub fn next_query(&self) -> u64 {
        self.query_count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What operators run with that are in no query.
    pub fn task_context(&self) -> Arc<TaskContext> {
        let config = SessionConfig::new()
            .with_target_partitions(self.machine.threads)
            .with_option_extension(SessionSettings::outside_sessions())
            .with_extension(self.spill.clone());
        Arc::new(TaskContext::new(
            None,
            String::new(),
            config,
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            self.runtime_env.clone(),
        ))
    }

    pub fn budget_bytes(&self) -> u64 {
        self.cache.budget().limit_bytes()
    }
}

/// Listings and statistics of files in place are made for each query: others may change the files at any time.
fn without_file_caches() -> CacheManagerConfig {
    CacheManagerConfig::default()
        .with_list_files_cache_limit(0)
        .with_file_statistics_cache_limit(0)
}

/// What may be spilled: what the options say, or most of what is free.
fn spill_bytes_max(spill: &Path, options: &Options) -> u64 {
    options.spill_bytes_max.unwrap_or_else(|| {
        let free = rustix::fs::statvfs(spill);
        free.map_or(u64::MAX, |free| free.f_bavail * free.f_frsize / 10 * 9)
    })
}
