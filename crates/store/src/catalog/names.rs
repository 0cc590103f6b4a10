//! Schemas and views: names that stand for something without files.
//!
//! What is in the schema `public` is called by its own name, what is in another one by `schema.name`.

use rusqlite::{Connection, Transaction, params};

use super::entries::Names;
use super::rows::{RowSum, mismatch};
use crate::error::Result;

/// What version 2 added, to a catalog that may have the tables already.
pub(super) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS schemas (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS views (name TEXT PRIMARY KEY, sql TEXT NOT NULL) STRICT, WITHOUT ROWID;
ALTER TABLE views ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
";

/// The checksum of a view.
pub(super) fn view_sum(name: &str, sql: &str) -> u32 {
    RowSum::new("view")
        .bytes(name.as_bytes())
        .bytes(sql.as_bytes())
        .finish()
}

/// All schemas and views.
pub(super) fn read(connection: &Connection, version: i64) -> Result<Names> {
    let mut names = Names::default();
    if !has_names(connection)? {
        return Ok(names);
    }
    let mut schemas = connection.prepare("SELECT name FROM schemas")?;
    let schemas = schemas.query_map([], |row| row.get(0))?;
    names.schemas = schemas.collect::<rusqlite::Result<_>>()?;
    for (name, sql, sum) in views(connection, version)? {
        let computed = view_sum(&name, &sql);
        if version >= 2 && sum != computed {
            let what = format!("view '{name}'");
            names.damages.push(mismatch(what, sum, computed));
            continue;
        }
        names.views.insert(name, sql);
    }
    Ok(names)
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
