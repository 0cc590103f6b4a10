//! The catalog: which tables and files exist, in SQLite.
//!
//! A change becomes visible by *one* transaction here, after its files are safe on disk, and is then recorded in
//! `head`. What is in the folder without being named here is not touched, except for what the catalog's
//! journal names: numbers reserved for files that may have been being written, and files that a change made obsolete.
//!
//! `entries` are the values that the catalog holds, `opening` opens its file, `changes` are the transactions, `journal`
//! notes files that may be removed; `schema` is what SQLite holds, `rows` and `names` read and write it, `ipc` encodes
//! schemas and bounds, `reserve` keeps space on the disk for changes that free some.

mod changes;
mod damage;
pub(crate) mod entries;
mod ipc;
mod journal;
mod names;
mod opening;
mod reserve;
mod rows;
mod schema;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

pub use entries::{
    FileChange, FileRow, IndexFileRow, IndexRow, Journal, Names, Obsolete, TableRef, TableRow,
};
pub(crate) use ipc::{decode_schema, encode_schema};

use crate::error::{Result, StoreError};
use crate::folder::ensure_no_data;
use crate::head::{Acknowledged, Change, Head};
use crate::ids::random_id;
use crate::root::{CATALOG, FORMAT_VERSION, Root};
use opening::{
    check_last, check_listing, create, open_for_writing, open_read_only, peek_version, write_ahead,
};
use rows::RowSum;

/// The open catalog. One connection behind a lock: changes are rare and small.
#[derive(Debug)]
pub struct Catalog {
    root: Root,
    /// The number that the next new file gets. Changes store it, so that numbers are not used twice.
    next_number: AtomicU64,
    state: Mutex<CatalogState>,
}

#[derive(Debug)]
struct CatalogState {
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
                create(&mut connection, root, Acknowledged::first())?
            }
        };
        schema::check_version(version)?;
        if !is_read_only {
            write_ahead(&connection, root)?;
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
            state: Mutex::new(CatalogState {
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

    /// Makes a catalog for data whose own is lost; its changes continue after `last`.
    pub(crate) fn create_again(root: &Root, last: Acknowledged) -> Result<Self> {
        let mut connection = Connection::open(root.real(&root.join(CATALOG)))?;
        create(&mut connection, root, last)?;
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

    /// All schemas and views.
    pub fn names(&self) -> Result<Names> {
        let state = self.state.lock();
        names::read(&state.connection, state.version)
    }

    /// What may be removed.
    pub fn journal(&self) -> Result<Journal> {
        let state = self.state.lock();
        match state.version {
            ..2 => Ok(Journal::default()),
            _ => journal::read(&state.connection),
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
            journal::forget(&transaction, gone)?;
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

impl CatalogState {
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
            let database = random_id();
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
            tracing::warn!(%error, "a change is stored but not recorded beside the data; the next one waits for that");
        }
    }
}

impl Drop for CatalogState {
    fn drop(&mut self) {
        // A log that is empty cannot be lost. One in which a change failed is kept for the next opening.
        if self.head.is_some() {
            let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
            self.connection.query_row(checkpoint, [], |_| Ok(())).ok();
        }
    }
}

#[cfg(test)]
mod tests;
