//! Schemas and views: names that stand for something without files.
//!
//! What is in the schema `public` is called by its own name, what is in another one by `schema.name`.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::params;

use super::Catalog;
use crate::error::Result;

/// Schemas beside `public`, and the text of each view by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Schemas beside `public`.
    pub schemas: BTreeSet<String>,
    /// The CREATE VIEW of each view.
    pub views: BTreeMap<String, String>,
}

impl Catalog {
    /// All schemas and views.
    pub fn names(&self) -> Result<Names> {
        let connection = self.connection.lock();
        let mut schemas = connection.prepare("SELECT name FROM schemas")?;
        let schemas = schemas.query_map([], |row| row.get(0))?;
        let mut views = connection.prepare("SELECT name, sql FROM views")?;
        let views = views.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Names {
            schemas: schemas.collect::<rusqlite::Result<_>>()?,
            views: views.collect::<rusqlite::Result<_>>()?,
        })
    }

    /// Keeps a schema.
    pub fn add_schema(&self, name: &str) -> Result<()> {
        let connection = self.connection.lock();
        connection.execute("INSERT INTO schemas (name) VALUES (?1)", params![name])?;
        Ok(())
    }

    /// Forgets a schema.
    pub fn drop_schema(&self, name: &str) -> Result<()> {
        let connection = self.connection.lock();
        connection.execute("DELETE FROM schemas WHERE name = ?1", params![name])?;
        Ok(())
    }

    /// Keeps a view, in the place of one of that name.
    pub fn put_view(&self, name: &str, sql: &str) -> Result<()> {
        let connection = self.connection.lock();
        connection.execute(
            "INSERT INTO views (name, sql) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET sql = excluded.sql",
            params![name, sql],
        )?;
        Ok(())
    }

    /// Forgets a view.
    pub fn drop_view(&self, name: &str) -> Result<()> {
        let connection = self.connection.lock();
        connection.execute("DELETE FROM views WHERE name = ?1", params![name])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_and_views_are_kept_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog.sqlite");
        let catalog = Catalog::open(&path).unwrap();
        catalog.add_schema("s").unwrap();
        catalog
            .put_view("s.v", "CREATE VIEW s.v AS SELECT 1")
            .unwrap();
        catalog
            .put_view("s.v", "CREATE VIEW s.v AS SELECT 2")
            .unwrap();
        catalog.put_view("w", "CREATE VIEW w AS SELECT 3").unwrap();
        catalog.drop_view("w").unwrap();
        drop(catalog);
        let catalog = Catalog::open(&path).unwrap();
        let names = catalog.names().unwrap();
        assert_eq!(names.schemas, BTreeSet::from(["s".to_owned()]));
        let views = [("s.v".to_owned(), "CREATE VIEW s.v AS SELECT 2".to_owned())];
        assert_eq!(names.views, BTreeMap::from(views));
        catalog.drop_schema("s").unwrap();
        assert_eq!(catalog.names().unwrap().schemas, BTreeSet::new());
    }
}
