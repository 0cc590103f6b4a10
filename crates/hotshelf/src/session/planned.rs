//! Statements that have been planned, and what remains to be done for them.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;

use super::account::QueryAccount;
use super::answer::{self, Again, Answer, RunningPlan};
use super::target::Unfinished;
use super::{depth, explain, interrupt};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::settings::{SessionSettings, Use};
use crate::storage::IfExists;

/// A statement that has been planned: what remains to be done.
pub(super) enum Planned {
    /// Nothing, or what the database does itself.
    Done(String),
    /// A plan whose rows are the answer.
    Rows(Runnable),
    /// A plan that changes a table; its rows say what it did.
    Change(Runnable),
    /// A table of a plan's rows.
    Table(Box<PlannedTable>),
    /// Files of a plan's rows, to be published at its end.
    Copy(Runnable, Unfinished),
}

/// A plan and what it runs with.
pub(super) struct Runnable {
    pub plan: Arc<dyn ExecutionPlan>,
    /// What the plan was made of, where it may be made and run again.
    pub logical: Option<LogicalPlan>,
    pub state: SessionState,
    /// Whether the rules' notes follow the rows.
    pub with_notes: bool,
    /// What keeps account of the memory, where an account follows the rows.
    pub engine: Option<Arc<Engine>>,
}

/// A table to be made of a plan's rows.
pub(super) struct PlannedTable {
    pub name: String,
    pub schema: SchemaRef,
    pub if_exists: IfExists,
    pub cluster_by: Vec<String>,
    pub input: Runnable,
    pub note: &'static str,
}

impl Runnable {
    /// Starts the plan; its rows come as they are taken.
    pub fn run(self) -> Result<Answer> {
        let Self {
            plan,
            logical,
            state,
            with_notes,
            engine,
        } = self;
        let mut context = TaskContext::from(&state);
        let account =
            engine.map(|engine| QueryAccount::open(query_of(&state), engine, &mut context));
        let plan = RunningPlan::new(plan);
        let interrupt = interrupt_of(&state);
        let notes = with_notes.then(|| explain::notes(&state));
        let again = logical.map(|logical| plan_again(logical, state));
        let mut batches = answer::start(&plan, Arc::new(context), interrupt, again);
        if let Some(notes) = notes {
            batches = explain::with_notes(batches, notes)?;
        }
        if let Some(account) = account {
            batches = explain::with_account(batches, account);
        }
        Ok(Answer {
            batches,
            message: None,
            plan: Some(plan),
        })
    }
}

/// The plan that runs, ready to be interrupted.
pub(super) async fn plan_physically(
    optimized: &LogicalPlan,
    state: &SessionState,
) -> Result<Arc<dyn ExecutionPlan>> {
    let planner = state.query_planner();
    let plan = planner.create_physical_plan(optimized, state).await;
    let plan = plan.map_err(Error::from_query)?;
    depth::check(&plan).map_err(Error::from_query)?;
    interrupt::interruptible(plan, &interrupt_of(state)).map_err(Error::from_query)
}

/// The plan for a query that has run out of memory.
fn plan_again(logical: LogicalPlan, mut state: SessionState) -> Again {
    let plan = async move {
        let extensions = &mut state.config_mut().options_mut().extensions;
        if let Some(settings) = extensions.get_mut::<SessionSettings>() {
            settings.operators = Use::Always;
        }
        plan_physically(&logical, &state).await
    };
    plan.boxed()
}

/// The number of the query that a state is for.
fn query_of(state: &SessionState) -> u64 {
    let extensions = &state.config().options().extensions;
    let settings = extensions.get::<SessionSettings>();
    settings.map_or(0, |settings| settings.query_id)
}

/// The flag of the query that a state is for.
pub(super) fn interrupt_of(state: &SessionState) -> Interrupt {
    let extensions = &state.config().options().extensions;
    let settings = extensions.get::<SessionSettings>();
    settings.map_or_else(Interrupt::default, |settings| settings.interrupt.clone())
}
