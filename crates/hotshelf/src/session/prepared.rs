//! Prepared statements: kept as they were written and planned when they are executed, so that they see tables as they
//! are then.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::ParamValues;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Execute, Expr, LogicalPlan, Prepare, Statement as PlanStatement};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::parser::Statement as ParsedStatement;
use parking_lot::RwLock;

use super::{Answer, Session, Statement, Value, answer};
use crate::error::{Error, Result};

/// The prepared statements of a session by name.
#[derive(Debug, Clone, Default)]
pub(super) struct PreparedStatements(Arc<RwLock<HashMap<String, ParsedStatement>>>);

impl PreparedStatements {
    /// Keeps a PREPARE that has been planned.
    pub fn keep(&self, prepare: &Prepare, statement: ParsedStatement) -> Result<String> {
        let types = prepare.fields.len();
        let names = prepare.input.get_parameter_names();
        let parameters = names.map_err(Error::from_query)?.len();
        if types > 0 && types != parameters {
            return Err(refused(format!(
                "PREPARE names {types} types for {parameters} parameters"
            )));
        }
        let mut kept = self.0.write();
        if kept.contains_key(&prepare.name) {
            let name = &prepare.name;
            return Err(refused(format!(
                "prepared statement '{name}' exists already; DEALLOCATE {name} forgets it"
            )));
        }
        kept.insert(prepare.name.clone(), statement);
        Ok(format!("statement {} prepared", prepare.name))
    }

    pub fn get(&self, name: &str) -> Result<ParsedStatement> {
        let kept = self.0.read().get(name).cloned();
        kept.ok_or_else(|| refused(format!("there is no prepared statement '{name}'")))
    }

    pub fn forget(&self, name: &str) -> Result<String> {
        match self.0.write().remove(name) {
            Some(_) => Ok(format!("statement {name} forgotten")),
            None => Err(refused(format!("there is no prepared statement '{name}'"))),
        }
    }
}

fn refused(text: String) -> Error {
    Error::Query(DataFusionError::Execution(text))
}

/// What a prepared statement does with the parameters of an EXECUTE.
pub(super) fn bound(
    state: &SessionState,
    prepare: Prepare,
    execute: Execute,
) -> Result<LogicalPlan> {
    let values = literals(state, &prepare.input, execute.parameters).map_err(Error::from_query)?;
    let typed = prepare.fields.len();
    let names = prepare.input.get_parameter_names();
    let expected = match typed {
        0 => names.map_err(Error::from_query)?.len(),
        typed => typed,
    };
    if values.len() > expected || typed > 0 && values.len() < expected {
        let (name, found) = (&prepare.name, values.len());
        return Err(refused(format!(
            "prepared statement '{name}' has {expected} parameters, not {found}"
        )));
    }
    let values = match typed {
        0 => Ok(values),
        _ => {
            let typed = values.into_iter().zip(&prepare.fields);
            typed
                .map(|(value, field)| value.cast_storage_to(field.data_type()))
                .collect()
        }
    };
    let values: QueryResult<Vec<_>> = values;
    with_values(&prepare.input, values.map_err(Error::from_query)?)
}

fn with_values(plan: &LogicalPlan, values: Vec<ScalarAndMetadata>) -> Result<LogicalPlan> {
    let plan = plan.clone();
    plan.replace_params_with_values(&ParamValues::List(values))
        .map_err(Error::from_query)
}

/// The values of expressions that name nothing.
fn literals(
    state: &SessionState,
    plan: &LogicalPlan,
    exprs: Vec<Expr>,
) -> QueryResult<Vec<ScalarAndMetadata>> {
    let context = SimplifyContext::builder()
        .with_schema(plan.schema().clone())
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
    /// Runs one statement with values for its parameters `$1`, `$2`, … or `?`, in this order. Planned at each call,
    /// so it sees tables as they are.
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

    /// A logical plan with its parameters in place.
    pub(super) fn with_parameters(
        plan: LogicalPlan,
        values: Option<Vec<ScalarAndMetadata>>,
    ) -> Result<LogicalPlan> {
        match values {
            Some(values) => with_values(&plan, values),
            None => Ok(plan),
        }
    }

    /// The plan of an EXECUTE, if it is one.
    pub(super) async fn expanded(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let execute = match plan {
            LogicalPlan::Statement(PlanStatement::Execute(execute)) => execute,
            other => return Ok(other),
        };
        let state = self.context().state();
        let statement = self.prepared.get(&execute.name)?;
        let planned = state.statement_to_plan(statement).await;
        match planned.map_err(|error| self.name_the_nearest(error))? {
            LogicalPlan::Statement(PlanStatement::Prepare(prepare)) => {
                bound(&state, prepare, execute)
            }
            other => Ok(other),
        }
    }
}
