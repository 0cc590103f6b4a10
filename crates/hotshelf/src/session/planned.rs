//! Statements that have been planned, and what remains to be done for them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result as QueryResult;
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use tokio::runtime::Handle;

use super::account::QueryAccount;
use super::answer::{self, Answer, RunningPlan};
use super::explain::Shown;
use super::learning::Learning;
use super::options::TableClauses;
use super::target::Unfinished;
use super::{aside, depth, explain, interrupt};
use crate::engine::{Engine, QueryPool};
use crate::error::{Error, Result, is_shortage};
use crate::interrupt::Interrupt;
use crate::kept_plans::KeptPlans;
use crate::settings::{SessionSettings, Use};
use crate::storage::IfExists;

/// A statement that has been planned: what remains to be done.
pub(super) enum Planned {
    /// Nothing, or what the database does itself.
    Done(String),
    /// Nothing: these are the rows.
    Answered(RecordBatch),
    /// A plan whose rows are the answer.
    Rows(Runnable),
    /// A plan that changes a table; its rows say what it did.
    Change(Runnable),
    /// A table of a plan's rows.
    Table(Box<PlannedTable>),
    /// Files of a plan's rows, to be published at its end.
    Copy(Runnable, Arc<Unfinished>),
}

/// Gives up what a run wrote, before another one begins.
type Discard = Box<dyn FnOnce() -> Result<()> + Send>;

/// A plan and what it runs with.
pub(super) struct Runnable {
    pub plan: Arc<dyn ExecutionPlan>,
    /// What the plan was made of before it was optimized, where it may be made and run again.
    pub logical: Option<LogicalPlan>,
    /// Called before it runs again.
    pub discard: Option<Discard>,
    pub state: SessionState,
    /// Whether the rules' notes follow the rows.
    pub with_notes: bool,
    /// What lends the memory.
    pub engine: Arc<Engine>,
    pub plans: Arc<KeptPlans>,
    /// Whether an account of the memory follows the rows.
    pub with_account: bool,
}

/// A table to be made of a plan's rows.
pub(super) struct PlannedTable {
    pub name: String,
    pub schema: SchemaRef,
    pub if_exists: IfExists,
    pub clauses: TableClauses,
    pub input: Runnable,
    pub note: &'static str,
}

impl Runnable {
    /// Starts the plan; its rows come as they are taken.
    pub fn run(self) -> Result<Answer> {
        let Self {
            plan,
            logical,
            discard,
            state,
            with_notes,
            engine,
            plans,
            with_account,
        } = self;
        let mut context = task_context(&state);
        let settings = SessionSettings::of(state.config());
        let prices = engine.scan_env.prices.clone();
        let account = QueryAccount::open(&settings, engine, &mut context);
        let learning = Learning {
            past_runs: settings.past_runs,
            plans,
            prices,
            template: settings.template,
        };
        let form = explain::form_of(&plan);
        let plan = RunningPlan::new(plan);
        let interrupt = interrupt_of(&state);
        let notes = match with_notes {
            true => explain::notes(&state),
            false => explain::Notes::new(),
        };
        let again = logical.map(|logical| {
            let pool = account.pool();
            let again = async move {
                discard.map_or(Ok(()), |discard| discard())?;
                plan_again(logical, state, pool).await
            };
            again.boxed()
        });
        let batches = answer::start(&plan, Arc::new(context), interrupt, again, Some(learning));
        let account = with_account.then_some(account);
        let batches = explain::with_more(batches, notes, account, form);
        Ok(Answer {
            batches,
            message: None,
            plan: Some(plan),
        })
    }

    /// Gives the rows, and what they are made with, to `take`, which has no effect when it fails: if memory was short,
    /// it is given those of another plan, from the first one.
    pub async fn give<T, Taken>(
        self,
        take: impl Fn(SendableRecordBatchStream, Arc<TaskContext>) -> Taken,
    ) -> Result<T>
    where
        Taken: Future<Output = Result<T>>,
    {
        let mut state = self.state;
        let mut context = task_context(&state);
        let account = QueryAccount::open(
            &SessionSettings::of(state.config()),
            self.engine,
            &mut context,
        );
        let context = Arc::new(context);
        let start = |plan, interrupt| {
            let plan = RunningPlan::new(plan);
            answer::start(&plan, context.clone(), interrupt, None, None)
        };
        let rows = start(self.plan, interrupt_of(&state));
        let taken = take(rows, context.clone()).await;
        let (Err(Error::Query(error)), Some(logical)) = (&taken, self.logical) else {
            return taken;
        };
        if !is_shortage(error) {
            return taken;
        }
        tracing::info!(%error, "the statement begins again with operators that spill");
        // The end of the first run has raised the other one.
        let interrupt = Interrupt::default();
        if let Some(settings) = settings_in(&mut state) {
            settings.interrupt = interrupt.clone();
        }
        match plan_again(logical, state, account.pool()).await {
            Ok(plan) => take(start(plan, interrupt), context.clone()).await,
            Err(error) => {
                tracing::warn!(%error, "the statement cannot be planned again");
                taken
            }
        }
    }
}

/// What operators run with. Functions by name are for plans that come as bytes; copies of their maps would take longer
/// than a small query.
fn task_context(state: &SessionState) -> TaskContext {
    TaskContext::new(
        None,
        state.session_id().to_owned(),
        state.config().clone(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        state.runtime_env().clone(),
    )
}

/// The plan that runs, ready to be interrupted.
pub(crate) async fn plan_physically(
    optimized: &LogicalPlan,
    state: &SessionState,
) -> Result<Arc<dyn ExecutionPlan>> {
    let (planned, shown) = Shown::of(optimized, state);
    let plan = crate::shared::plan_physically(&planned, state).await;
    let plan = plan
        .and_then(|plan| ready(plan, &interrupt_of(state)))
        .map_err(Error::from_query)?;
    Ok(match shown {
        Some(shown) => shown.show(plan),
        None => plan,
    })
}

/// A plan that may run: it is not too deep, and can be interrupted.
pub(crate) fn ready(
    plan: Arc<dyn ExecutionPlan>,
    interrupt: &Interrupt,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    depth::check(&plan)?;
    interrupt::interruptible(plan, interrupt)
}

/// The plan for a query that has run out of memory.
async fn plan_again(
    logical: LogicalPlan,
    mut state: SessionState,
    pool: Arc<QueryPool>,
) -> Result<Arc<dyn ExecutionPlan>> {
    pool.forget_prices();
    if let Some(settings) = settings_in(&mut state) {
        settings.operators = Use::Always;
    }
    let plan = move || async move {
        let optimized = state.optimize(&logical).map_err(Error::from_query)?;
        plan_physically(&optimized, &state).await
    };
    aside::run_async("planning the statement again", Handle::current(), plan).await
}

/// The settings of the query that a state is for, to change them.
fn settings_in(state: &mut SessionState) -> Option<&mut SessionSettings> {
    let extensions = &mut state.config_mut().options_mut().extensions;
    extensions.get_mut::<SessionSettings>()
}

/// The flag of the query that a state is for.
pub(crate) fn interrupt_of(state: &SessionState) -> Interrupt {
    SessionSettings::of(state.config()).interrupt
}
