//! The catalog's tables, and how an older catalog becomes one of this version.

use std::fmt::Display;
use std::str::FromStr;

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::damage::damaged;
use super::{names, rows};
use crate::error::{Result, StoreError};
use crate::head::{Acknowledged, Change};
use crate::index::IndexCache;
use crate::placement::Placement;
use crate::root::FORMAT_VERSION;
use crate::shelf::Shelf;

const SCHEMA: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE tables (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  folder TEXT NOT NULL UNIQUE,
  arrow_schema BLOB NOT NULL,
  files_sum INTEGER NOT NULL DEFAULT 0,
  sum INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE files (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  table_id INTEGER NOT NULL REFERENCES tables(id) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  row_count INTEGER NOT NULL,
  file_bytes INTEGER NOT NULL,
  bounds BLOB NOT NULL,
  content_id INTEGER NOT NULL DEFAULT 0,
  sum INTEGER NOT NULL DEFAULT 0,
  UNIQUE (table_id, number)
) STRICT;
CREATE TABLE file_columns (
  file_id INTEGER NOT NULL REFERENCES files(id) ON DELETE CASCADE,
  column_idx INTEGER NOT NULL,
  null_count INTEGER,
  encoded_bytes INTEGER NOT NULL,
  bounds_exact INTEGER NOT NULL,
  distinct_sketch BLOB NOT NULL,
  PRIMARY KEY (file_id, column_idx)
) STRICT, WITHOUT ROWID;
CREATE TABLE indexes (
  number INTEGER PRIMARY KEY,
  table_id INTEGER NOT NULL REFERENCES tables(id) ON DELETE CASCADE,
  name TEXT NOT NULL UNIQUE,
  columns TEXT NOT NULL,
  clustered INTEGER NOT NULL,
  sum INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE index_files (
  index_number INTEGER NOT NULL REFERENCES indexes(number) ON DELETE CASCADE,
  file_id INTEGER NOT NULL REFERENCES files(id) ON DELETE CASCADE,
  file_bytes INTEGER NOT NULL,
  PRIMARY KEY (index_number, file_id)
) STRICT, WITHOUT ROWID;
";

/// What version 2 adds to version 1.
const COLUMNS_OF_2: &str = "
ALTER TABLE tables ADD COLUMN files_sum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tables ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE files ADD COLUMN content_id INTEGER NOT NULL DEFAULT 0;
ALTER TABLE files ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE indexes ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
";

/// Key of the chained checksum of the change before the last.
pub(super) const CHANGE_BEFORE: &str = "change_before";
/// Key of the sum over what the catalog lists.
pub(super) const LISTED: &str = "listed";
/// Key of the number that the next new file gets.
pub(super) const NEXT_NUMBER: &str = "next_number";

/// The journal: numbers of files that may be being written, and files that a change made obsolete.
const JOURNAL: &str = "
CREATE TABLE reserved (first INTEGER NOT NULL, until INTEGER NOT NULL) STRICT;
CREATE TABLE obsolete (folder TEXT NOT NULL, file INTEGER, idx INTEGER) STRICT;
";

/// Makes the tables of a new catalog.
pub(super) fn create(transaction: &Transaction<'_>, last: Acknowledged) -> Result<()> {
    transaction.execute_batch(SCHEMA)?;
    transaction.execute_batch(JOURNAL)?;
    transaction.execute_batch(names::SCHEMA)?;
    set_meta(transaction, LISTED, 0)?;
    set_meta(transaction, "format_version", FORMAT_VERSION)?;
    set_meta(transaction, "database", last.database)?;
    set_change(transaction, last.change)
}

/// Makes a catalog of version 1 one of this version.
pub(super) fn upgrade(transaction: &Transaction<'_>, database: u64) -> Result<()> {
    transaction.execute_batch(COLUMNS_OF_2)?;
    transaction.execute_batch(JOURNAL)?;
    transaction.execute_batch(names::SCHEMA)?;
    rows::sum_all(transaction)?;
    names::sum_all(transaction)?;
    set_meta(transaction, LISTED, rows::listing_sum(transaction)?)?;
    set_meta(transaction, "format_version", FORMAT_VERSION)?;
    set_meta(transaction, "database", database)?;
    set_change(transaction, Change::default())
}

/// The version of a catalog; `None` if it is new.
pub(super) fn version(connection: &Connection) -> Result<Option<i64>> {
    let tables: i64 = connection.query_row(
        "SELECT count(*) FROM sqlite_schema WHERE name = 'meta'",
        [],
        |row| row.get(0),
    )?;
    if tables == 0 {
        return Ok(None);
    }
    let found = meta(connection, "format_version")?;
    Ok(found.map(|text| text.parse().unwrap_or(i64::MAX)))
}

/// The number that tells this database from any other; 0 in a catalog of version 1.
pub(super) fn database(connection: &Connection) -> Result<u64> {
    number(connection, "database")
}

/// What the user may say about an index or a table: which blocks of an index stay in memory, where its leaves are read
/// from, where the table's files are. Nothing is kept where that is the default.
pub(super) trait Choice: FromStr + Display + Default + PartialEq {
    /// The name of its key in `meta`, before the number of the index or the table.
    const KEY: &str;

    /// What was said about the one of this number.
    fn of(connection: &Connection, number: i64) -> Result<Self> {
        let text = meta(connection, &format!("{}.{number}", Self::KEY))?;
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or_default())
    }

    /// Keeps it.
    fn keep(&self, connection: &Connection, number: i64) -> Result<()> {
        let key = format!("{}.{number}", Self::KEY);
        if *self != Self::default() {
            return set_meta(connection, &key, self);
        }
        connection.execute("DELETE FROM meta WHERE key = ?1", params![key])?;
        Ok(())
    }
}

impl Choice for IndexCache {
    const KEY: &str = "index_cache";
}

impl Choice for Shelf {
    const KEY: &str = "index_shelf";
}

impl Choice for Placement {
    const KEY: &str = "table_shelf";
}

/// Forgets what the user said about a table and its indexes.
pub(super) fn forget_choices(connection: &Connection, table_id: i64) -> Result<()> {
    for key in [IndexCache::KEY, Shelf::KEY] {
        let of_table = format!("SELECT '{key}.' || number FROM indexes WHERE table_id = ?1");
        let sql = format!("DELETE FROM meta WHERE key IN ({of_table})");
        connection.execute(&sql, params![table_id])?;
    }
    Placement::default().keep(connection, table_id)
}

/// The last change.
pub(super) fn change(connection: &Connection) -> Result<Change> {
    let number = meta(connection, "change")?.unwrap_or_default();
    let sum = meta(connection, "change_sum")?.unwrap_or_default();
    match (number.parse(), sum.parse()) {
        (Ok(number), Ok(sum)) => Ok(Change { number, sum }),
        _ => Err(damaged(format!("change '{number}', sum '{sum}'"))),
    }
}

pub(super) fn set_change(connection: &Connection, change: Change) -> Result<()> {
    set_meta(connection, "change", change.number)?;
    set_meta(connection, "change_sum", change.sum)
}

/// The sum over what the catalog lists, as of the last change; `None` if it is not there.
pub(super) fn listed(connection: &Connection) -> Result<Option<i64>> {
    Ok(meta(connection, LISTED)?.and_then(|text| text.parse().ok()))
}

/// A number in `meta`; 0 if there is none.
pub(super) fn number(connection: &Connection, key: &str) -> Result<u64> {
    let text = meta(connection, key)?.unwrap_or_default();
    Ok(text.parse().unwrap_or(0))
}

fn meta(connection: &Connection, key: &str) -> Result<Option<String>> {
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
    Ok(statement
        .query_row(params![key], |row| row.get(0))
        .optional()?)
}

pub(super) fn set_meta(connection: &Connection, key: &str, value: impl ToString) -> Result<()> {
    let mut statement = connection.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)")?;
    statement.execute(params![key, value.to_string()])?;
    Ok(())
}

/// Refuses a version that this program does not know.
pub(super) fn check_version(found: i64) -> Result<()> {
    if found > FORMAT_VERSION {
        return Err(StoreError::NewerFormat {
            found,
            supported: FORMAT_VERSION,
        });
    }
    Ok(())
}
