//! Opening the catalog's file: for writing, for reading only, or anew; and the checks that nothing of it is lost.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::{rows, schema};
use crate::error::{Result, StoreError};
use crate::head::{Acknowledged, HEAD};
use crate::ids::random_id;
use crate::root::{CATALOG, FORMAT_VERSION, Root};

/// Opens the catalog for reading and writing.
pub(super) fn open_for_writing(catalog: &Path) -> Result<Connection> {
    let connection = Connection::open(catalog)?;
    // SQLite falls back to reading after a failure that may have passed.
    match connection.is_readonly("main")? {
        true => Ok(Connection::open(catalog)?),
        false => Ok(connection),
    }
}

/// Opens a catalog that cannot be written. One with a log is read from a copy, for SQLite would have to write beside
/// it.
pub(super) fn open_read_only(root: &Root) -> Result<Connection> {
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
    let copy = std::env::temp_dir().join(format!("hotshelf-catalog-{:016x}", random_id()));
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
pub(super) fn peek_version(root: &Root) -> Result<()> {
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
pub(super) fn create(connection: &mut Connection, root: &Root, last: Acknowledged) -> Result<i64> {
    write_ahead(connection, root)?;
    let transaction = connection.transaction()?;
    schema::create(&transaction, last)?;
    transaction.commit()?;
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    connection.query_row(checkpoint, [], |_| Ok(()))?;
    Ok(FORMAT_VERSION)
}

/// Has changes written to a log first, durable before they are acknowledged unless the database is temporary.
pub(super) fn write_ahead(connection: &Connection, root: &Root) -> Result<()> {
    let synchronous = match root.is_temporary() {
        true => "OFF",
        false => "FULL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    Ok(())
}

/// Compares the catalog's last change with the one recorded beside the data.
///
/// The catalog may be one change ahead: a process was killed before it recorded it.
pub(super) fn check_last(
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

/// Refuses a catalog in which something that it lists is lost or too many.
pub(super) fn check_listing(connection: &Connection) -> Result<()> {
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
