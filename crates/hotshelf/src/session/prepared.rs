//! Prepared statements: kept as they were written and planned when they are executed, so that they see tables as they
//! are then.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::{DFSchema, ParamValues};
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, LogicalPlan, Prepare, Statement as PlanStatement};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use parking_lot::RwLock;

use super::point::{KnownPoint, PointStatement};
use super::{Answer, Session, Statement, Value, answer, insert};
use crate::error::{Error, Result};
use crate::index::PointAsker;
use crate::input::exact::exact_cast;
use crate::kept_plans::SettingsVersion;
use crate::settings::{SessionSettings, Use};

/// The prepared statements of a session by name.
#[derive(Debug, Clone, Default)]
pub(super) struct PreparedStatements(Arc<Kept>);

/// What the clones of a session share.
#[derive(Debug, Default)]
struct Kept {
    statements: RwLock<HashMap<String, Prepared>>,
    /// Changes with every SET.
    settings: RwLock<SettingsVersion>,
}

/// A PREPARE that has been planned.
#[derive(Debug, Clone)]
struct Prepared {
    name: String,
    /// As it was written: it is planned again, so that it sees tables as they are.
    statement: ParsedStatement,
    /// Types of its parameters, if it names them.
    types: Vec<DataType>,
    parameter_count: usize,
    point: KnownPoint,
}

/// What an EXECUTE is.
pub(super) enum Expanded {
    /// A plan with its parameters in place, or any other statement's.
    Plan(LogicalPlan),
    /// The rows of its answer.
    Answer(RecordBatch),
}

impl PreparedStatements {
    /// The settings as they are.
    pub fn settings(&self) -> SettingsVersion {
        *self.0.settings.read()
    }

    /// Something is set: names and literals may mean something else. Returns what the settings were.
    pub fn settings_changed(&self) -> SettingsVersion {
        std::mem::replace(&mut self.0.settings.write(), SettingsVersion::new())
    }

    /// Keeps a PREPARE that has been planned.
    pub fn keep(&self, prepare: &Prepare, statement: ParsedStatement) -> Result<String> {
        // The planner has guesses where none are named.
        let fields = prepare.fields.iter().filter(|_| names_types(&statement));
        let types: Vec<DataType> = fields.map(|field| field.data_type().clone()).collect();
        let names = prepare.input.get_parameter_names();
        let parameter_count = names.map_err(Error::from_query)?.len();
        if !types.is_empty() && types.len() != parameter_count {
            return Err(refused(format!(
                "PREPARE names {} types for {parameter_count} parameters",
                types.len()
            )));
        }
        let mut kept = self.0.statements.write();
        let name = prepare.name.clone();
        if kept.contains_key(&name) {
            return Err(refused(format!(
                "prepared statement '{name}' exists already; DEALLOCATE {name} forgets it"
            )));
        }
        let point = KnownPoint::default();
        point.learn(&prepare.input, self.settings());
        let prepared = Prepared {
            name: name.clone(),
            statement,
            types,
            parameter_count,
            point,
        };
        kept.insert(name.clone(), prepared);
        Ok(format!("statement {name} prepared"))
    }

    fn get(&self, name: &str) -> Result<Prepared> {
        let kept = self.0.statements.read().get(name).cloned();
        kept.ok_or_else(|| refused(format!("there is no prepared statement '{name}'")))
    }

    pub fn forget(&self, name: &str) -> Result<String> {
        match self.0.statements.write().remove(name) {
            Some(_) => Ok(format!("statement {name} forgotten")),
            None => Err(refused(format!("there is no prepared statement '{name}'"))),
        }
    }
}

impl Prepared {
    /// The values of an EXECUTE's parameters, in the types that the statement names.
    fn values(
        &self,
        state: &SessionState,
        parameters: Vec<Expr>,
    ) -> Result<Vec<ScalarAndMetadata>> {
        let values = literals(state, parameters).map_err(Error::from_query)?;
        let (expected, found) = (self.parameter_count, values.len());
        if found > expected || !self.types.is_empty() && found < expected {
            let name = &self.name;
            return Err(refused(format!(
                "prepared statement '{name}' has {expected} parameters, not {found}"
            )));
        }
        if self.types.is_empty() {
            return Ok(values);
        }
        let typed = values.into_iter().zip(&self.types).enumerate();
        typed
            .map(|(idx, (value, data_type))| self.exact(idx, value, data_type))
            .collect()
    }

    /// A parameter's value in the type that is named for it; an error if it would become another value.
    fn exact(
        &self,
        idx: usize,
        value: ScalarAndMetadata,
        data_type: &DataType,
    ) -> Result<ScalarAndMetadata> {
        let (value, metadata) = value.into_inner();
        if value.data_type() == *data_type {
            return Ok(ScalarAndMetadata::new(value, metadata));
        }
        let array = value.to_array().map_err(Error::from_query)?;
        let cast = exact_cast(&array, data_type).map_err(|misfit| {
            let (input, parameter) = (format!("EXECUTE {}", self.name), format!("${}", idx + 1));
            misfit.in_statement(input, &parameter, data_type)
        })?;
        let value = ScalarValue::try_from_array(&cast, 0).map_err(Error::from_query)?;
        Ok(ScalarAndMetadata::new(value, metadata))
    }
}

fn names_types(statement: &ParsedStatement) -> bool {
    matches!(statement, ParsedStatement::Statement(own)
        if matches!(own.as_ref(), SqlStatement::Prepare { data_types, .. } if !data_types.is_empty()))
}

fn refused(text: String) -> Error {
    Error::Query(DataFusionError::Execution(text))
}

/// A logical plan with its parameters in place.
pub(super) fn with_values(
    plan: &LogicalPlan,
    values: Vec<ScalarAndMetadata>,
) -> Result<LogicalPlan> {
    let plan = plan.clone();
    plan.replace_params_with_values(&ParamValues::List(values))
        .map_err(Error::from_query)
}

/// The values of expressions that name nothing.
fn literals(state: &SessionState, exprs: Vec<Expr>) -> QueryResult<Vec<ScalarAndMetadata>> {
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(DFSchema::empty()))
        .with_config_options(state.config_options().clone())
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    let simplifier = ExprSimplifier::new(context);
    exprs
        .into_iter()
        .map(|expr| match simplifier.simplify(expr)? {
            Expr::Literal(value, metadata) => Ok(ScalarAndMetadata::new(value, metadata)),
            other => Err(DataFusionError::Execution(format!(
                "a parameter of EXECUTE must be a value, not {other}"
            ))),
        })
        .collect()
}

impl Session {
    /// Runs one statement with values for its parameters `$1`, `$2`, … or `?`, in this order. It sees tables as they
    /// are. A statement that asks an index for few rows is planned at the first call and after changes of its table
    /// only, any other at each.
    ///
    /// # Errors
    /// Those of [`Session::sql`]; too few values, or values of other types.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> hotshelf::Result<()> {
    /// # let database = hotshelf::Database::temporary(hotshelf::Options::default())?;
    /// let session = database.session();
    /// session.query("CREATE TABLE t AS VALUES (1, 'one'), (2, 'two')")?;
    /// let statement = session.parse("SELECT column1 FROM t WHERE column2 = $1")?.remove(0);
    /// let rows = database.block_on(async {
    ///     session.execute_with(&statement, &["two".into()]).await?.collect().await
    /// })?;
    /// assert_eq!(rows[0].num_rows(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn execute_with(
        &self,
        statement: &Statement,
        values: &[Value],
    ) -> crate::Result<Answer> {
        let values = values
            .iter()
            .map(|value| ScalarAndMetadata::new(value.to_scalar(), None));
        let (statement, values) = (statement.clone(), values.collect());
        let run = self.run_planned(statement, Some(values));
        Ok(answer::guarded("running the statement", run).await?)
    }

    /// The answer of a statement with values for its parameters, if it is known to ask an index for few rows and the
    /// table is as it was when that was found out.
    pub(super) async fn answer_point(
        &self,
        known: &KnownPoint,
        values: &[ScalarAndMetadata],
    ) -> Option<RecordBatch> {
        self.answer_statement(known.get()?.as_ref(), values).await
    }

    /// The answer of a statement with values, if the table and the settings are what they were when it was planned.
    pub(super) async fn answer_statement(
        &self,
        statement: &PointStatement,
        values: &[ScalarAndMetadata],
    ) -> Option<RecordBatch> {
        let table = self.database.storage().table(&statement.table_name)?;
        let priority = {
            let state = self.context.state_ref();
            let state = state.read();
            let options = state.config().options();
            let settings = options.extensions.get::<SessionSettings>()?;
            let is_same = statement.is_about(&table, self.prepared.settings());
            (is_same && settings.elf != Use::Off).then_some(settings.priority)?
        };
        let engine = self.database.engine();
        let asker = PointAsker {
            elfs: &engine.scan_env.elfs,
            prices: &engine.scan_env.prices,
            weight: engine.cache.query_weight(statement.template, priority),
        };
        statement.ask(&table, asker, values).await
    }

    /// What an EXECUTE is; other plans stay as they are.
    pub(super) async fn expanded(&self, plan: LogicalPlan) -> Result<Expanded> {
        let execute = match plan {
            LogicalPlan::Statement(PlanStatement::Execute(execute)) => execute,
            other => return Ok(Expanded::Plan(other)),
        };
        let state = self.context().state();
        let prepared = self.prepared.get(&execute.name)?;
        let values = prepared.values(&state, execute.parameters)?;
        if values.len() == prepared.parameter_count
            && let Some(rows) = self.answer_point(&prepared.point, &values).await
        {
            return Ok(Expanded::Answer(rows));
        }
        let planned = insert::to_plan(&state, prepared.statement).await;
        let planned = planned.map_err(|error| self.name_the_nearest(error))?;
        let LogicalPlan::Statement(PlanStatement::Prepare(prepare)) = planned else {
            return Ok(Expanded::Plan(planned));
        };
        prepared
            .point
            .learn(&prepare.input, self.prepared.settings());
        with_values(&prepare.input, values).map(Expanded::Plan)
    }
}
