//! Schemas and views: names that stand for something without files.
//!
//! What is in the schema `public` is called by its own name, what is in another one by `schema.name`.

use std::collections::{BTreeMap, BTreeSet};

use hotshelf_tier::Corruption;
use rusqlite::{Connection, Transaction, params};

use super::Catalog;
use super::rows::{RowSum, mismatch};
use crate::error::Result;

/// Schemas beside `public`, and the text of each view by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Schemas beside `public`.
    pub schemas: BTreeSet<String>,
    /// The CREATE VIEW of each view.
    pub views: BTreeMap<String, String>,
    /// Views whose entries are not what was written. They are not among [`Self::views`].
    pub damages: Vec<Corruption>,
}

/// What version 2 added, to a catalog that may have the tables already.
pub(super) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS schemas (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS views (name TEXT PRIMARY KEY, sql TEXT NOT NULL) STRICT, WITHOUT ROWID;
ALTER TABLE views ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
";

fn view_sum(name: &str, sql: &str) -> u32 {
    RowSum::new("view")
        .bytes(name.as_bytes())
        .bytes(sql.as_bytes())
        .finish()
}

impl Catalog {
    /// All schemas and views.
    pub fn names(&self) -> Result<Names> {
        let state = self.state.lock();
        let mut names = Names::default();
        if !has_names(&state.connection)? {
            return Ok(names);
        }
        let mut schemas = state.connection.prepare("SELECT name FROM schemas")?;
        let schemas = schemas.query_map([], |row| row.get(0))?;
        names.schemas = schemas.collect::<rusqlite::Result<_>>()?;
        for (name, sql, sum) in views(&state.connection, state.version)? {
            let computed = view_sum(&name, &sql);
            if state.version >= 2 && sum != computed {
                let what = format!("view '{name}'");
                names.damages.push(mismatch(what, sum, computed));
                continue;
            }
            names.views.insert(name, sql);
        }
        Ok(names)
    }

    /// Keeps a schema.
    pub fn add_schema(&self, name: &str) -> Result<()> {
        self.change(|transaction, sum| {
            *sum = sum.clone().bytes(name.as_bytes());
            transaction.execute("INSERT INTO schemas (name) VALUES (?1)", params![name])?;
            Ok(())
        })
    }

    /// Forgets a schema.
    pub fn drop_schema(&self, name: &str) -> Result<()> {
        self.change_that_frees(|transaction, sum| {
            *sum = sum.clone().bytes(name.as_bytes());
            transaction.execute("DELETE FROM schemas WHERE name = ?1", params![name])?;
            Ok(())
        })
    }

    /// Keeps a view, in the place of one of that name.
    pub fn put_view(&self, name: &str, sql: &str) -> Result<()> {
        let view = view_sum(name, sql);
        self.change(|transaction, sum| {
            *sum = sum.clone().number(view.into());
            transaction.execute(
                "INSERT OR REPLACE INTO views (name, sql, sum) VALUES (?1, ?2, ?3)",
                params![name, sql, view],
            )?;
            Ok(())
        })
    }

    /// Forgets a view.
    pub fn drop_view(&self, name: &str) -> Result<()> {
        self.change_that_frees(|transaction, sum| {
            *sum = sum.clone().bytes(name.as_bytes());
            transaction.execute("DELETE FROM views WHERE name = ?1", params![name])?;
            Ok(())
        })
    }
}

/// Whether the catalog has schemas and views: early ones of version 1 do not.
fn has_names(connection: &Connection) -> Result<bool> {
    let count = "SELECT count(*) FROM sqlite_schema WHERE name IN ('schemas', 'views')";
    Ok(connection.query_row(count, [], |row| row.get::<_, i64>(0))? == 2)
}

fn views(connection: &Connection, version: i64) -> Result<Vec<(String, String, u32)>> {
    let sum = if version >= 2 { "sum" } else { "0" };
    let mut views = connection.prepare(&format!("SELECT name, sql, {sum} FROM views"))?;
    let views = views.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)? as u32))
    })?;
    Ok(views.collect::<rusqlite::Result<_>>()?)
}

/// Computes the checksums of views that had none.
pub(super) fn sum_all(transaction: &Transaction<'_>) -> Result<()> {
    for (name, sql, _) in views(transaction, 2)? {
        transaction.execute(
            "UPDATE views SET sum = ?2 WHERE name = ?1",
            params![name, view_sum(&name, &sql)],
        )?;
    }
    Ok(())
}
