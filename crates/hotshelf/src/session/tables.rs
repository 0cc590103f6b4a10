//! CREATE TABLE and DROP TABLE.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::datatypes::SchemaRef;
use datafusion::common::TableReference;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{CreateMemoryTable, DdlStatement, DropTable};

use super::Session;
use super::answer::Answer;
use super::columns::{ensure_unique_columns, with_types_of};
use super::options::TableClauses;
use super::planned::{Planned, PlannedTable};
use super::room::with_need_to_sort;
use crate::error::{Error, Result};
use crate::operators::in_elf_order;
use crate::storage::{IfExists, NewTable, resolve};

impl Session {
    /// Refuses to put a view or an external table in the place of a stored table, or the other way round.
    pub(super) fn keep_other_kinds(&self, ddl: &DdlStatement) -> Result<()> {
        let (name, wanted) = match ddl {
            DdlStatement::CreateView(create) => (&create.name, "view"),
            DdlStatement::CreateExternalTable(create) => (&create.name, "external table"),
            DdlStatement::CreateMemoryTable(create) => (&create.name, "stored table"),
            _ => return Ok(()),
        };
        if !self.context.table_exist(name.clone()).unwrap_or(false) {
            return Ok(());
        }
        let (name, storage) = (self.stored_name(name)?, self.database.storage());
        let found = match storage.table(&name).is_some() {
            true => "stored table",
            false if storage.view(&name).is_some() => "view",
            false => "external table",
        };
        if found == wanted {
            return Ok(());
        }
        Err(Error::OtherKind {
            name,
            found,
            wanted,
        })
    }

    /// Whether a table to drop is stored, or does not exist (then the error names the nearest one).
    pub(super) fn is_stored_or_missing(&self, name: &TableReference) -> bool {
        let stored = self.stored_name(name);
        let stored = stored.is_ok_and(|name| self.database.storage().table(&name).is_some());
        stored || !self.context.table_exist(name.clone()).unwrap_or(false)
    }

    pub(super) async fn plan_table(
        &self,
        create: CreateMemoryTable,
        clauses: TableClauses,
    ) -> Result<Planned> {
        let name = self.stored_name(&create.name)?;
        if create.temporary {
            return Err(Error::NotSupported {
                what: "CREATE TEMPORARY TABLE".into(),
            });
        }
        if !create.column_defaults.is_empty() {
            return Err(Error::NotSupported {
                what: "a column DEFAULT".into(),
            });
        }
        if create.if_not_exists && create.or_replace {
            // DataFusion's words.
            let text = "'IF NOT EXISTS' cannot coexist with 'REPLACE'".into();
            return Err(Error::Query(DataFusionError::Execution(text)));
        }
        let exists = self.database.storage().table(&name).is_some();
        if exists && create.if_not_exists {
            return Ok(Planned::Done(format!("table {name} exists already")));
        }
        let declared: SchemaRef = create.input.schema().inner().clone();
        ensure_unique_columns(&declared)?;
        let input = self.plan_physical(&create.input).await?;
        Ok(Planned::Table(Box::new(PlannedTable {
            name,
            schema: with_types_of(&declared, &input.plan.schema()),
            if_exists: match create.or_replace {
                true => IfExists::Replace,
                false => IfExists::Fail,
            },
            clauses,
            input,
            note: match create.constraints.is_empty() {
                true => "",
                false => "; its keys are neither checked nor kept",
            },
        })))
    }

    pub(super) async fn store(&self, table: PlannedTable) -> Result<Answer> {
        let PlannedTable {
            name,
            schema,
            if_exists,
            clauses,
            input,
            note,
        } = table;
        let order = match clauses.cluster_by.as_slice() {
            [] => Vec::new(),
            names => resolve(&name, &schema, names)?,
        };
        let (of_table, of_schema, order, clauses) = (&name, &schema, &order, &clauses);
        let create = |rows, context| async move {
            let rows = in_elf_order(vec![rows], order, &context);
            let new = NewTable {
                name: of_table,
                schema: of_schema.clone(),
                if_exists,
                cluster_by: &clauses.cluster_by,
                placement: clauses.placement.clone(),
            };
            let rows = rows.map_err(Error::from_query)?;
            let storage = self.database.storage();
            let rows_written = Arc::new(AtomicU64::new(0));
            storage.create_table(new, rows, rows_written).await
        };
        let plan = input.plan.clone();
        let rows = input.give(create).await;
        let rows = rows.map_err(|error| match order.is_empty() {
            true => error,
            false => with_need_to_sort(error, &plan),
        })?;
        Ok(Answer::done(format!("table {name}: {rows} rows{note}")))
    }

    pub(super) fn drop_table(&self, drop: &DropTable) -> Result<String> {
        let name = self.stored_name(&drop.name)?;
        match self.database.storage().drop_table(&name) {
            Err(Error::UnknownTable { .. }) if drop.if_exists => Ok(format!("no table {name}")),
            result => result.map(|()| format!("table {name} dropped")),
        }
    }
}
