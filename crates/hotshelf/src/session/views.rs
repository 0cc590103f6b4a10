//! Views and schemas. Views are kept as they were written and planned when they are read, so that they see tables as
//! they are then.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session as CatalogSession, TableProvider};
use datafusion::common::{SchemaReference, TableReference};
use datafusion::datasource::{TableType, ViewTable};
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{
    CreateCatalogSchema, CreateView, DdlStatement, DropCatalogSchema, DropView, Expr, LogicalPlan,
};
use datafusion::physical_plan::ExecutionPlan;

use super::parsing::parse;
use super::tables::ensure_unique_columns;
use super::{CATALOG, Session};
use crate::error::{Error, Result};
use crate::storage::{PUBLIC, full_name};

thread_local! {
    /// Views that are being planned on this thread, each for the one before.
    static PLANNED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// Whether this thread plans a statement.
    static PLANNING: Cell<bool> = const { Cell::new(false) };
}

/// While a statement is planned on this thread.
pub(super) struct Planning;

impl Planning {
    pub fn begin() -> Self {
        PLANNING.set(true);
        Self
    }
}

impl Drop for Planning {
    fn drop(&mut self) {
        PLANNING.set(false);
    }
}

/// Whether a name is looked up for a statement, and not for a list of what there is.
pub(super) fn is_planning() -> bool {
    PLANNING.get()
}

/// A view that cannot be planned, as lists of columns see it: it has none.
#[derive(Debug)]
pub(super) struct BrokenView(pub String);

#[async_trait]
impl TableProvider for BrokenView {
    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::empty())
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _state: &dyn CatalogSession,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        Err(DataFusionError::Plan(self.0.clone()))
    }
}

/// Remembers a view while it is planned: a view of itself has no end.
struct Descent;

impl Descent {
    fn into(name: &str) -> Result<Self> {
        PLANNED.with_borrow_mut(|planned| {
            if planned.iter().any(|outer| outer == name) {
                return Err(Error::CircularView { name: name.into() });
            }
            planned.push(name.to_owned());
            Ok(Self)
        })
    }
}

impl Drop for Descent {
    fn drop(&mut self) {
        PLANNED.with_borrow_mut(Vec::pop);
    }
}

/// What a view's text means at this moment.
pub(super) async fn view_table(
    state: &SessionState,
    name: &str,
    text: &str,
) -> Result<Arc<dyn TableProvider>> {
    let _descent = Descent::into(name)?;
    let statement = parse(state, text)?.pop();
    let statement = statement.ok_or_else(|| not_a_view(name))?;
    let plan = Box::pin(state.statement_to_plan(statement.0)).await;
    let plan = plan.map_err(|error| Error::from_query(error.context(format!("view {name}"))))?;
    let LogicalPlan::Ddl(DdlStatement::CreateView(create)) = plan else {
        return Err(not_a_view(name));
    };
    let plan = Arc::unwrap_or_clone(create.input);
    let analyzer = state.analyzer();
    let plan = analyzer
        .execute_and_check(plan, state.config_options(), |_, _| {})
        .map_err(Error::from_query)?;
    ensure_unique_columns(plan.schema().inner())?;
    Ok(Arc::new(ViewTable::new(plan, Some(text.to_owned()))))
}

fn not_a_view(name: &str) -> Error {
    let text = format!("the stored text of view {name} is not a CREATE VIEW");
    Error::Query(DataFusionError::Execution(text))
}

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
        match (self.database.storage().drop_schema(name)?, drop.if_exists) {
            (true, _) => Ok(format!("schema {name} dropped")),
            (false, true) => Ok(format!("no schema {name}")),
            (false, false) => Err(Error::UnknownSchema {
                name: name.to_string(),
            }),
        }
    }
}
