//! Statements that have been planned, and what remains to be done for them.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::ExecutionPlan;

use super::account::QueryAccount;
use super::answer::{self, Answer};
use super::explain;
use super::target::Unfinished;
use crate::engine::Engine;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::settings::SessionSettings;
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
            state,
            with_notes,
            engine,
        } = self;
        let mut context = TaskContext::from(&state);
        let account =
            engine.map(|engine| QueryAccount::open(query_of(&state), engine, &mut context));
        let mut batches = answer::start(plan.clone(), Arc::new(context), interrupt_of(&state));
        if with_notes {
            batches = explain::with_notes(batches, &state)?;
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
