//! INSERT loses nothing: where a value must change its type for its column, it keeps its value or the statement fails.
//!
//! The engine's planner casts the rows of an INSERT where it finds them, also inside of queries, and takes some of
//! their types for others than they get: rows are planned by themselves here, and then cast by [`ExactCast`].

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, plan_datafusion_err, plan_err};
use datafusion::error::Result as QueryResult;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::dml::DmlStatement;
use datafusion::logical_expr::{
    Analyze, Explain, Expr, LogicalPlan, PlanType, Prepare, Projection, Statement as PlanStatement,
    ToStringifiedPlan, Values, WriteOp,
};
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::{DFParser, ExplainStatement, Statement as ParsedStatement};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, Ident, Query, SelectItem, SetExpr, Statement as SqlStatement,
};

use super::exact_cast::ExactCast;

/// Values that are planned at a time.
const VALUES_AT_A_TIME: usize = 1_000;

/// The plan of a statement.
pub(super) async fn to_plan(
    state: &SessionState,
    mut statement: ParsedStatement,
) -> QueryResult<LogicalPlan> {
    let Some(source) = source_of(&mut statement).and_then(Option::take) else {
        return state.statement_to_plan(statement).await;
    };
    let rows = plan_rows(state, &statement, *source).await?;
    let columns = match &rows {
        LogicalPlan::Statement(PlanStatement::Prepare(prepare)) => prepare.input.schema(),
        rows => rows.schema(),
    };
    let columns = columns.fields().len();
    if let Some(source) = source_of(&mut statement) {
        *source = Some(Box::new(stand_in(columns)?));
    }
    let plan = state.statement_to_plan(statement).await?;
    with_rows(plan, rows)
}

/// The query of an INSERT, also of one that is prepared or explained.
fn source_of(statement: &mut ParsedStatement) -> Option<&mut Option<Box<Query>>> {
    match statement {
        ParsedStatement::Statement(statement) => source_in(statement),
        ParsedStatement::Explain(ExplainStatement { statement, .. }) => source_of(statement),
        _ => None,
    }
}

fn source_in(statement: &mut SqlStatement) -> Option<&mut Option<Box<Query>>> {
    match statement {
        SqlStatement::Insert(insert) => Some(&mut insert.source),
        SqlStatement::Prepare { statement, .. } => source_in(statement),
        _ => None,
    }
}

/// A query with this many columns, from which the planner learns nothing.
fn stand_in(columns: usize) -> QueryResult<Query> {
    let columns: Vec<String> = (0..columns)
        .map(|idx| format!("NULL AS {STAND_IN}{idx}"))
        .collect();
    query(&format!("SELECT {}", columns.join(", ")))
}

/// What the names of its columns begin with.
const STAND_IN: &str = "c";

fn query(sql: &str) -> QueryResult<Query> {
    match DFParser::parse_sql(sql)?.pop_front() {
        Some(ParsedStatement::Statement(statement)) => match *statement {
            SqlStatement::Query(query) => Ok(*query),
            other => plan_err!("no query: {other}"),
        },
        _ => plan_err!("no query: {sql}"),
    }
}

/// What an INSERT adds, before it has the types of the table; as a PREPARE if it is prepared, whose parameters may
/// have types.
async fn plan_rows(
    state: &SessionState,
    statement: &ParsedStatement,
    source: Query,
) -> QueryResult<LogicalPlan> {
    let as_statement = |query: Query| {
        let query = SqlStatement::Query(Box::new(query));
        let statement = match statement {
            ParsedStatement::Statement(own) => match own.as_ref() {
                SqlStatement::Prepare {
                    name, data_types, ..
                } => SqlStatement::Prepare {
                    name: name.clone(),
                    data_types: data_types.clone(),
                    statement: Box::new(query),
                },
                _ => query,
            },
            _ => query,
        };
        ParsedStatement::Statement(Box::new(statement))
    };
    let rows = match *source.body {
        SetExpr::Values(values) if is_alone(&source) && !values.value_keyword => values.rows,
        body => {
            let source = Query {
                body: Box::new(body),
                ..source
            };
            return state.statement_to_plan(as_statement(source)).await;
        }
    };
    // Each value by itself: among others, the planner gives it a type that all of them have.
    let width = rows.first().map_or(0, |row| row.content.len());
    if let Some(odd) = rows.iter().find(|row| row.content.len() != width) {
        let found = odd.content.len();
        return plan_err!("the rows of VALUES differ in length: {width} and {found} values");
    }
    let mut cells = rows.into_iter().flat_map(|row| row.content).peekable();
    let (mut exprs, mut prepare) = (Vec::new(), None);
    while cells.peek().is_some() {
        let some = cells.by_ref().take(VALUES_AT_A_TIME);
        let plan = state.statement_to_plan(as_statement(select(some)?)).await?;
        let plan = match plan {
            LogicalPlan::Statement(PlanStatement::Prepare(mut planned)) => {
                let input = std::mem::take(&mut planned.input);
                prepare = Some(planned);
                Arc::unwrap_or_clone(input)
            }
            plan => plan,
        };
        exprs.extend(plan.expressions().into_iter().map(Expr::unalias));
    }
    let rows = values(exprs, width)?;
    Ok(match prepare {
        Some(prepare) => {
            let input = Arc::new(rows);
            LogicalPlan::Statement(PlanStatement::Prepare(Prepare { input, ..prepare }))
        }
        None => rows,
    })
}

/// Whether a query consists of its body.
fn is_alone(query: &Query) -> bool {
    query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
}

/// A query of one row.
fn select(values: impl Iterator<Item = SqlExpr>) -> QueryResult<Query> {
    let mut one = query("SELECT NULL")?;
    if let SetExpr::Select(select) = one.body.as_mut() {
        let named = |(idx, expr)| SelectItem::ExprWithAlias {
            expr,
            alias: Ident::new(format!("{STAND_IN}{idx}")),
        };
        select.projection = values.enumerate().map(named).collect();
    }
    Ok(one)
}

/// Rows of values that may have a type each, as [`exact`] gives them one.
fn values(values: Vec<Expr>, width: usize) -> QueryResult<LogicalPlan> {
    // As the engine calls them, also when parameters have been put in.
    let field = |number| Field::new(format!("column{number}"), DataType::Null, true);
    let fields = (1..=width).map(field).collect::<Vec<_>>();
    let schema = DFSchema::from_unqualified_fields(fields.into(), Default::default())?;
    Ok(LogicalPlan::Values(Values {
        schema: Arc::new(schema),
        values: values.chunks(width.max(1)).map(<[Expr]>::to_vec).collect(),
    }))
}

/// The plan of a statement with rows in place of those that it was planned with.
fn with_rows(plan: LogicalPlan, rows: LogicalPlan) -> QueryResult<LogicalPlan> {
    let inner = |plan: Arc<LogicalPlan>, rows| with_rows(Arc::unwrap_or_clone(plan), rows);
    Ok(match (plan, rows) {
        (
            LogicalPlan::Statement(PlanStatement::Prepare(outer)),
            LogicalPlan::Statement(PlanStatement::Prepare(rows)),
        ) => {
            let input = inner(outer.input, Arc::unwrap_or_clone(rows.input))?;
            LogicalPlan::Statement(PlanStatement::Prepare(Prepare {
                name: outer.name,
                fields: rows.fields,
                input: Arc::new(input),
            }))
        }
        (LogicalPlan::Explain(explain), rows) => {
            let plan = inner(explain.plan, rows)?;
            LogicalPlan::Explain(Explain {
                stringified_plans: vec![plan.to_stringified(PlanType::InitialLogicalPlan)],
                plan: Arc::new(plan),
                ..explain
            })
        }
        (LogicalPlan::Analyze(analyze), rows) => {
            let input = Arc::new(inner(analyze.input, rows)?);
            LogicalPlan::Analyze(Analyze { input, ..analyze })
        }
        (LogicalPlan::Dml(dml), rows) if matches!(dml.op, WriteOp::Insert(_)) => {
            LogicalPlan::Dml(exact(dml, rows)?)
        }
        (other, _) => return plan_err!("{} has no rows", other.display()),
    })
}

/// An INSERT of a query's rows, each value exactly as it is.
fn exact(mut dml: DmlStatement, rows: LogicalPlan) -> QueryResult<DmlStatement> {
    let LogicalPlan::Projection(top) = dml.input.as_ref() else {
        return plan_err!("{} gives the rows of an INSERT", dml.input.display());
    };
    // For each column of the table the one of the rows, or a default.
    let targets = dml.target.schema();
    let table = dml.table_name.to_string();
    let mut casts: Vec<Option<ExactCast>> = vec![None; rows.schema().fields().len()];
    let mut exprs = Vec::with_capacity(targets.fields().len());
    for (target, expr) in targets.fields().iter().zip(&top.expr) {
        let cast = ExactCast::new(&table, target);
        let refs = expr.column_refs();
        let from = refs
            .iter()
            .find_map(|column| column.name.strip_prefix(STAND_IN));
        let value = match from.map(str::parse::<usize>) {
            None => cast.of(expr.clone().unalias()),
            Some(Ok(idx)) if idx < casts.len() => {
                let (qualifier, field) = rows.schema().qualified_field(idx);
                let column = Expr::Column((qualifier, field).into());
                match &rows {
                    LogicalPlan::Values(_) => {
                        casts[idx] = Some(cast);
                        column
                    }
                    _ => cast.of(column),
                }
            }
            Some(_) => return Err(plan_datafusion_err!("{expr} is not a column of the rows")),
        };
        exprs.push(value.alias(target.name()));
    }
    let rows = match rows {
        LogicalPlan::Values(values) => typed(values, &casts)?,
        rows => rows,
    };
    let projected = Projection::try_new(exprs, Arc::new(rows))?;
    dml.input = Arc::new(LogicalPlan::Projection(projected));
    Ok(dml)
}

/// VALUES whose columns have the types that they are cast to.
fn typed(values: Values, casts: &[Option<ExactCast>]) -> QueryResult<LogicalPlan> {
    let field = |(field, cast): (&Arc<Field>, &Option<ExactCast>)| match cast {
        Some(cast) => Field::new(field.name(), cast.data_type().clone(), true),
        None => field.as_ref().clone(),
    };
    let fields = values.schema.fields().iter().zip(casts).map(field);
    let fields = fields.collect::<Vec<_>>();
    let schema = DFSchema::from_unqualified_fields(fields.into(), Default::default())?;
    let value = |(value, cast): (Expr, &Option<ExactCast>)| match (value, cast) {
        (Expr::Literal(ScalarValue::Null, metadata), Some(cast)) if cast.takes_null() => {
            let null = ScalarValue::try_from(cast.data_type())?;
            Ok(Expr::Literal(null, metadata))
        }
        (value, Some(cast)) => Ok(cast.of(value)),
        (value, None) => Ok(value),
    };
    let row = |row: Vec<Expr>| row.into_iter().zip(casts).map(value).collect();
    Ok(LogicalPlan::Values(Values {
        schema: Arc::new(schema),
        values: values
            .values
            .into_iter()
            .map(row)
            .collect::<QueryResult<_>>()?,
    }))
}
