//! Schemas, names in them, and the views that they hold.

use datafusion::common::{SchemaReference, TableReference};
use datafusion::logical_expr::{CreateCatalogSchema, CreateView, DropCatalogSchema, DropView};

use super::views::{not_a_view, view_table};
use super::{CATALOG, Session};
use crate::error::{Error, Result};
use crate::storage::{PUBLIC, full_name};

impl Session {
    /// The full name of something in one of the database's schemas; an error if there is no such schema.
    pub(super) fn stored_name(&self, name: &TableReference) -> Result<String> {
        let schema = name.schema().unwrap_or(PUBLIC);
        let is_here = name.catalog().is_none_or(|catalog| catalog == CATALOG);
        match is_here && self.database.storage().has_schema(schema) {
            true => Ok(full_name(schema, name.table())),
            false => Err(Error::UnknownSchema {
                name: schema.to_owned(),
            }),
        }
    }

    /// Keeps a view that can be planned.
    pub(super) async fn create_view(&self, create: CreateView) -> Result<String> {
        if create.temporary {
            return Err(Error::NotSupported {
                what: "CREATE TEMPORARY VIEW".into(),
            });
        }
        let name = self.stored_name(&create.name)?;
        let text = create.definition.ok_or_else(|| not_a_view(&name))?;
        view_table(&self.context.state(), &name, &text).await?;
        let storage = self.database.storage();
        storage.put_view(&name, &text, create.or_replace)?;
        Ok(format!("view {name} created"))
    }

    pub(super) fn drop_view(&self, drop: &DropView) -> Result<String> {
        let name = self.stored_name(&drop.name)?;
        match (self.database.storage().drop_view(&name)?, drop.if_exists) {
            (true, _) => Ok(format!("view {name} dropped")),
            (false, true) => Ok(format!("no view {name}")),
            (false, false) => Err(Error::UnknownView { name }),
        }
    }

    pub(super) fn create_schema(&self, create: &CreateCatalogSchema) -> Result<String> {
        let name = create.schema_name.as_str();
        let own = name
            .strip_prefix(CATALOG)
            .and_then(|rest| rest.strip_prefix('.'));
        let name = own.unwrap_or(name);
        match (
            self.database.storage().create_schema(name)?,
            create.if_not_exists,
        ) {
            (true, _) => Ok(format!("schema {name} created")),
            (false, true) => Ok(format!("schema {name} exists already")),
            (false, false) => Err(Error::SchemaExists {
                name: name.to_owned(),
            }),
        }
    }

    pub(super) fn drop_schema(&self, drop: &DropCatalogSchema) -> Result<String> {
        let name = match &drop.name {
            SchemaReference::Bare { schema } | SchemaReference::Full { schema, .. } => schema,
        };
        let storage = self.database.storage();
        match (storage.drop_schema(name, drop.cascade)?, drop.if_exists) {
            (true, _) => Ok(format!("schema {name} dropped")),
            (false, true) => Ok(format!("no schema {name}")),
            (false, false) => Err(Error::UnknownSchema {
                name: name.to_string(),
            }),
        }
    }
}
