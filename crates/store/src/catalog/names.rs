//! Schemas and views: names that stand for something without files.
//!
//! What is in the schema `public` is called by its own name, what is in another one by `schema.name`.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::params;

use super::rows::RowSum;
use super::{Catalog, damaged};
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
    ///
    /// # Errors
    /// An entry is not what was written.
    pub fn names(&self) -> Result<Names> {
        let state = self.state.lock();
        if state.version < 2 {
            return Ok(Names::default());
        }
        let mut schemas = state.connection.prepare("SELECT name FROM schemas")?;
        let schemas = schemas.query_map([], |row| row.get(0))?;
        let mut views = state
            .connection
            .prepare("SELECT name, sql, sum FROM views")?;
        let views = views.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let mut names = Names {
            schemas: schemas.collect::<rusqlite::Result<_>>()?,
            views: BTreeMap::new(),
        };
        for view in views {
            let (name, sql, sum): (String, String, u32) = view?;
            if sum != view_sum(&name, &sql) {
                return Err(damaged(format!("the text of view '{name}' has changed")));
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
        self.change(|transaction, sum| {
            *sum = sum.clone().bytes(name.as_bytes());
            transaction.execute("DELETE FROM schemas WHERE name = ?1", params![name])?;
            Ok(())
        })
    }

    /// Keeps a view, in the place of one of that name.
    pub fn put_view(&self, name: &str, sql: &str) -> Result<()> {
        self.change(|transaction, sum| {
            let row_sum = view_sum(name, sql);
            *sum = sum.clone().number(row_sum.into());
            transaction.execute(
                "INSERT OR REPLACE INTO views (name, sql, sum) VALUES (?1, ?2, ?3)",
                params![name, sql, row_sum],
            )?;
            Ok(())
        })
    }

    /// Forgets a view.
    pub fn drop_view(&self, name: &str) -> Result<()> {
        self.change(|transaction, sum| {
            *sum = sum.clone().bytes(name.as_bytes());
            transaction.execute("DELETE FROM views WHERE name = ?1", params![name])?;
            Ok(())
        })
    }
}

fn view_sum(name: &str, sql: &str) -> u32 {
    RowSum::new("view")
        .bytes(name.as_bytes())
        .bytes(sql.as_bytes())
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Root;

    #[test]
    fn schemas_and_views_are_kept_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.create_folder(&root.data()).unwrap();
        let catalog = Catalog::open(&root).unwrap();
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
        let catalog = Catalog::open(&root).unwrap();
        let names = catalog.names().unwrap();
        assert_eq!(names.schemas, BTreeSet::from(["s".to_owned()]));
        let views = [("s.v".to_owned(), "CREATE VIEW s.v AS SELECT 2".to_owned())];
        assert_eq!(names.views, BTreeMap::from(views));
        catalog.drop_schema("s").unwrap();
        assert_eq!(catalog.names().unwrap().schemas, BTreeSet::new());
    }
}
