//! The catalog: which tables and files exist, in SQLite.
//!
//! A change becomes visible by *one* transaction here, after its files are safe on disk, and is then recorded in
//! [`crate::head`]. What is in the folder without being named here is not touched, but for what the catalog's journal
//! names: numbers reserved for files that may have been being written, and files that a change made obsolete.
//!
//! `schema` is what SQLite holds, `rows` reads and writes it, `ipc` encodes schemas and bounds.

mod ipc;
mod names;
mod reserve;
mod rows;
mod schema;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::SchemaRef;
use hotshelf_tier::Corruption;
use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params,
};

pub(crate) use ipc::{decode_schema, encode_schema};
pub use names::Names;
pub use schema::FORMAT_VERSION;

use crate::error::{Result, StoreError};
use crate::head::{Acknowledged, Change, HEAD, Head};
use crate::index::IndexDefinition;
use crate::root::{CATALOG, Root};
use crate::statistics::FileStats;
use crate::store::ensure_no_data;
use rows::{Owner, RowSum};

/// A table as the catalog knows it.
#[derive(Debug, Clone)]
pub struct TableRow {
    /// Its number, never used again.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its folder below `data`.
    pub folder: String,
    /// Its columns.
    pub schema: SchemaRef,
    /// Its data files.
    pub files: Vec<FileRow>,
    /// Its indexes.
    pub indexes: Vec<IndexRow>,
    /// Why its rows cannot be relied on, if its entry is not what was written.
    pub damage: Option<Corruption>,
    /// Indexes whose entries are not what was written. They are not among [`Self::indexes`].
    pub index_damages: Vec<Corruption>,
}

impl TableRow {
    /// Whether every entry of the table is what was written.
    pub fn is_sound(&self) -> bool {
        let files = self.files.iter().all(|file| file.is_sound);
        files && self.damage.is_none() && self.index_damages.is_empty()
    }

    /// A table to be added.
    pub fn new(name: String, folder: String, schema: SchemaRef, files: Vec<FileRow>) -> Self {
        Self {
            id: 0,
            name,
            folder,
            schema,
            files,
            indexes: Vec::new(),
            damage: None,
            index_damages: Vec::new(),
        }
    }
}

/// An index as the catalog knows it.
#[derive(Debug, Clone)]
pub struct IndexRow {
    /// What the user defined.
    pub definition: IndexDefinition,
    /// Numbers of the data files that have an index file, with its length.
    pub files: Vec<(u64, u64)>,
}

/// What becomes of a table's files in one transaction.
#[derive(Debug, Default)]
pub struct FileChange<'a> {
    /// Numbers of files to forget.
    pub removed: &'a [u64],
    /// Files to add.
    pub added: &'a [FileRow],
    /// An index to add.
    pub new_index: Option<&'a IndexDefinition>,
    /// Index, data file and length of new index files.
    pub index_files: &'a [(i64, u64, u64)],
}

/// A data file as the catalog knows it.
#[derive(Debug, Clone)]
pub struct FileRow {
    /// Its number in the table.
    pub number: u64,
    /// Its length.
    pub file_bytes: u64,
    /// What its checksum file calls it; 0 for a file of format 1.
    pub id: u64,
    /// Whether the entry is what was written. If not, what is known of the rows is taken from the file.
    pub is_sound: bool,
    /// What is known of its rows.
    pub stats: FileStats,
}

/// Files that a change made obsolete: they may be removed whenever nobody reads them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obsolete {
    /// A table's folder.
    Table {
        /// Its name below `data`.
        folder: String,
    },
    /// A data file with all that belongs to it.
    File {
        /// The table's folder.
        folder: String,
        /// The file's number.
        number: u64,
    },
    /// The files of an index.
    Index {
        /// The table's folder.
        folder: String,
        /// The index's number.
        index: i64,
    },
}

/// What the journal says may be in the folder without being named elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Journal {
    /// Numbers of files that may have been being written.
    pub reserved: Range<u64>,
    /// What changes made obsolete.
    pub obsolete: Vec<Obsolete>,
}

/// The open catalog. One connection behind a lock: changes are rare and small.
#[derive(Debug)]
pub struct Catalog {
    root: Root,
    /// The number that the next new file gets. Changes store it, so that numbers are not used twice.
    next_number: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    connection: Connection,
    /// Format of the catalog as it is on disk.
    version: i64,
    /// Whether nothing can be written.
    is_read_only: bool,
    last: Acknowledged,
    /// Where changes are recorded; opened by the first of them.
    head: Option<Head>,
    /// Whether the last change is recorded there. If not, the next one waits until it can be.
    is_recorded: bool,
    /// How many of the oldest obsolete entries are gone from the disk: the next transaction forgets them.
    removed: Vec<Obsolete>,
}

impl Catalog {
    /// Opens the catalog of a folder, or makes it. Nothing is written to one that there is.
    pub fn open(root: &Root) -> Result<Self> {
        let acknowledged = Head::read(root)?;
        let is_read_only = root.is_read_only();
        let mut connection = match is_read_only {
            true => open_read_only(root)?,
            false => {
                peek_version(root)?;
                open_for_writing(&root.real(&root.join(CATALOG)))?
            }
        };
        // Closing must not touch a log that may be damaged.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // No other process has the folder: the log's index can stay in memory.
        if !is_read_only {
            connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        }
        let version = match schema::version(&connection)? {
            Some(version) => version,
            None => {
                ensure_no_data(root, "holds no catalog")?;
                create(&mut connection, Acknowledged::first())?
            }
        };
        schema::check_version(version)?;
        if !is_read_only {
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "foreign_keys", true)?;
        }
        let mut last = Acknowledged {
            database: schema::database(&connection)?,
            change: Change::default(),
        };
        if version >= 2 {
            last.change = schema::change(&connection)?;
        }
        let before = schema::number(&connection, schema::CHANGE_BEFORE)? as u32;
        check_last(root, last, before, acknowledged)?;
        if version >= 2 {
            check_listing(&connection)?;
        }
        let next_number = schema::number(&connection, schema::NEXT_NUMBER)?;
        Ok(Self {
            root: root.clone(),
            next_number: AtomicU64::new(next_number),
            state: Mutex::new(State {
                connection,
                version,
                is_read_only,
                last,
                is_recorded: true,
                head: None,
                removed: Vec::new(),
            }),
        })
    }

    /// Makes a catalog for data whose own is lost; its changes go on after `last`.
    pub(crate) fn create_again(root: &Root, last: Acknowledged) -> Result<Self> {
        let mut connection = Connection::open(root.real(&root.join(CATALOG)))?;
        create(&mut connection, last)?;
        drop(connection);
        Head::open(root, last)?;
        Self::open(root)
    }

    /// The number that tells this database from any other, and the last change.
    pub(crate) fn last(&self) -> Acknowledged {
        self.state.lock().last
    }

    /// Whether the catalog is of this program's format.
    pub(crate) fn is_current(&self) -> bool {
        self.state.lock().version == FORMAT_VERSION
    }

    /// The number that the next new file gets, and those after it.
    pub(crate) fn next_number(&self) -> &AtomicU64 {
        &self.next_number
    }

    /// All tables with their files, by name.
    pub fn tables(&self) -> Result<Vec<TableRow>> {
        let state = self.state.lock();
        rows::tables(&state.connection, state.version)
    }

    /// What may be removed.
    pub fn journal(&self) -> Result<Journal> {
        let state = self.state.lock();
        match state.version {
            ..2 => Ok(Journal::default()),
            _ => read_journal(&state.connection),
        }
    }

    /// Notes that files of these numbers may be written from now on.
    pub fn reserve(&self, numbers: Range<u64>) -> Result<()> {
        let mut state = self.state.lock();
        state.prepare(&self.root)?;
        let transaction = state.begin()?;
        transaction.execute("DELETE FROM reserved", [])?;
        transaction.execute(
            "INSERT INTO reserved VALUES (?1, ?2)",
            params![numbers.start as i64, numbers.end as i64],
        )?;
        Ok(transaction.commit()?)
    }

    /// Notes that obsolete files are gone. The next change forgets them.
    pub fn forget(&self, removed: Vec<Obsolete>) {
        self.state.lock().removed.extend(removed);
    }

    /// Adds a table with its files and indexes in one transaction and returns its id, whatever id it has so far;
    /// `replaces` names a table to drop with it, by its id.
    pub fn add_table(&self, table: &TableRow, replaces: Option<i64>) -> Result<i64> {
        self.change(|transaction, sum| {
            if let Some(id) = replaces {
                drop_row(transaction, id)?;
            }
            let (id, row_sum) = rows::insert_table(transaction, table)?;
            *sum = sum.clone().number(row_sum.into());
            let owner = Owner {
                table_id: id,
                folder: &table.folder,
                schema: &table.schema,
            };
            for file in &table.files {
                let row_sum = rows::insert_file(transaction, owner, file)?;
                *sum = sum.clone().number(row_sum.into());
            }
            for index in &table.indexes {
                rows::insert_index(transaction, owner, &index.definition)?;
                for (number, bytes) in &index.files {
                    let file = (index.definition.id, *number, *bytes);
                    rows::insert_index_file(transaction, id, file)?;
                }
            }
            Ok(id)
        })
    }

    /// Changes a table's files and indexes in one transaction.
    pub fn change_files(&self, table: &TableRef<'_>, change: &FileChange<'_>) -> Result<()> {
        let owner = Owner {
            table_id: table.id,
            folder: table.folder,
            schema: table.schema,
        };
        self.change(|transaction, sum| {
            for number in change.removed {
                let row_sum = rows::remove_file(transaction, table.id, *number)?;
                *sum = sum.clone().number(row_sum.into());
                let file = Obsolete::File {
                    folder: table.folder.to_owned(),
                    number: *number,
                };
                note(transaction, &file)?;
            }
            for file in change.added {
                let row_sum = rows::insert_file(transaction, owner, file)?;
                *sum = sum.clone().number(row_sum.into());
            }
            if let Some(index) = change.new_index {
                rows::insert_index(transaction, owner, index)?;
            }
            for file in change.index_files {
                rows::insert_index_file(transaction, table.id, *file)?;
            }
            Ok(())
        })
    }

    /// Forgets an index and its files.
    pub fn drop_index(&self, folder: &str, number: i64) -> Result<()> {
        self.change_that_frees(|transaction, sum| {
            *sum = sum.clone().number(number as u64);
            transaction.execute("DELETE FROM indexes WHERE number = ?1", params![number])?;
            let files = Obsolete::Index {
                folder: folder.to_owned(),
                index: number,
            };
            note(transaction, &files)
        })
    }

    /// Forgets a table and its files.
    pub fn drop_table(&self, table_id: i64) -> Result<()> {
        self.change_that_frees(|transaction, sum| {
            *sum = sum.clone().number(table_id as u64);
            drop_row(transaction, table_id)
        })
    }

    /// SQLite's own check of the catalog file: `ok`, or what is wrong.
    pub fn integrity(&self) -> Result<String> {
        let state = self.state.lock();
        let check = "PRAGMA integrity_check(1)";
        Ok(state.connection.query_row(check, [], |row| row.get(0))?)
    }

    /// Runs a change that will free space; on a full disk the space kept for this is given up.
    fn change_that_frees<R>(
        &self,
        work: impl Fn(&Transaction<'_>, &mut RowSum) -> Result<R>,
    ) -> Result<R> {
        match self.run(&work) {
            Err(error) if error.is_disk_full() && reserve::give_up(&self.root) => self.run(&work),
            done => done,
        }
    }

    /// Runs a change in one transaction and records it. It is durable when this returns.
    fn change<R>(
        &self,
        work: impl FnOnce(&Transaction<'_>, &mut RowSum) -> Result<R>,
    ) -> Result<R> {
        if !self.state.lock().is_read_only {
            reserve::keep(&self.root);
        }
        self.run(work)
    }

    fn run<R>(&self, work: impl FnOnce(&Transaction<'_>, &mut RowSum) -> Result<R>) -> Result<R> {
        let mut state = self.state.lock();
        state.prepare(&self.root)?;
        let last = state.last;
        let removed = std::mem::take(&mut state.removed);
        let transaction = state.begin()?;
        let number = last.change.number + 1;
        let mut sum = RowSum::new("change")
            .number(last.change.sum.into())
            .number(number);
        // What was lost before stays missed.
        let lost = schema::listed(&transaction)?
            .unwrap_or_default()
            .wrapping_sub(rows::listing_sum(&transaction)?);
        let done = work(&transaction, &mut sum)?;
        let listed = rows::listing_sum(&transaction)?.wrapping_add(lost);
        schema::set_meta(&transaction, schema::LISTED, listed)?;
        for gone in &removed {
            unnote(&transaction, gone)?;
        }
        let change = Change {
            number,
            sum: sum.finish(),
        };
        schema::set_change(&transaction, change)?;
        schema::set_meta(&transaction, schema::CHANGE_BEFORE, last.change.sum)?;
        let next_number = self.next_number.load(Ordering::Relaxed);
        schema::set_meta(&transaction, schema::NEXT_NUMBER, next_number)?;
        transaction.commit().map_err(StoreError::Commit)?;
        state.last.change = change;
        state.record();
        Ok(done)
    }
}

/// Refuses a catalog in which something that it lists is lost or too many.
fn check_listing(connection: &Connection) -> Result<()> {
    let found = rows::listing_sum(connection)?;
    match schema::listed(connection)? {
        Some(expected) if expected == found => Ok(()),
        expected => {
            let expected = expected.unwrap_or_default();
            let what = "tables, indexes, views and schemas of the catalog".to_owned();
            Err(rows::mismatch(what, expected, found).into())
        }
    }
}

/// The table that a change is about.
#[derive(Debug, Clone, Copy)]
pub struct TableRef<'a> {
    /// Its number.
    pub id: i64,
    /// Its folder below `data`.
    pub folder: &'a str,
    /// Its columns.
    pub schema: &'a SchemaRef,
}

impl State {
    fn begin(&mut self) -> Result<Transaction<'_>> {
        let behavior = TransactionBehavior::Immediate;
        Ok(self.connection.transaction_with_behavior(behavior)?)
    }

    /// Makes sure that there is a catalog of this version and a place to record changes.
    fn prepare(&mut self, root: &Root) -> Result<()> {
        if self.is_read_only {
            return Err(StoreError::ReadOnly {
                path: root.path().to_owned(),
            });
        }
        if self.version < FORMAT_VERSION {
            let database = random();
            let transaction = self.begin()?;
            schema::upgrade(&transaction, database)?;
            transaction.commit()?;
            self.version = FORMAT_VERSION;
            self.last.database = database;
        }
        if self.head.is_none() {
            self.head = Some(Head::open(root, self.last)?);
            self.is_recorded = false;
        }
        if let (false, Some(head)) = (self.is_recorded, &self.head) {
            head.write(&self.last)?;
            self.is_recorded = true;
        }
        Ok(())
    }

    /// Records the last change. The change is durable without it; only damage to the catalog would not be seen.
    fn record(&mut self) {
        let recorded = self.head.as_ref().map(|head| head.write(&self.last));
        if let Some(Err(error)) = recorded {
            self.is_recorded = false;
            tracing::warn!(%error, "a change is stored but not recorded beside the data; the next one waits until it is");
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // A log that is empty cannot be lost. One that a change failed in is left for the next opening.
        if self.head.is_some() {
            let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
            self.connection.query_row(checkpoint, [], |_| Ok(())).ok();
        }
    }
}

/// Opens the catalog for reading and writing.
fn open_for_writing(catalog: &Path) -> Result<Connection> {
    let connection = Connection::open(catalog)?;
    // SQLite falls back to reading after a failure that may have passed.
    match connection.is_readonly("main")? {
        true => Ok(Connection::open(catalog)?),
        false => Ok(connection),
    }
}

/// Opens a catalog that cannot be written. One with a log is read from a copy, for SQLite would have to write beside it.
fn open_read_only(root: &Root) -> Result<Connection> {
    let catalog = root.real(&root.join(CATALOG));
    let log_name = format!("{CATALOG}-wal");
    let log = root.real(&root.join(&log_name));
    if log.metadata().map_or(true, |log| log.len() == 0) {
        let path = catalog.to_string_lossy();
        let path = path
            .replace('%', "%25")
            .replace('?', "%3f")
            .replace('#', "%23");
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        return Ok(Connection::open_with_flags(
            format!("file:{path}?immutable=1"),
            flags,
        )?);
    }
    let copy = std::env::temp_dir().join(format!("hotshelf-catalog-{:016x}", random()));
    let failed = |error| StoreError::io("copy the catalog to", &copy)(error);
    std::fs::create_dir(&copy).map_err(failed)?;
    let copied = std::fs::copy(&catalog, copy.join(CATALOG))
        .and_then(|_| std::fs::copy(&log, copy.join(&log_name)));
    let opened = copied.map_err(failed).and_then(|_| {
        let connection = Connection::open(copy.join(CATALOG))?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        // The first read opens the log; both files can go then.
        schema::version(&connection)?;
        Ok(connection)
    });
    std::fs::remove_dir_all(&copy).ok();
    opened
}

/// Refuses a newer catalog that was closed properly without touching its folder: opening it would make an empty log.
fn peek_version(root: &Root) -> Result<()> {
    let catalog = root.real(&root.join(CATALOG));
    let log = root.real(&root.join(format!("{CATALOG}-wal")));
    let has_log = log.metadata().is_ok_and(|log| log.len() > 0);
    let is_empty = catalog.metadata().map_or(true, |file| file.len() == 0);
    // A name that came through the folder's descriptor needs no escapes.
    let Some(path) = catalog
        .to_str()
        .filter(|path| path.starts_with("/proc/self/fd/"))
    else {
        return Ok(());
    };
    if has_log || is_empty {
        return Ok(());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(format!("file:{path}?immutable=1"), flags)?;
    schema::version(&connection)?.map_or(Ok(()), schema::check_version)
}

/// Makes a catalog in an empty file; returns its version.
fn create(connection: &mut Connection, last: Acknowledged) -> Result<i64> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction()?;
    schema::create(&transaction, last)?;
    transaction.commit()?;
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    connection.query_row(checkpoint, [], |_| Ok(()))?;
    Ok(FORMAT_VERSION)
}

/// Compares the catalog's last change with the one recorded beside the data.
///
/// The catalog may be one change ahead: a process was killed before it recorded it.
fn check_last(
    root: &Root,
    last: Acknowledged,
    before: u32,
    recorded: Option<Acknowledged>,
) -> Result<()> {
    let Some(recorded) = recorded else {
        // Before its first change a database has no record.
        return match last.change.number {
            0 => Ok(()),
            _ => Err(StoreError::LostHead {
                path: root.data().join(HEAD),
            }),
        };
    };
    if recorded.change.number == 0 && last.change.number == 0 {
        return Ok(());
    }
    if last.change.number < recorded.change.number {
        return Err(StoreError::StaleCatalog {
            path: root.join(CATALOG),
            found: last.change.number,
            acknowledged: recorded.change.number,
        });
    }
    let is_the_same = match last.change.number - recorded.change.number {
        0 => last.change == recorded.change,
        1 => before == recorded.change.sum,
        _ => false,
    };
    if last.database != recorded.database || !is_the_same {
        return Err(StoreError::ForeignCatalog {
            path: root.join(CATALOG),
        });
    }
    Ok(())
}

/// A number that nobody else draws, above 0 and below 2^63.
pub(crate) fn random() -> u64 {
    (RandomState::new().hash_one(std::process::id()) >> 1).max(1)
}

impl Acknowledged {
    /// A new database.
    fn first() -> Self {
        Self {
            database: random(),
            change: Change::default(),
        }
    }
}

/// Forgets a table and notes that its folder is obsolete.
fn drop_row(transaction: &Transaction<'_>, table_id: i64) -> Result<()> {
    let folder: Option<String> = transaction
        .query_row(
            "DELETE FROM tables WHERE id = ?1 RETURNING folder",
            params![table_id],
            |row| row.get(0),
        )
        .optional()?;
    match folder {
        Some(folder) => note(transaction, &Obsolete::Table { folder }),
        None => Ok(()),
    }
}

impl Obsolete {
    fn columns(&self) -> (&str, Option<i64>, Option<i64>) {
        match self {
            Self::Table { folder } => (folder, None, None),
            Self::File { folder, number } => (folder, Some(*number as i64), None),
            Self::Index { folder, index } => (folder, None, Some(*index)),
        }
    }
}

fn note(transaction: &Transaction<'_>, files: &Obsolete) -> Result<()> {
    let (folder, file, index) = files.columns();
    transaction.execute(
        "INSERT INTO obsolete VALUES (?1, ?2, ?3)",
        params![folder, file, index],
    )?;
    Ok(())
}

fn unnote(transaction: &Transaction<'_>, files: &Obsolete) -> Result<()> {
    let (folder, file, index) = files.columns();
    transaction.execute(
        "DELETE FROM obsolete WHERE folder = ?1 AND file IS ?2 AND idx IS ?3",
        params![folder, file, index],
    )?;
    Ok(())
}

fn read_journal(connection: &Connection) -> Result<Journal> {
    let reserved = connection
        .query_row("SELECT first, until FROM reserved", [], |row| {
            Ok(row.get::<_, i64>(0)? as u64..row.get::<_, i64>(1)? as u64)
        })
        .optional()?;
    let mut statement = connection.prepare("SELECT folder, file, idx FROM obsolete")?;
    let obsolete = statement.query_map([], |row| {
        // An entry that cannot be read removes nothing.
        let Ok(folder) = row.get(0) else {
            return Ok(None);
        };
        let (file, index): (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
        Ok(Some(match (file, index) {
            (Some(number), _) => Obsolete::File {
                folder,
                number: number as u64,
            },
            (None, Some(index)) => Obsolete::Index { folder, index },
            (None, None) => Obsolete::Table { folder },
        }))
    })?;
    let obsolete = obsolete.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(Journal {
        reserved: reserved.unwrap_or_default(),
        obsolete: obsolete.into_iter().flatten().collect(),
    })
}

fn corruption(what: String, expected: String, found: String) -> Corruption {
    Corruption {
        file: CATALOG.into(),
        offset: 0,
        what: what.into(),
        expected,
        found,
    }
}

fn damaged(found: String) -> StoreError {
    corruption("catalog entry".into(), "a readable entry".into(), found).into()
}

#[cfg(test)]
mod tests;
