//! Views as tables: a view is kept as it was written and planned when it is read, so that it sees tables as they are
//! then.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session as CatalogSession, TableProvider};
use datafusion::datasource::{TableType, ViewTable};
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{DdlStatement, Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;

use super::columns::ensure_unique_columns;
use super::parsing::parse;
use super::shape::check_views;
use crate::error::{Error, Result};

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
struct ViewDepth;

impl ViewDepth {
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

impl Drop for ViewDepth {
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
    let _descent = ViewDepth::into(name)?;
    let statement = parse(state, text)?.pop();
    let statement = statement.ok_or_else(|| not_a_view(name))?;
    let tables_named = statement.tables_named;
    let plan = Box::pin(state.statement_to_plan(statement.parsed)).await;
    let plan = plan.map_err(|error| Error::from_query(error.context(format!("view {name}"))))?;
    let LogicalPlan::Ddl(DdlStatement::CreateView(create)) = plan else {
        return Err(not_a_view(name));
    };
    let plan = Arc::unwrap_or_clone(create.input);
    check_views(&plan, tables_named)?;
    let analyzer = state.analyzer();
    let plan = analyzer
        .execute_and_check(plan, state.config_options(), |_, _| {})
        .map_err(Error::from_query)?;
    ensure_unique_columns(plan.schema().inner())?;
    Ok(Arc::new(ViewTable::new(plan, Some(text.to_owned()))))
}

pub(super) fn not_a_view(name: &str) -> Error {
    let text = format!("the stored text of view {name} is not a CREATE VIEW");
    Error::Query(DataFusionError::Execution(text))
}
