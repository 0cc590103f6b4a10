//! A database's store: its folder, its catalog, the numbers of its files, and the removal of files that are no longer
//! needed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hotshelf_cache::CacheManager;
use hotshelf_tier::io::IoEngine;
use hotshelf_tier::profile::PROFILE_FILE;
use parking_lot::Mutex;
use vortex::session::VortexSession;

use crate::catalog::Catalog;
use crate::catalog::entries::{FileChange, Journal, Names, Obsolete, TableRef, TableRow};
use crate::data_file::{FilePaths, Opener, Origin};
use crate::description::Description;
use crate::descriptors::{Descriptors, limit_of_process};
use crate::error::{Result, StoreError};
use crate::folder::ensure_no_data;
use crate::ids::random_id;
use crate::in_use::InUse;
use crate::index::IndexCache;
use crate::names_file;
use crate::placement::Placement;
use crate::root::{CATALOG, DATA, LOST, Lifetime, RESERVE, Root, RootLock};
use crate::shelf::Shelf;
use crate::sweep::{look, sweep};
use crate::verify::{VerifyReport, verify};

/// Numbers reserved at a time: one synced transaction for this many files.
const RESERVED: u64 = 64;
/// How often a folder that is moved while it is being opened is opened again.
const OPEN_TRIES: usize = 3;

/// An open store.
#[derive(Debug)]
pub struct Store {
    root: Root,
    catalog: Arc<Catalog>,
    in_use: Arc<InUse>,
    numbers: Mutex<Numbers>,
    is_read_only: bool,
    _lock: RootLock,
}

/// Numbers of files: each is used once.
#[derive(Debug)]
struct Numbers {
    /// First of those used since the store was opened.
    first: u64,
    next: u64,
    /// End of what the journal reserves.
    until: u64,
}

impl Store {
    /// Opens the store in `folder`, or makes one if the folder is new or empty and `create` is set. Returns it with its
    /// tables.
    ///
    /// # Errors
    /// The folder is locked, or something else than a store; the catalog is lost, older than the data or another
    /// database's, or of a newer format. Nothing has been written then.
    pub fn open(folder: &Path, create: bool) -> Result<(Self, Vec<TableRow>)> {
        Self::open_for(folder, create, Lifetime::Lasting)
    }

    /// As [`Self::open`]; of a temporary store nothing waits for the disk, and its folder is removed with it.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_or_temporary(
        folder: &Path,
        create: bool,
        is_temporary: bool,
    ) -> Result<(Self, Vec<TableRow>)> {
        let lifetime = match is_temporary {
            true => Lifetime::Process,
            false => Lifetime::Lasting,
        };
        Self::open_for(folder, create, lifetime)
    }

    fn open_for(folder: &Path, create: bool, lifetime: Lifetime) -> Result<(Self, Vec<TableRow>)> {
        raise_descriptor_limit();
        let (root, mut lock) = lock_folder(folder, create, lifetime)?;
        ensure_database(&root, create)?;
        let is_read_only = root.is_read_only();
        if !is_read_only {
            root.create_folder(&root.data())?;
        }
        let catalog = Catalog::open(&root)?;
        root.set_database(catalog.last().database);
        let rows = catalog.tables()?;
        if let Some(damage) = catalog.names()?.damages.into_iter().next() {
            return Err(damage.into());
        }
        let journal = catalog.journal()?;
        let unknown = look(&root, &rows, &journal)?;
        unknown.ensure_older(&root, catalog.last())?;
        if !is_read_only {
            root.sign(&mut lock)?;
            catalog.forget(sweep(&root, &rows, &journal, &unknown));
        }
        if catalog.is_current() && !is_read_only {
            describe_all(&root, &catalog, &rows);
        }
        let Journal { reserved, .. } = journal;
        let numbers_used = catalog.next_number();
        numbers_used.fetch_max(unknown.highest_number + 1, Ordering::Relaxed);
        let next = numbers_used.load(Ordering::Relaxed);
        let catalog = Arc::new(catalog);
        let store = Self {
            in_use: InUse::new(&root, &catalog),
            root,
            catalog,
            numbers: Mutex::new(Numbers {
                first: next.max(reserved.start),
                next,
                until: if reserved.contains(&next) {
                    reserved.end
                } else {
                    next
                },
            }),
            is_read_only,
            _lock: lock,
        };
        Ok((store, rows))
    }

    /// The folder.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The catalog, for reading.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// A number for a file or an index that no other has or had. The journal names it before it is given out.
    pub fn next_number(&self) -> Result<u64> {
        if self.is_read_only {
            return Err(StoreError::ReadOnly {
                path: self.root.path().to_owned(),
            });
        }
        let mut numbers = self.numbers.lock();
        if numbers.next >= numbers.until {
            let until = numbers.next + RESERVED;
            self.catalog.reserve(numbers.first..until)?;
            numbers.until = until;
        }
        numbers.next += 1;
        let used = self.catalog.next_number();
        used.store(numbers.next, Ordering::Relaxed);
        Ok(numbers.next - 1)
    }

    /// What a data file that is about to be written will be known by. `replaces` are the numbers of files whose rows it
    /// holds.
    pub fn origin(&self, paths: &FilePaths, replaces: &[u64]) -> Origin {
        let last = self.catalog.last();
        Origin {
            id: random_id(),
            database: last.database,
            after: last.change,
            folder: paths.table_folder().to_owned(),
            number: paths.number,
            replaces: replaces.to_vec(),
        }
    }

    /// Adds a table, in place of another if `replaces` names one. The files of that one are removed when they are no
    /// longer read.
    pub fn add_table(&self, table: &TableRow, replaces: Option<(i64, &str)>) -> Result<i64> {
        let database = self.catalog.last().database;
        Description::new(database, table).write(&self.root, &table.folder)?;
        let added = self.catalog.add_table(table, replaces.map(|(id, _)| id));
        let id = added.inspect_err(|_| self.root.note_failure())?;
        if let Some((_, folder)) = replaces {
            self.remove(table_of(folder));
        }
        Ok(id)
    }

    /// Changes a table's files and indexes. Removed files are deleted when they are no longer read.
    pub fn change_files(&self, table: &TableRef<'_>, change: &FileChange<'_>) -> Result<()> {
        let changed = self.catalog.change_files(table, change);
        changed.inspect_err(|_| self.root.note_failure())?;
        for number in change.removed {
            self.remove(Obsolete::File {
                folder: table.folder.to_owned(),
                number: *number,
            });
        }
        if change.new_index.is_some() {
            self.describe(table.folder);
        }
        Ok(())
    }

    /// Brings the description of a table up to date. Only a repair needs it, and opening does it again.
    fn describe(&self, folder: &str) {
        let described = self.catalog.tables().and_then(|rows| {
            let row = rows.iter().find(|row| row.folder == folder);
            let description = row.map(|row| Description::new(self.catalog.last().database, row));
            description.map_or(Ok(()), |description| description.write(&self.root, folder))
        });
        if let Err(error) = described {
            tracing::warn!(%error, "the description of a table is not up to date");
        }
    }

    /// Keeps what the user says about the blocks and the shelf of an index from here on.
    pub fn set_index_choices(
        &self,
        folder: &str,
        index: i64,
        cache: IndexCache,
        shelf: &Shelf,
    ) -> Result<()> {
        self.catalog.set_index_choices(index, cache, shelf)?;
        self.describe(folder);
        Ok(())
    }

    /// Refuses a placement that this database cannot have.
    ///
    /// # Errors
    /// Its files would be in the database's own folder, or outlive a temporary database.
    pub fn check_placement(&self, placement: &Placement) -> Result<()> {
        let Some(folder) = placement.folder() else {
            return Ok(());
        };
        let own = self.root.real(self.root.path()).canonicalize();
        let is_inside = own.is_ok_and(|own| folder.starts_with(own));
        let refused = match (is_inside, self.root.is_temporary()) {
            (true, _) => "a shelf in the database's own folder",
            (false, true) => "a temporary database on another disk",
            (false, false) => return Ok(()),
        };
        Err(StoreError::NotSupported {
            what: refused.into(),
        })
    }

    /// Keeps where the user wants a table to be from here on.
    pub fn set_placement(&self, table_id: i64, placement: &Placement) -> Result<()> {
        self.catalog.set_placement(table_id, placement)
    }

    /// Drops an index, and its files when they are no longer read.
    pub fn drop_index(&self, folder: &str, index: i64) -> Result<()> {
        self.catalog.drop_index(folder, index)?;
        self.remove(Obsolete::Index {
            folder: folder.to_owned(),
            index,
        });
        self.describe(folder);
        Ok(())
    }

    /// Drops a table, and its files when they are no longer read.
    pub fn drop_table(&self, id: i64, folder: &str) -> Result<()> {
        self.catalog.drop_table(id)?;
        self.remove(table_of(folder));
        Ok(())
    }

    /// All schemas and views.
    pub fn names(&self) -> Result<Names> {
        self.catalog.names()
    }

    /// Keeps a schema.
    pub fn add_schema(&self, name: &str) -> Result<()> {
        self.catalog.add_schema(name)?;
        self.keep_names();
        Ok(())
    }

    /// Forgets a schema with what it holds: tables, by their ids and folders, whose files go when they are no longer
    /// read, and views.
    pub fn drop_schema(&self, name: &str, tables: &[(i64, &str)], views: &[String]) -> Result<()> {
        let ids: Vec<i64> = tables.iter().map(|(id, _)| *id).collect();
        self.catalog.drop_schema(name, &ids, views)?;
        for (_, folder) in tables {
            self.remove(table_of(folder));
        }
        self.keep_names();
        Ok(())
    }

    /// Keeps a view, in the place of one of that name.
    pub fn put_view(&self, name: &str, sql: &str) -> Result<()> {
        self.catalog.put_view(name, sql)?;
        self.keep_names();
        Ok(())
    }

    /// Forgets a view.
    pub fn drop_view(&self, name: &str) -> Result<()> {
        self.catalog.drop_view(name)?;
        self.keep_names();
        Ok(())
    }

    /// Brings schemas and views beside the data up to date. Only a repair needs them, and opening does it again.
    fn keep_names(&self) {
        let kept = self
            .catalog
            .names()
            .and_then(|names| names_file::ensure(&self.root, &names));
        if let Err(error) = kept {
            tracing::warn!(%error, "schemas and views beside the data are not up to date");
        }
    }

    /// Reads everything again and compares it with its checksums. `progress` gets data files done and data files in
    /// all.
    pub fn verify(&self, progress: impl FnMut(usize, usize)) -> Result<VerifyReport> {
        verify(&self.root, &self.catalog, &self.in_use, progress)
    }

    /// Returns numbers that no file got, unless files with them may remain.
    fn release_numbers(&self) {
        let mut numbers = self.numbers.lock();
        if numbers.until <= numbers.first || self.is_read_only || self.root.has_failed() {
            return;
        }
        if let Err(error) = self.catalog.reserve(0..0) {
            tracing::warn!(%error, "numbers of files stay reserved");
        }
        numbers.until = numbers.first;
    }

    /// Removes what a change made obsolete, once it is no longer read.
    fn remove(&self, obsolete: Obsolete) {
        self.in_use.remove(obsolete);
    }

    /// What opens the store's files; half of the descriptors that the process may have are theirs.
    pub fn opener(
        &self,
        engine: &Arc<IoEngine>,
        cache: &Arc<CacheManager>,
        session: VortexSession,
    ) -> Arc<Opener> {
        self.opener_with_descriptors(engine, cache, session, limit_of_process())
    }

    /// The same with at most this many descriptors, besides those in use.
    pub fn opener_with_descriptors(
        &self,
        engine: &Arc<IoEngine>,
        cache: &Arc<CacheManager>,
        session: VortexSession,
        limit: usize,
    ) -> Arc<Opener> {
        let descriptors = Descriptors::new(engine.clone(), limit);
        Opener::new(&self.in_use, descriptors, cache, session)
    }
}

/// Makes sure that every table is described beside its files, and schemas and views beside them.
fn describe_all(root: &Root, catalog: &Catalog, rows: &[TableRow]) {
    let database = catalog.last().database;
    for row in rows.iter().filter(|row| row.is_sound()) {
        if let Err(error) = Description::new(database, row).ensure(root, &row.folder) {
            tracing::warn!(%error, table = row.name, "a table cannot be described beside its files");
        }
    }
    let names = catalog
        .names()
        .and_then(|names| match names.damages.is_empty() {
            true => names_file::ensure(root, &names),
            false => Ok(()),
        });
    if let Err(error) = names {
        tracing::warn!(%error, "schemas and views cannot be kept beside the data");
    }
}

fn table_of(folder: &str) -> Obsolete {
    Obsolete::Table {
        folder: folder.to_owned(),
    }
}

/// Lets the process open as many files as the system allows it: data files in use take a descriptor each.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let most = Rlimit {
            current: limit.maximum,
            ..limit
        };
        setrlimit(Resource::Nofile, most).ok();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.release_numbers();
    }
}

/// Opens and locks the folder that has this name.
fn lock_folder(folder: &Path, create: bool, lifetime: Lifetime) -> Result<(Root, RootLock)> {
    if folder.is_file() {
        return Err(not_a_database(folder, "it is a file"));
    }
    if !folder.exists() {
        if !create {
            return Err(not_a_database(folder, "it has no catalog.sqlite"));
        }
        std::fs::create_dir_all(folder).map_err(StoreError::io("create", folder))?;
    }
    let mut tries = 0;
    loop {
        let root = Root::open_for(folder, lifetime)?;
        let lock = root.lock()?;
        tries += 1;
        // It may have been moved away before it was locked.
        if root.is_in_place() || tries == OPEN_TRIES {
            return Ok((root, lock));
        }
    }
}

/// Makes sure that there is a database in the folder, or nothing.
fn ensure_database(root: &Root, create: bool) -> Result<()> {
    let catalog = root.real(&root.join(CATALOG));
    let found = match catalog.metadata() {
        Ok(file) if file.len() > 0 => return Ok(()),
        Ok(_) => "is empty",
        Err(_) => "is missing",
    };
    ensure_no_data(root, found)?;
    if catalog.exists() {
        // A first opening was interrupted.
        return Ok(());
    }
    if !create {
        return Err(not_a_database(root.path(), "it has no catalog.sqlite"));
    }
    if root.list(root.path())?.iter().any(|entry| !is_ours(entry)) {
        return Err(not_a_database(root.path(), "it holds other files"));
    }
    Ok(())
}

fn not_a_database(path: &Path, what: &str) -> StoreError {
    StoreError::NotADatabase {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}

/// Whether an entry may be there before the catalog is: what a first opening that crashed leaves.
fn is_ours(entry: &Path) -> bool {
    let name = entry.file_name().unwrap_or_default().to_string_lossy();
    let journal = name.strip_prefix(CATALOG);
    matches!(
        &*name,
        "LOCK" | "spill" | DATA | LOST | RESERVE | PROFILE_FILE
    ) || matches!(journal, Some("" | "-wal" | "-shm" | "-journal"))
}
