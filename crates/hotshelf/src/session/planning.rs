//! Planning of statements: from what is parsed to what remains to be done.

use std::sync::{Arc, OnceLock};

use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::source_as_provider;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{
    DdlStatement, Explain, LogicalPlan, SetVariable, Statement as PlanStatement,
};
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{Ident, Statement as SqlStatement};

use super::combinations::count_combinations;
use super::options::TableClauses;
use super::planned::{Planned, Runnable, interrupt_of, plan_physically};
use super::prepared::{Expanded, with_values};
use super::samples::read_samples;
use super::unique::learn_unique;
use super::{Session, Statement, batch_rows, explain, fingerprint, insert, shape, views};
use crate::error::{Error, Result, nearest};
use crate::interrupt::Interrupt;
use crate::kept_plans::{KeptPlan, Proof};
use crate::operators::partitions_max;
use crate::outline::plan_by_outline;
use crate::plan::without_repeated_keys;
use crate::settings::{Notes, SessionSettings, Use, check_engine_setting, check_name, unknown};
use crate::stored_table::StoredTable;

impl Session {
    /// Plans a statement; those that only change settings or the catalog are done with that.
    pub(super) async fn plan(
        &self,
        statement: Statement,
        clauses: TableClauses,
        values: Option<Vec<ScalarAndMetadata>>,
    ) -> Result<Planned> {
        let _planning = views::Planning::begin();
        let statement = match shows_profile(&statement) {
            true => self.parse(SHOW_PROFILE)?.pop().unwrap_or(statement),
            false => statement,
        };
        let question = match values {
            None => self.question(&statement),
            Some(_) => None,
        };
        if let Some(question) = &question
            && let Some(planned) = self.recalled(question).await?
        {
            return Ok(planned);
        }
        let begun = self.database.parts().plans.now();
        let state = self.context.state();
        let written = matches!(&statement.parsed, ParsedStatement::Statement(statement)
            if matches!(statement.as_ref(), SqlStatement::Prepare { .. }));
        let written = written.then(|| statement.parsed.clone());
        let tables_named = statement.tables_named;
        let plan = insert::to_plan(&state, statement.parsed)
            .await
            .map_err(|error| self.name_the_nearest(error))?;
        shape::check_views(&plan, tables_named)?;
        if let (Some(written), LogicalPlan::Statement(PlanStatement::Prepare(prepare))) =
            (written, &plan)
        {
            let kept = self.prepared.keep(prepare, written);
            return kept.map(Planned::Done);
        }
        // What an EXECUTE means depends on what was prepared last.
        let is_execute = matches!(plan, LogicalPlan::Statement(PlanStatement::Execute(_)));
        let plan = match self.expanded(plan).await? {
            Expanded::Plan(plan) => plan,
            Expanded::Answer(rows) => return Ok(Planned::Answered(rows)),
        };
        let plan = match values {
            Some(values) => {
                if !is_execute {
                    statement.point.learn(&plan, self.prepared.settings());
                }
                with_values(&plan, values)?
            }
            None => plan,
        };
        if let LogicalPlan::Ddl(ddl) = &plan {
            self.keep_other_kinds(ddl)?;
        }
        let Some(question) = question.filter(|_| is_query(&plan)) else {
            return self.plan_logical(plan, clauses).await;
        };
        let (kept, state) = self.optimized(plan, state).await?;
        let kept = Arc::new(kept);
        self.keep(question, &kept, &state, begun)?;
        self.runnable(&kept, state, false).await.map(Planned::Rows)
    }

    async fn plan_logical(&self, plan: LogicalPlan, clauses: TableClauses) -> Result<Planned> {
        match plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
                self.plan_table(create, clauses).await
            }
            LogicalPlan::Ddl(DdlStatement::DropTable(drop))
                if self.is_stored_or_missing(&drop.name) =>
            {
                self.drop_table(&drop).map(Planned::Done)
            }
            LogicalPlan::Ddl(DdlStatement::CreateView(create)) => {
                self.create_view(create).await.map(Planned::Done)
            }
            LogicalPlan::Ddl(DdlStatement::DropView(drop)) => {
                self.drop_view(&drop).map(Planned::Done)
            }
            LogicalPlan::Ddl(DdlStatement::CreateCatalogSchema(create)) => {
                self.create_schema(&create).map(Planned::Done)
            }
            LogicalPlan::Ddl(DdlStatement::DropCatalogSchema(drop)) => {
                self.drop_schema(&drop).map(Planned::Done)
            }
            LogicalPlan::Statement(PlanStatement::SetVariable(set)) => self.set(set).await,
            plan @ LogicalPlan::Statement(PlanStatement::ResetVariable(_)) => {
                self.settings_changed();
                let rows = self.plan_rows(plan).await;
                self.settings_changed();
                rows.map(Planned::Rows)
            }
            LogicalPlan::Statement(PlanStatement::Deallocate(forget)) => {
                self.prepared.forget(&forget.name).map(Planned::Done)
            }
            LogicalPlan::Copy(copy) => self.plan_copy(copy).await,
            plan @ LogicalPlan::Dml(_) => self.plan_rows(plan).await.map(Planned::Change),
            LogicalPlan::Ddl(DdlStatement::CreateExternalTable(create)) => {
                crate::input::files::check_locations(&create.locations)?;
                let create = LogicalPlan::Ddl(DdlStatement::CreateExternalTable(create));
                self.plan_rows(create).await.map(Planned::Rows)
            }
            plan => self.plan_rows(plan).await.map(Planned::Rows),
        }
    }

    async fn set(&self, mut set: SetVariable) -> Result<Planned> {
        check_name(&set.variable, self.context.copied_config().options())?;
        check_engine_setting(&set.variable, &set.value)?;
        if set.variable == "datafusion.explain.format" {
            set.value = explain::format_named(&set.value)?.to_string();
        }
        let threads = (set.variable == "hotshelf.threads").then(|| set.value.clone());
        let set = PlanStatement::SetVariable(set);
        self.settings_changed();
        let mut is_set = self.plan_rows(LogicalPlan::Statement(set)).await.map(drop);
        if let (Ok(()), Some(threads)) = (&is_set, threads) {
            is_set = self.follow_threads(&threads).await;
        }
        self.settings_changed();
        is_set.map(|()| Planned::Done("set".into()))
    }

    /// Called before a setting is changed, so that no statement begun before takes the new one for the old one, and
    /// after.
    fn settings_changed(&self) {
        let before = self.prepared.settings_changed();
        drop(self.database.parts().plans.forget_settings(before));
    }

    pub(super) async fn plan_rows(&self, plan: LogicalPlan) -> Result<Runnable> {
        let frame = self
            .context
            .execute_logical_plan(plan)
            .await
            .map_err(|error| self.name_the_nearest(error))?;
        let (_, plan) = frame.into_parts();
        self.plan_physical(&plan).await
    }

    pub(super) async fn plan_physical(&self, plan: &LogicalPlan) -> Result<Runnable> {
        let (optimized, state) = self.optimized(plan.clone(), self.context.state()).await?;
        self.runnable(&optimized, state, false).await
    }

    /// An optimized plan, and the session's state for it.
    async fn optimized(
        &self,
        plan: LogicalPlan,
        state: SessionState,
    ) -> Result<(KeptPlan, SessionState)> {
        let plan = without_repeated_keys(plan).map_err(Error::from_query)?;
        let template = fingerprint::template(&plan);
        let state = self.numbered(state, &plan, template);
        let bytes = self.database.engine().pool.limit_bytes();
        learn_unique(&plan, bytes, &interrupt_of(&state))
            .await
            .map_err(Error::from_query)?;
        read_samples(&plan, bytes).map_err(Error::from_query)?;
        let mut optimized = optimize(&plan, &state).map_err(Error::from_query)?;
        let interrupt = interrupt_of(&state);
        let counted = count_combinations(&plan, &interrupt).await;
        if counted.map_err(Error::from_query)? {
            if let Some(settings) = settings_of(&state) {
                settings.join_orders.lock().clear();
            }
            optimized = optimize(&plan, &state).map_err(Error::from_query)?;
        }
        let sides = settings_of(&state).map(|settings| settings.join_sides.lock().clone());
        let kept = KeptPlan {
            optimized,
            template,
            join_sides: sides.unwrap_or_default(),
            may_run_again: may_run_again(&plan, &state).map_err(Error::from_query)?,
            proof: Proof::given(),
            outline: OnceLock::new(),
            plan,
        };
        Ok((kept, state))
    }

    /// What remains to be done for a query with its plan; `is_again` where that was kept.
    pub(super) async fn runnable(
        &self,
        query: &KeptPlan,
        mut state: SessionState,
        is_again: bool,
    ) -> Result<Runnable> {
        self.bound_memory(&mut state, &query.optimized)
            .map_err(Error::from_query)?;
        let physical = match is_again {
            true => plan_by_outline(query, &state).await?,
            false => plan_physically(&query.optimized, &state).await?,
        };
        let plan = &query.plan;
        Ok(Runnable {
            plan: physical,
            logical: query.may_run_again.then(|| plan.clone()),
            discard: None,
            state,
            with_notes: explain::takes_notes(plan),
            engine: self.database.engine().clone(),
            plans: self.database.parts().plans.clone(),
            with_account: explain::takes_account(plan),
        })
    }

    /// Has the plan's long literals repeated for no more rows than fit, and rows divided among no more partitions than
    /// there is memory for.
    fn bound_memory(&self, state: &mut SessionState, plan: &LogicalPlan) -> QueryResult<()> {
        let bytes = self.database.engine().pool.limit_bytes();
        let config = state.config();
        let wanted = config.target_partitions();
        let partitions = wanted.min(partitions_max(bytes));
        if partitions < wanted {
            *state.config_mut() = config.clone().with_target_partitions(partitions);
        }
        let config = state.config();
        let usual = config.batch_size();
        let rows = batch_rows::batch_rows(plan, usual, bytes, partitions)?;
        if rows < usual {
            *state.config_mut() = config.clone().with_batch_size(rows);
        }
        Ok(())
    }

    /// A state of the session with the next query number and the plan's fingerprint in it.
    pub(super) fn numbered(
        &self,
        mut state: SessionState,
        plan: &LogicalPlan,
        template: u64,
    ) -> SessionState {
        let query_id = self.database.engine().next_query();
        let takes_decisions = explain::takes_decisions(plan, &state);
        if let Some(settings) = state
            .config_mut()
            .options_mut()
            .extensions
            .get_mut::<SessionSettings>()
        {
            settings.query_id = query_id;
            settings.template = template;
            let notes = || match explain::takes_notes(plan) {
                true => Notes::wanted(),
                false => Notes::default(),
            };
            settings.not_stars = notes();
            settings.left = notes();
            settings.decisions = match takes_decisions {
                true => Notes::wanted(),
                false => Notes::default(),
            };
            settings.join_orders = Arc::default();
            settings.join_sides = Arc::default();
            settings.interrupt = Interrupt::default();
        }
        state
    }

    async fn follow_threads(&self, threads: &str) -> Result<()> {
        let sql = format!("SET datafusion.execution.target_partitions = {threads}");
        self.context.sql(&sql).await.map_err(Error::from_query)?;
        Ok(())
    }

    /// Offers the nearest table where DataFusion says only that there is none.
    pub(super) fn name_the_nearest(&self, error: DataFusionError) -> Error {
        let text = error.to_string();
        if let Some((start, _)) = text.split_once(NOT_SHOWN) {
            let name = start.rsplit('\'').next().unwrap_or(start);
            let options = self.context.copied_config();
            return unknown(name, &options.options().entries());
        }
        let missing = text
            .split_once("table '")
            .and_then(|(_, rest)| rest.split_once("' not found"))
            .map(|(name, _)| name.splitn(3, '.').last().unwrap_or(name).to_owned());
        match missing {
            Some(table) => {
                let names = self.database.table_names();
                let nearest = nearest(&table, names.iter().map(String::as_str));
                Error::UnknownTable { table, nearest }
            }
            None => Error::from_query(error),
        }
    }
}

/// The plan that the rules make of one. The engine writes out a plan that EXPLAIN shows after each of its rules, which
/// takes longer than they do, and only VERBOSE shows it.
fn optimize(plan: &LogicalPlan, state: &SessionState) -> QueryResult<LogicalPlan> {
    if let LogicalPlan::Explain(explain) = plan
        && !explain.verbose
        && let Ok(optimized) = state.optimize(&explain.plan)
    {
        return Ok(LogicalPlan::Explain(Explain {
            plan: Arc::new(optimized),
            logical_optimization_succeeded: true,
            ..explain.clone()
        }));
    }
    state.optimize(plan)
}

pub(super) fn settings_of(state: &SessionState) -> Option<&SessionSettings> {
    state.config().options().extensions.get::<SessionSettings>()
}

/// Whether a statement that has run out of memory may begin again.
fn may_run_again(plan: &LogicalPlan, state: &SessionState) -> QueryResult<bool> {
    Ok(runs_otherwise_again(state) && !plan.exists(|node| Ok(leaves_something(node)))?)
}

/// Whether a plan that is made again, where memory is short, is another one.
pub(super) fn runs_otherwise_again(state: &SessionState) -> bool {
    settings_of(state).is_some_and(|settings| settings.operators == Use::On)
}

/// Whether a plan gives rows and does nothing else.
fn is_query(plan: &LogicalPlan) -> bool {
    !matches!(
        plan,
        LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Statement(_)
    )
}

/// Whether a node that fails may have changed something. An INSERT into a stored table has not.
fn leaves_something(node: &LogicalPlan) -> bool {
    match node {
        LogicalPlan::Dml(dml) => {
            let target = source_as_provider(&dml.target);
            target.map_or(true, |target| {
                target.downcast_ref::<StoredTable>().is_none()
            })
        }
        LogicalPlan::Ddl(_) | LogicalPlan::Copy(_) | LogicalPlan::Statement(_) => true,
        _ => false,
    }
}

/// What the engine says after a name that SHOW does not know.
const NOT_SHOWN: &str = "' is not a variable which can be viewed";

/// SHOW answers with one row per setting, and the profile has many values.
const SHOW_PROFILE: &str = "SELECT name, value, source, reason FROM machine_profile()";

fn shows_profile(statement: &Statement) -> bool {
    let ParsedStatement::Statement(own) = &statement.parsed else {
        return false;
    };
    let SqlStatement::ShowVariable { variable } = own.as_ref() else {
        return false;
    };
    let named = ["hotshelf", "profile"];
    let is_named = |(part, name): (&Ident, &str)| part.value.eq_ignore_ascii_case(name);
    variable.len() == named.len() && variable.iter().zip(named).all(is_named)
}
