//! `ALTER TABLE … SET (shelf = …)`.

use datafusion::sql::sqlparser::ast::{AlterTable, AlterTableOperation, ObjectName, SqlOption};

use super::options::placement_of;
use super::{Answer, Session};
use crate::error::Result;
use crate::index::Shelf;

impl Session {
    /// Runs `ALTER TABLE … SET (shelf = …)`; `None` if it is another statement, or names no table.
    pub(super) async fn alter_table(&self, alter: &AlterTable) -> Option<Result<Answer>> {
        let [AlterTableOperation::SetOptionsParens { options }] = alter.operations.as_slice()
        else {
            return None;
        };
        Some(self.place_table(&alter.name, options).await)
    }

    async fn place_table(&self, name: &ObjectName, options: &[SqlOption]) -> Result<Answer> {
        let name = self.full_table_name(name)?;
        let storage = self.database.storage();
        let table = storage.require_table(&name)?;
        let before = storage.opener.shelves().placement(&table.folder);
        let placement = placement_of(options, (*before).clone())?;
        let shelf = placement.shelf.clone();
        let bytes = storage.place_table(&name, placement).await?;
        Ok(Answer::done(match shelf {
            Shelf::File => format!("table {name} is in the database's folder"),
            shelf => format!("table {name}: {bytes} bytes on shelf {shelf}"),
        }))
    }
}
