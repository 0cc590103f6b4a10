//! The catalog's journal: numbers reserved for files, and files that changes made obsolete.

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::entries::{Journal, Obsolete};
use super::schema;
use crate::error::Result;

/// Forgets a table and notes that its folder is obsolete.
pub(super) fn drop_row(transaction: &Transaction<'_>, table_id: i64) -> Result<()> {
    schema::forget_choices(transaction, table_id)?;
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

pub(super) fn note(transaction: &Transaction<'_>, files: &Obsolete) -> Result<()> {
    let (folder, file, index) = files.columns();
    transaction.execute(
        "INSERT INTO obsolete VALUES (?1, ?2, ?3)",
        params![folder, file, index],
    )?;
    Ok(())
}

pub(super) fn forget(transaction: &Transaction<'_>, files: &Obsolete) -> Result<()> {
    let (folder, file, index) = files.columns();
    transaction.execute(
        "DELETE FROM obsolete WHERE folder = ?1 AND file IS ?2 AND idx IS ?3",
        params![folder, file, index],
    )?;
    Ok(())
}

pub(super) fn read(connection: &Connection) -> Result<Journal> {
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
