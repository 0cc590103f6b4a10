//! A database: a folder with a catalog, data files and a lock; the engine that reads them; sessions on top.

mod files;
mod indexes;
mod merging;
mod names;
mod scratch;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::cache::cache_manager::CacheManagerConfig;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use hotshelf_cache::tuner::TunerThread;
use hotshelf_cache::{CacheManager, CacheOptions, ColumnId, FileId};
use hotshelf_store::folder::folder_name;
use hotshelf_store::{RepairReport, Store, StoreError, vortex_session};
use hotshelf_tier::io::{IoEngine, IoOptions};
use parking_lot::{Mutex, RwLock};
use vortex::session::VortexSession;

use crate::error::{Error, Result, nearest};
use crate::index::ElfStore;
use crate::memory::OperatorPool;
use crate::options::Options;
use crate::pipelines::{Observers, PipelineLog};
use crate::prices::PriceBook;
use crate::profile::{self, EngineProfile};
use crate::scan::ScanEnv;
use crate::session::Session;
use crate::table::Table;
use hotshelf_store::catalog::{FileRow, Names, TableRow};
use hotshelf_store::data_file::{FilePaths, Opener, TableFile, WriteGate, check_storable};

use files::{RowOrder, UnfinishedFolder, Writing, remove_busy_folder};
use merging::Merger;
use scratch::{SPILL, ScratchFolder, TEMPORARY};

pub use hotshelf_store::verify::VerifyReport;
pub use indexes::IndexSpec;
pub(crate) use indexes::default_index_name;
pub(crate) use merging::Merging;
pub(crate) use names::{PUBLIC, full_name, split};

/// An open database. Cheap to clone; the last clone closes it.
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
    /// Ends with the last clone, which the engine's own handles are not.
    _merger: Option<Arc<Merger>>,
}

pub(crate) struct Inner {
    pub store: Store,
    pub options: RwLock<Options>,
    /// How this machine wants to be used.
    pub profile: Arc<EngineProfile>,
    write_gate: Arc<WriteGate>,
    pub engine: Arc<IoEngine>,
    pub cache: Arc<CacheManager>,
    /// Opens data and index files when they are first read.
    pub opener: Arc<Opener>,
    /// Elfs in memory.
    pub elfs: Arc<ElfStore>,
    /// Chooses what the HPCache policies keep. Without it (no thread to be had) they keep what they kept.
    pub tuner: Option<Arc<TunerThread>>,
    pub vortex: VortexSession,
    pub runtime_env: Arc<RuntimeEnv>,
    pub pool: Arc<OperatorPool>,
    tables: RwLock<BTreeMap<String, Arc<Table>>>,
    /// Schemas and views.
    names: RwLock<Names>,
    /// One change at a time: names, file numbers and the catalog move together.
    changes: Mutex<()>,
    /// One rewriting of files at a time: making indexes and merging files.
    rewrites: tokio::sync::Mutex<()>,
    /// Merging of small files in the background.
    pub merging: Arc<Merging>,
    next_column_id: AtomicU32,
    /// `table.column` of each number the cache knows, for the table functions.
    pub column_names: RwLock<Vec<(String, String)>>,
    /// Path below `data` of each file the cache knows, for the table functions.
    pub file_names: RwLock<BTreeMap<FileId, String>>,
    pub queries: AtomicU64,
    /// The latest runs of pipelines.
    pub pipelines: Arc<PipelineLog>,
    /// What scans see of all this.
    pub scan_env: Arc<ScanEnv>,
    workers: Workers,
    /// Where rows are spilled.
    spill: ScratchFolder,
    /// The folder of a temporary database.
    scratch: Option<ScratchFolder>,
}

impl Database {
    /// Opens the database in `folder`, or makes one in a folder that is new or empty.
    ///
    /// Only the catalog is read: data files are opened when they are first needed.
    ///
    /// Fails if another process has it open, if the folder holds something else, or if the catalog cannot be read.
    pub fn open(folder: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_inner(folder.as_ref(), options, None)
    }

    /// A database in a scratch folder that disappears with the last clone.
    pub fn temporary(options: Options) -> Result<Self> {
        let scratch = ScratchFolder::create(&std::env::temp_dir(), TEMPORARY)?;
        let folder = scratch.path().to_owned();
        Self::open_inner(&folder, options, Some(scratch))
    }

    fn open_inner(folder: &Path, options: Options, scratch: Option<ScratchFolder>) -> Result<Self> {
        options.validate()?;
        let (store, rows) = Store::open(folder, options.create)?;
        let profile = EngineProfile::load(folder, options.machine_profile, options.threads);
        if let Some(notice) = &profile.notice {
            tracing::warn!("{notice}");
        }
        let profile = Arc::new(profile);
        let runtime = start_workers(options.threads, profile.clone())
            .map_err(Error::io("start worker threads for", folder))?;
        let engine = IoEngine::start(IoOptions {
            threads: profile.io_threads.value,
            depth: profile.io_depth.value,
            merge_bytes_max: profile.io_bytes.value,
            in_flight_bytes_max: profile.look_ahead_bytes.value as usize,
            direct: options.direct_io,
            bandwidth_bytes_per_s_max: options.storage_bandwidth_max,
            // Freed buffers kept for reuse are memory too: small budgets keep few.
            pool_bytes_max: (options.budget_bytes / 16).min(32 << 20) as usize,
            ..IoOptions::default()
        })?;
        let cache = CacheManager::new(CacheOptions {
            budget_bytes: options.budget_bytes,
            policy: options.policy,
            ..CacheOptions::default()
        });
        let readers = profile.serialise.value.then(|| engine.clone());
        let write_gate = Arc::new(WriteGate::new(
            profile.writers.value,
            profile.write_bytes.value,
            readers,
        ));
        let tuner = TunerThread::start(&cache, profile.tuner_options())
            .inspect_err(|error| tracing::warn!(%error, "no thread for the tuner"));
        let pool = Arc::new(OperatorPool::new(cache.clone(), options.operator_bytes_min));
        let spill = spill_folder(folder, &options)?;
        let runtime_env = RuntimeEnvBuilder::new()
            .with_memory_pool(pool.clone())
            .with_disk_manager_builder(disk_manager(&spill, &options))
            .with_cache_manager(without_file_caches())
            .build_arc()
            .map_err(Error::from_query)?;
        let names = store.names()?;
        let merging = Arc::new(Merging::new(options.merge_files));
        let vortex = vortex_session();
        let opener = store.opener(&engine, &cache, vortex.clone());
        let (elfs, tuner) = (ElfStore::new(cache.clone()), tuner.ok().map(Arc::new));
        let pipelines = Arc::<PipelineLog>::default();
        let scan_env = ScanEnv {
            cache: cache.clone(),
            elfs: elfs.clone(),
            vortex: vortex.clone(),
            observers: Observers::new(&tuner, &pipelines),
            io: engine.clone(),
            prices: PriceBook::new(&cache, &engine, &profile),
            look_ahead_bytes_max: profile.look_ahead_bytes.value,
            descriptor_count_max: opener.descriptors().limit(),
        };
        let inner = Inner {
            opener,
            store,
            options: RwLock::new(options),
            profile,
            write_gate,
            engine,
            elfs,
            cache,
            tuner,
            vortex,
            runtime_env,
            pool,
            tables: RwLock::default(),
            names: RwLock::new(names),
            changes: Mutex::new(()),
            rewrites: tokio::sync::Mutex::default(),
            merging,
            next_column_id: AtomicU32::new(0),
            column_names: RwLock::default(),
            file_names: RwLock::default(),
            queries: AtomicU64::new(0),
            pipelines,
            scan_env: Arc::new(scan_env),
            workers: Workers::new(runtime),
            spill,
            scratch,
        };
        for row in rows {
            let table = inner.open_table(row);
            inner
                .tables
                .write()
                .insert(table.name.clone(), Arc::new(table));
        }
        let inner = Arc::new(inner);
        let merger = merging::start(&inner);
        Ok(Self {
            inner,
            _merger: Some(Arc::new(merger)),
        })
    }

    /// Makes the catalog of the database in `folder` again if it is missing, damaged or does not fit the data; the old
    /// one is kept in `lost+found`. Data files are only read.
    pub fn repair(folder: impl AsRef<Path>) -> Result<RepairReport> {
        Ok(hotshelf_store::repair(folder.as_ref())?)
    }

    /// A session: SQL with its own settings over the shared tables.
    pub fn session(&self) -> Session {
        Session::new(self)
    }

    /// The database's folder.
    pub fn folder(&self) -> &Path {
        self.inner.store.root().path()
    }

    /// Runs a future on the database's worker threads and waits for it. Not to be called from async code.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.inner.workers.handle.block_on(future)
    }

    /// Ends the database for a program that is about to exit: waits at most `patience` for the worker threads,
    /// then removes the temporary files. Tasks end at their next await; one that computes longer is left behind.
    /// Nothing can run in the database afterwards. Not to be called from async code.
    pub fn shut_down(&self, patience: Duration) {
        self.inner.workers.end(patience);
        let scratch = self.inner.scratch.iter();
        for folder in std::iter::once(&self.inner.spill).chain(scratch) {
            remove_busy_folder(folder.path());
        }
    }

    /// The segment cache, for its statistics and settings.
    pub fn cache(&self) -> &Arc<CacheManager> {
        &self.inner.cache
    }

    /// What decides how much of each column HPCache keeps; `None` if the system refused it a thread.
    pub fn tuner(&self) -> Option<&Arc<TunerThread>> {
        self.inner.tuner.as_ref()
    }

    /// The I/O engine, for its statistics.
    pub fn io_engine(&self) -> &Arc<IoEngine> {
        &self.inner.engine
    }

    /// Names of all tables, in order.
    pub fn table_names(&self) -> Vec<String> {
        self.inner.tables.read().keys().cloned().collect()
    }

    /// Rows, files and bytes of all tables, in order of their names.
    pub fn tables(&self) -> Vec<TableSummary> {
        self.inner
            .tables
            .read()
            .values()
            .map(|table| table.summary())
            .collect()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

/// What a table holds.
#[derive(Debug, Clone)]
pub struct TableSummary {
    /// Its name.
    pub name: String,
    /// Its columns.
    pub schema: SchemaRef,
    /// Rows in all files.
    pub row_count: u64,
    /// Number of data files.
    pub file_count: usize,
    /// Bytes on disk.
    pub file_bytes: u64,
    /// Why the table cannot be read, if it cannot.
    pub damage: Option<String>,
    /// Why a file of the table could not be opened, if nothing says that it is damaged: the next use tries again.
    pub unavailable: Option<String>,
}

/// What happens to a table of that name when one is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfExists {
    Fail,
    Replace,
}

/// A table to be made.
pub(crate) struct NewTable<'a> {
    pub name: &'a str,
    pub schema: SchemaRef,
    pub if_exists: IfExists,
    /// Columns of the index whose order the rows get; empty for none.
    pub cluster_by: &'a [String],
}

impl Inner {
    /// A handle for the engine's own work: it does not keep merging alive.
    pub fn handle_of_its_own(self: &Arc<Self>) -> Database {
        Database {
            inner: self.clone(),
            _merger: None,
        }
    }

    /// The runtime to work on: the caller's, or else the database's own.
    pub fn handle(&self) -> tokio::runtime::Handle {
        tokio::runtime::Handle::try_current().unwrap_or_else(|_| self.workers.handle.clone())
    }

    /// The table of that name (unqualified, case-sensitive), if there is one.
    pub fn table(&self, name: &str) -> Option<Arc<Table>> {
        let table = self.tables.read().get(name).cloned()?;
        match table.is_incomplete() {
            true => Some(self.open_again(table)),
            false => Some(table),
        }
    }

    /// The table as it was last opened or changed, even if some of it is not open.
    fn table_as_is(&self, name: &str) -> Option<Arc<Table>> {
        self.tables.read().get(name).cloned()
    }

    /// All tables, in order of their names, with their indexes open as far as they can be.
    pub fn opened_tables(&self) -> Vec<Arc<Table>> {
        let names: Vec<String> = self.tables.read().keys().cloned().collect();
        names.iter().filter_map(|name| self.table(name)).collect()
    }

    /// The table with its index files open, and with the data files that could not be read before, if they can be now.
    fn open_again(&self, table: Arc<Table>) -> Arc<Table> {
        let whole = match &table.unavailable {
            Some(_) => self.with_all_files(&table),
            None => None,
        };
        let opened = Arc::new(self.with_indexes(whole.as_ref().unwrap_or(&table)));
        let mut tables = self.tables.write();
        match tables.get_mut(&table.name) {
            Some(current) if Arc::ptr_eq(current, &table) => {
                *current = opened.clone();
                opened
            }
            // Somebody else was faster, or a change has opened its own files; the next use tries again.
            Some(current) => current.clone(),
            None => table,
        }
    }

    /// The table as the catalog has it, if it still has it.
    fn with_all_files(&self, table: &Table) -> Option<Table> {
        let rows = self.store.catalog().tables().unwrap_or_default();
        let row = rows.into_iter().find(|row| row.id == table.id)?;
        Some(self.open_files(row, table.column_ids.clone()))
    }

    /// The table of that name, or an error with the nearest name.
    pub fn require_table(&self, name: &str) -> Result<Arc<Table>> {
        self.table(name).ok_or_else(|| Error::UnknownTable {
            table: name.to_owned(),
            nearest: nearest(name, self.tables.read().keys().map(String::as_str)),
        })
    }

    /// Makes a table of the rows of `inputs`, one file for each, in the order of the index if there is to be
    /// one. All or nothing.
    pub async fn create_table(
        self: &Arc<Self>,
        new: NewTable<'_>,
        inputs: Vec<SendableRecordBatchStream>,
        rows_written: Arc<AtomicU64>,
    ) -> Result<u64> {
        let NewTable {
            name,
            schema,
            if_exists,
            cluster_by,
        } = new;
        check_storable(&schema, &self.vortex)?;
        let index = self.first_index(name, &schema, cluster_by)?;
        let order = index
            .as_ref()
            .map(|index| self.order_by(&schema, index.columns.clone()));
        if if_exists == IfExists::Fail && self.table(name).is_some() {
            return Err(Error::TableExists {
                table: name.to_owned(),
            });
        }
        // The folder's number need not be the table's id: it only has to be new.
        let folder = folder_name(name, self.store.next_number()?);
        let unfinished = UnfinishedFolder::new(self.store.root(), &folder);
        let files = self
            .write_files(&folder, &schema, inputs, rows_written, Writing::new(order))
            .await?;
        self.store.root().sync_folder(&self.store.root().data())?;
        let files = self.drop_empty(files, &folder);
        let row_count = files.iter().map(|file| file.stats.row_count).sum();
        let mut row = TableRow::new(name.to_owned(), folder, schema, files);
        if let Some(index) = index {
            row.indexes.push(self.index_new_table(&row, index).await?);
        }
        unfinished.keep_if(self.commit_table(row, if_exists))?;
        Ok(row_count)
    }

    fn commit_table(&self, mut row: TableRow, if_exists: IfExists) -> Result<()> {
        let _change = self.changes.lock();
        self.check_name(&row.name)?;
        if self.view(&row.name).is_some() {
            return Err(Error::OtherKind {
                name: row.name,
                found: "view",
                wanted: "stored table",
            });
        }
        let old = self.table(&row.name);
        if old.is_some() && if_exists == IfExists::Fail {
            return Err(Error::TableExists { table: row.name });
        }
        for index in &row.indexes {
            self.ensure_new_index(&index.definition.name, Some(&row.name))?;
        }
        let replaced = old.as_ref().map(|table| (table.id, table.folder.as_str()));
        row.id = self.store.add_table(&row, replaced)?;
        let table = Arc::new(self.open_table(row));
        self.tables.write().insert(table.name.clone(), table);
        Ok(())
    }

    /// Appends the rows of `input` to a table as one file. All or nothing; an empty input adds no file.
    pub async fn append(
        self: &Arc<Self>,
        name: &str,
        inputs: Vec<SendableRecordBatchStream>,
        rows_written: Arc<AtomicU64>,
    ) -> Result<u64> {
        let table = self.require_table(name)?;
        let folder = &table.folder;
        let files = self
            .write_files(
                folder,
                &table.schema,
                inputs,
                rows_written,
                Writing::new(self.order_of(&table)),
            )
            .await?;
        let files = self.drop_empty(files, folder);
        let row_count = files.iter().map(|file| file.stats.row_count).sum();
        self.exchange_files(&table, &[], files, None).await?;
        if let Some(table) = self.table(name) {
            self.merging.look_at(&table);
        }
        Ok(row_count)
    }

    /// Drops a table. Queries that read it finish; its files go when they have.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let _change = self.changes.lock();
        let table = self.require_table(name)?;
        self.store.drop_table(table.id, &table.folder)?;
        self.tables.write().remove(name);
        Ok(())
    }

    fn open_table(&self, row: TableRow) -> Table {
        let column_ids = self.number_columns(&row.name, &row.schema);
        self.open_files(row, column_ids)
    }

    fn open_files(&self, row: TableRow, column_ids: Vec<ColumnId>) -> Table {
        let (folder, schema) = (row.folder.clone(), row.schema.clone());
        Table::open(row, column_ids, |file, ids| {
            self.table_file(&folder, file, (&schema, ids))
        })
    }

    /// A data file as the catalog knows it. It is opened when it is read.
    pub(crate) fn table_file(
        &self,
        table_folder: &str,
        file: FileRow,
        columns: (&SchemaRef, &[ColumnId]),
    ) -> Result<TableFile, StoreError> {
        let paths = FilePaths::new(self.store.root(), table_folder, file.number);
        let name = format!("{table_folder}/{}.vortex", file.number);
        let file = TableFile::new(file, paths, columns, &self.opener)?;
        self.file_names.write().insert(file.cache_id(), name);
        Ok(file)
    }

    /// New numbers for a table's columns, and one for what belongs to the whole table.
    fn number_columns(&self, table: &str, schema: &SchemaRef) -> Vec<ColumnId> {
        let mut names = self.column_names.write();
        let columns = schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .chain([String::new()]);
        columns
            .map(|column| {
                names.push((table.to_owned(), column));
                ColumnId(self.next_column_id.fetch_add(1, Ordering::Relaxed))
            })
            .collect()
    }
}

impl Database {
    /// Reads every data file again, past the cache, and compares all checksums.
    /// `progress` gets data files done and data files in all.
    pub fn verify(&self, progress: impl FnMut(usize, usize)) -> Result<VerifyReport> {
        Ok(self.inner.store.verify(progress)?)
    }
}

/// The folder for spilled rows: where the options say, beside the data, or where the system has its temporary files.
fn spill_folder(folder: &Path, options: &Options) -> Result<ScratchFolder> {
    if let Some(place) = &options.spill_folder {
        return ScratchFolder::create(place, SPILL);
    }
    let beside = ScratchFolder::create(&folder.join("spill"), SPILL);
    // The database may be on a medium that can only be read.
    beside.or_else(|_| ScratchFolder::create(&std::env::temp_dir(), SPILL))
}

/// Listings and statistics of files in place are made for each query: others may change the files at any time.
fn without_file_caches() -> CacheManagerConfig {
    CacheManagerConfig::default()
        .with_list_files_cache_limit(0)
        .with_file_statistics_cache_limit(0)
}

fn disk_manager(spill: &ScratchFolder, options: &Options) -> DiskManagerBuilder {
    let bytes_max = options.spill_bytes_max.unwrap_or_else(|| {
        let free = rustix::fs::statvfs(spill.path());
        free.map_or(u64::MAX, |free| free.f_bavail * free.f_frsize / 10 * 9)
    });
    DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::Directories(vec![spill.path().to_owned()]))
        .with_max_temp_directory_size(bytes_max)
}

/// Stack of a worker. Only what is used takes memory.
const WORKER_STACK_BYTES: usize = 16 << 20;

/// The worker threads. They end with the database, or before it if the program is about to exit.
struct Workers {
    handle: tokio::runtime::Handle,
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
}

impl Workers {
    fn new(runtime: tokio::runtime::Runtime) -> Self {
        Self {
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
        }
    }

    fn end(&self, patience: Duration) {
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            runtime.shutdown_timeout(patience);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // A task may be the last to let go of the database: its thread cannot wait for itself.
        if tokio::runtime::Handle::try_current().is_ok()
            && let Some(runtime) = self.runtime.get_mut().take()
        {
            runtime.shutdown_background();
        }
    }
}

/// Worker threads, where the profile wants them.
fn start_workers(
    threads: usize,
    profile: Arc<EngineProfile>,
) -> std::io::Result<tokio::runtime::Runtime> {
    let started = AtomicUsize::new(0);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("hotshelf")
        .thread_stack_size(WORKER_STACK_BYTES)
        .on_thread_start(move || {
            let worker_idx = started.fetch_add(1, Ordering::Relaxed);
            if let Some(cpus) = profile.cpus_of(worker_idx, threads) {
                profile::pin(&cpus);
            }
        })
        .enable_all()
        .build()
}
