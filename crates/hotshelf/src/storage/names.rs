//! Schemas and views of a database.
//!
//! What is in `public` is known by its own name, what is in another schema by `schema.name`.

use std::collections::BTreeSet;
use std::sync::Arc;

use hotshelf_store::catalog::Names;

use super::Storage;
use crate::error::{Error, Result};
use crate::table::Table;

/// The schema that needs no name.
pub(crate) const PUBLIC: &str = "public";

impl Storage {
    /// The schemas other than `public`.
    pub fn schemas(&self) -> BTreeSet<String> {
        self.names.read().schemas.clone()
    }

    /// Whether there is a schema of that name.
    pub fn has_schema(&self, schema: &str) -> bool {
        schema == PUBLIC || self.names.read().schemas.contains(schema)
    }

    /// The text of a view.
    pub fn view(&self, name: &str) -> Option<String> {
        self.names.read().views.get(name).cloned()
    }

    /// Adds or replaces a view.
    pub fn put_view(&self, name: &str, sql: &str, or_replace: bool) -> Result<()> {
        let _change = self.changes.lock();
        self.check_name(name)?;
        if self.table_as_is(name).is_some() {
            return Err(Error::OtherKind {
                name: name.to_owned(),
                found: "stored table",
                wanted: "view",
            });
        }
        if !or_replace && self.view(name).is_some() {
            return Err(Error::ViewExists { name: name.into() });
        }
        self.store.put_view(name, sql)?;
        self.change_names(|names| names.views.insert(name.into(), sql.into()));
        Ok(())
    }

    /// Drops a view. Returns whether there was one.
    pub fn drop_view(&self, name: &str) -> Result<bool> {
        let _change = self.changes.lock();
        if self.view(name).is_none() {
            return Ok(false);
        }
        self.store.drop_view(name)?;
        self.change_names(|names| names.views.remove(name));
        Ok(true)
    }

    /// Makes a schema. Returns whether it is new.
    pub fn create_schema(&self, name: &str) -> Result<bool> {
        let _change = self.changes.lock();
        if self.has_schema(name) {
            return Ok(false);
        }
        if name.is_empty() || name.contains('.') {
            return Err(Error::InvalidValue {
                what: "name of a schema",
                value: name.to_owned(),
                expected: "a name without a dot".into(),
            });
        }
        self.store.add_schema(name)?;
        self.change_names(|names| names.schemas.insert(name.into()));
        Ok(true)
    }

    /// Drops a schema, with the tables and views that it holds if `cascade` says so, all in one change. Returns whether
    /// there was one.
    pub fn drop_schema(&self, name: &str, cascade: bool) -> Result<bool> {
        let _change = self.changes.lock();
        if !self.has_schema(name) {
            return Ok(false);
        }
        let held = self.names_in(name);
        if name == PUBLIC || !held.is_empty() && !cascade {
            return Err(Error::SchemaInUse {
                name: name.to_owned(),
                count: held.len(),
            });
        }
        let (tables, views) = self.held(held);
        for table in &tables {
            self.leave_shelves(table, |_, _| true);
        }
        let rows: Vec<_> = tables
            .iter()
            .map(|table| (table.id, table.folder.as_str()))
            .collect();
        self.store.drop_schema(name, &rows, &views)?;
        self.forget_tables(&tables);
        self.change_names(|names| {
            names.views.retain(|view, _| !views.contains(view));
            names.schemas.remove(name)
        });
        Ok(true)
    }

    /// Which of the names are tables, and which are views.
    fn held(&self, names: Vec<String>) -> (Vec<Arc<Table>>, Vec<String>) {
        let (mut tables, mut views) = (Vec::new(), Vec::new());
        for name in names {
            match self.table_as_is(&name) {
                Some(table) => tables.push(table),
                None => views.push(name),
            }
        }
        (tables, views)
    }

    /// Changes what names mean: no plan of a query is kept that was made before.
    fn change_names<T>(&self, change: impl FnOnce(&mut Names) -> T) {
        change(&mut self.names.write());
        if let Some(plans) = self.plans.upgrade() {
            drop(plans.forget_all());
        }
    }

    /// Full names of the tables and views of a schema.
    pub fn names_in(&self, schema: &str) -> Vec<String> {
        let is_in = |name: &&String| split(name).0 == schema;
        let mut found: Vec<String> = self.tables.read().keys().filter(is_in).cloned().collect();
        found.extend(self.names.read().views.keys().filter(is_in).cloned());
        found
    }

    /// Refuses a name of a table or view that no statement could use.
    pub fn check_name(&self, name: &str) -> Result<()> {
        let (schema, own) = split(name);
        if !self.has_schema(schema) {
            return Err(Error::UnknownSchema {
                name: schema.to_owned(),
            });
        }
        if own.is_empty() || own.contains('.') {
            return Err(Error::InvalidValue {
                what: "name of a table or view",
                value: name.to_owned(),
                expected: "a name without a dot, after its schema's name and a dot if it is not in `public`".into(),
            });
        }
        Ok(())
    }
}

/// A schema and a name in it.
pub(crate) fn split(full: &str) -> (&str, &str) {
    full.split_once('.').unwrap_or((PUBLIC, full))
}

/// The full name of something in a schema.
pub(crate) fn full_name(schema: &str, name: &str) -> String {
    match schema == PUBLIC {
        true => name.to_owned(),
        false => format!("{schema}.{name}"),
    }
}
