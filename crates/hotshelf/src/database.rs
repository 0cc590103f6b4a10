//! A database: a folder that is open, and the handle by which programs use it.
//!
//! It consists of three parts, each of which sees only those before it:
//!
//! * [`Machine`]: threads, the I/O engine and how this machine wants to be used;
//! * [`Storage`]: tables, files, indexes and their changes;
//! * [`Engine`]: memory of queries, the tuner and the settings that sessions share.
//!
//! Sessions, imports and table functions see all three. A function that needs one of them takes that one.

mod merger;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hotshelf_store::{RepairReport, Store};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::kept_plans::KeptPlans;
use crate::learned;
use crate::machine::Machine;
use crate::options::Options;
use crate::past_runs::PastRuns;
use crate::rewriting::Rewriter;
use crate::storage::{Scratch, ScratchFolder, Storage};
use crate::table::TableSummary;

use merger::Merger;

pub use hotshelf_store::verify::{Damage, VerifyReport};

/// An open database. `Send + Sync` and cheap to clone; the last clone closes it.
#[derive(Clone)]
pub struct Database {
    parts: Arc<Parts>,
    /// Ends with the last clone; the task itself holds the parts only while it merges.
    _merger: Arc<Merger>,
}

/// The parts of an open database.
pub(crate) struct Parts {
    pub storage: Arc<Storage>,
    pub engine: Arc<Engine>,
    pub machine: Arc<Machine>,
    pub plans: Arc<KeptPlans>,
    /// What queries showed about their joins.
    pub past_runs: Arc<PastRuns>,
}

impl Parts {
    fn open(folder: &Path, options: &Options, temporary: Option<ScratchFolder>) -> Result<Self> {
        options.validate()?;
        let (store, rows) = Store::open_or_temporary(folder, options.create, temporary.is_some())?;
        let scratch = Scratch::create(folder, options, temporary)?;
        let machine = Arc::new(Machine::start(folder, options)?);
        let plans = Arc::new(KeptPlans::new(options.budget_bytes));
        let storage = Storage::new(store, rows, scratch, machine.clone(), &plans, options)?;
        let storage = Arc::new(storage);
        let past_runs = Arc::new(learned::recall(&storage));
        let engine = Engine::start(&storage, options)?;
        Ok(Self {
            storage,
            engine: Arc::new(engine),
            machine,
            plans,
            past_runs,
        })
    }

    pub fn rewriter(&self) -> Rewriter<'_> {
        Rewriter {
            storage: &self.storage,
            engine: &self.engine,
        }
    }
}

/// What queries showed is for the next process, too.
impl Drop for Parts {
    fn drop(&mut self) {
        learned::keep(&self.storage, &self.past_runs);
    }
}

impl Database {
    /// Opens the database in `folder`, or makes one in a folder that is new or empty.
    ///
    /// Only the catalog is read: data files are opened when they are first needed.
    ///
    /// # Errors
    /// Another process has it open, the folder holds something else, the catalog cannot be read
    /// ([`ErrorKind::Database`](crate::ErrorKind::Database)), or an option makes no sense.
    ///
    /// # Examples
    /// ```
    /// use hotshelf::{Database, Options};
    ///
    /// # fn main() -> hotshelf::Result<()> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let folder = scratch.path().join("mydb");
    /// let options = || Options { budget_bytes: 64 << 20, ..Options::default() };
    /// let database = Database::open(&folder, options())?;
    /// database.session().query("CREATE TABLE t AS VALUES (1), (2)")?;
    /// // One process at a time; dropping the last handle closes the database.
    /// assert!(Database::open(&folder, options()).is_err());
    /// drop(database);
    /// let database = Database::open(&folder, options())?;
    /// assert_eq!(database.table_names(), ["t"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(folder: impl AsRef<Path>, options: Options) -> crate::Result<Self> {
        let parts = Parts::open(folder.as_ref(), &options, None)?;
        Ok(Self::of(parts))
    }

    /// A database in a scratch folder that disappears with the last clone.
    ///
    /// # Errors
    /// The folder for temporary files cannot be written, or an option makes no sense.
    pub fn temporary(options: Options) -> crate::Result<Self> {
        let scratch = ScratchFolder::temporary()?;
        let folder = scratch.path().to_owned();
        let parts = Parts::open(&folder, &options, Some(scratch))?;
        Ok(Self::of(parts))
    }

    fn of(parts: Parts) -> Self {
        let parts = Arc::new(parts);
        Self {
            _merger: Arc::new(merger::start(&parts)),
            parts,
        }
    }

    /// Makes the catalog of the database in `folder` again if it is missing, damaged or does not fit the data; the old
    /// one is kept in `lost+found`. Data files are only read.
    ///
    /// # Errors
    /// The folder is not a database, another process has it open, or it cannot be written.
    ///
    /// # Examples
    /// ```
    /// use hotshelf::{Database, Options};
    ///
    /// # fn main() -> hotshelf::Result<()> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let folder = scratch.path().join("mydb");
    /// let database = Database::open(&folder, Options::default())?;
    /// database.session().query("CREATE TABLE t AS VALUES (1), (2)")?;
    /// drop(database);
    /// std::fs::remove_file(folder.join("catalog.sqlite")).unwrap();
    /// let report = Database::repair(&folder)?;
    /// assert!(!report.is_sound);
    /// assert_eq!((report.tables[0].name.as_str(), report.tables[0].row_count), ("t", 2));
    /// assert!(Database::repair(&folder)?.is_sound);
    /// # Ok(())
    /// # }
    /// ```
    pub fn repair(folder: impl AsRef<Path>) -> crate::Result<RepairReport> {
        Ok(hotshelf_store::repair(folder.as_ref()).map_err(Error::from)?)
    }

    /// Reads every data file again, bypassing the cache, and compares all checksums.
    /// `progress` gets data files done and data files in all.
    ///
    /// # Errors
    /// Files cannot be read. The report lists damage; it does not fail.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> hotshelf::Result<()> {
    /// # let database = hotshelf::Database::temporary(hotshelf::Options::default())?;
    /// database.session().query("CREATE TABLE t AS VALUES (1), (2)")?;
    /// let report = database.verify(|done, all| println!("{done} of {all} files"))?;
    /// assert_eq!((report.file_count, report.catalog.as_str()), (1, "ok"));
    /// assert!(report.damage.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn verify(&self, progress: impl FnMut(usize, usize)) -> crate::Result<VerifyReport> {
        let store = &self.parts.storage.store;
        Ok(store.verify(progress).map_err(Error::from)?)
    }

    /// The database's folder.
    pub fn folder(&self) -> &Path {
        self.parts.storage.store.root().path()
    }

    /// Runs a future on the database's worker threads and waits for it. Not to be called from async code.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.parts.machine.workers.block_on(future)
    }

    /// Ends the database for a program that is about to exit: waits at most `patience` for the worker threads,
    /// then removes the temporary files. Tasks end at their next await; one that computes longer goes on alone.
    /// Nothing can run in the database afterwards. Not to be called from async code.
    pub fn shut_down(&self, patience: Duration) {
        self.parts.machine.workers.end(patience);
        learned::keep(&self.parts.storage, &self.parts.past_runs);
        self.parts.storage.scratch.remove();
    }

    /// Names of all tables, in order.
    pub fn table_names(&self) -> Vec<String> {
        self.parts.storage.table_names()
    }

    /// Rows, files and bytes of all tables, in order of their names.
    pub fn tables(&self) -> Vec<TableSummary> {
        let tables = self.parts.storage.all_tables();
        tables.iter().map(|table| table.summary()).collect()
    }

    pub(crate) fn parts(&self) -> &Arc<Parts> {
        &self.parts
    }

    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.parts.storage
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.parts.engine
    }

    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.parts.machine
    }
}
