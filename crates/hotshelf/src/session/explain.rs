//! What EXPLAIN says besides the plan: which joins are in another order than in the text, why joins and aggregations
//! are not part of star pipelines, which operators are DataFusion's and why, and the memory that EXPLAIN ANALYZE found.

mod exec;
mod json;
mod node;
mod tree;
mod written;

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::common::format::ExplainFormat;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Explain, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use super::account::QueryAccount;
use crate::error::{Error, Result};
use crate::settings::SessionSettings;

use exec::ShowExec;
pub(super) use written::{format_named, parse};

/// How a plan is shown, other than by the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// For people.
    Tree,
    /// For tools.
    Json,
}

/// How the plan of a statement is shown, other than by the engine.
pub(super) struct Shown {
    /// Whether the plan runs first.
    runs: bool,
    form: Form,
    schema: SchemaRef,
}

impl Shown {
    /// What is to be planned for a statement, and how that is shown if not in the engine's way: where
    /// `datafusion.explain.format` or EXPLAIN itself says `tree`, or `json` for tools. VERBOSE of a tree adds what
    /// the rules decided, which JSON always has; of lines it is the engine's, and so are statements that have no plan
    /// for rows.
    pub fn of<'a>(
        statement: &'a LogicalPlan,
        state: &SessionState,
    ) -> (Cow<'a, LogicalPlan>, Option<Self>) {
        let (plan, runs, schema) = match statement {
            LogicalPlan::Explain(explain) if is_shown(explain) => {
                (&explain.plan, false, &explain.schema)
            }
            LogicalPlan::Explain(explain) if explain.explain_format == ExplainFormat::Tree => {
                let mut explain = explain.clone();
                explain.explain_format = ExplainFormat::Indent;
                return (Cow::Owned(LogicalPlan::Explain(explain)), None);
            }
            LogicalPlan::Analyze(analyze) => (&analyze.input, true, &analyze.schema),
            _ => return (Cow::Borrowed(statement), None),
        };
        let Some(form) = form_for(statement, state) else {
            return (Cow::Borrowed(statement), None);
        };
        let schema = schema.inner().clone();
        (
            Cow::Borrowed(plan.as_ref()),
            Some(Self { runs, form, schema }),
        )
    }

    /// A plan that shows another, after running it if that is to be.
    pub fn show(self, plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(ShowExec::new(plan, self.runs, self.form, self.schema))
    }
}

/// The form that a statement asks for, or its session does.
fn form_for(statement: &LogicalPlan, state: &SessionState) -> Option<Form> {
    let usual = &state.config().options().explain.format;
    let format = match statement {
        // The engine knows VERBOSE in lines only.
        LogicalPlan::Explain(explain) if explain.verbose => usual,
        LogicalPlan::Explain(explain) => &explain.explain_format,
        // The engine takes lines where the statement says nothing, and knows no tree here.
        LogicalPlan::Analyze(analyze) if analyze.format == ExplainFormat::Indent => usual,
        LogicalPlan::Analyze(analyze) => &analyze.format,
        _ => return None,
    };
    match format {
        ExplainFormat::Tree => Some(Form::Tree),
        ExplainFormat::PostgresJSON => Some(Form::Json),
        ExplainFormat::Indent | ExplainFormat::Graphviz => None,
    }
}

fn is_shown(explain: &Explain) -> bool {
    explain.logical_optimization_succeeded && !has_no_rows(&explain.plan)
}

fn is_verbose(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Explain(explain) => explain.verbose,
        LogicalPlan::Analyze(analyze) => analyze.verbose,
        _ => false,
    }
}

fn has_no_rows(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Ddl(_) | LogicalPlan::Statement(_))
}

/// How a plan shows another, if it does.
pub(super) fn form_of(plan: &Arc<dyn ExecutionPlan>) -> Option<Form> {
    plan.downcast_ref::<ShowExec>().map(ShowExec::form)
}

/// The first column of the row about joins and aggregations that are not part of a star pipeline.
const STAR_PIPELINES: &str = "star_pipelines";
/// The first column of the row about operators of DataFusion's.
const OPERATORS: &str = "operators";
/// The first column of the row about the order of joins.
const JOIN_ORDER: &str = "join_order";
/// The first column of the row about what the rules of the planner did.
const DECISIONS: &str = "decisions";
/// The first column of the row about memory.
const MEMORY: &str = "memory";

/// Whether the plan explains another in a form that has room for more.
pub(super) fn takes_notes(plan: &LogicalPlan) -> bool {
    let format = match plan {
        LogicalPlan::Explain(explain) => &explain.explain_format,
        LogicalPlan::Analyze(analyze) => &analyze.format,
        _ => return false,
    };
    *format != ExplainFormat::Graphviz
}

/// Whether what each rule did is shown, too.
pub(super) fn takes_decisions(plan: &LogicalPlan, state: &SessionState) -> bool {
    let is_asked = || is_verbose(plan) || form_for(plan, state) == Some(Form::Json);
    takes_notes(plan) && is_asked()
}

/// What the rules noted while planning: the first column of a row, and its text.
pub(super) type Notes = Vec<(&'static str, String)>;

/// The notes of the rules that had something to say.
pub(super) fn notes(state: &SessionState) -> Notes {
    let extensions = &state.config().options().extensions;
    let Some(settings) = extensions.get::<SessionSettings>() else {
        return Notes::new();
    };
    let mut notes = Notes::new();
    let orders = settings.join_orders.lock();
    let orders = orders
        .iter()
        .map(|(order, reason)| format!("{order}\n{reason}"));
    let orders: Vec<String> = orders.collect();
    if !orders.is_empty() {
        notes.push((JOIN_ORDER, orders.join("\n")));
    }
    let parts = [
        (STAR_PIPELINES, "are not part of one", &settings.not_stars),
        (OPERATORS, "are DataFusion's", &settings.left),
    ];
    for (part, what, noted) in parts {
        if let Some(lines) = noted.lines() {
            notes.push((part, format!("{what}:\n{lines}")));
        }
    }
    if let Some(lines) = settings.decisions.lines() {
        notes.push((DECISIONS, lines));
    }
    notes
}

/// Whether the plan runs another and shows what that took.
pub(super) fn takes_account(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Analyze(_)) && takes_notes(plan)
}

/// Adds what the rules noted to a plan in this form, and what the query got of the memory and what it took of it, once
/// it has run.
pub(super) fn with_more(
    batches: SendableRecordBatchStream,
    notes: Notes,
    account: Option<QueryAccount>,
    form: Option<Form>,
) -> SendableRecordBatchStream {
    let schema = batches.schema();
    if schema.fields().len() != 2 || (notes.is_empty() && account.is_none()) {
        return batches;
    }
    let more = move || -> Notes {
        let memory = account.as_ref().map(|account| (MEMORY, account.describe()));
        notes.iter().cloned().chain(memory).collect()
    };
    let row_schema = schema.clone();
    if form == Some(Form::Json) {
        let documents = batches.map(move |batch| Ok(with_members(&row_schema, &batch?, more())?));
        return Box::pin(RecordBatchStreamAdapter::new(schema, documents));
    }
    let more = futures::stream::once(async move { more() }).flat_map(futures::stream::iter);
    let rows = more.map(move |(kind, text)| Ok(row_of(&row_schema, kind, text, form)?));
    Box::pin(RecordBatchStreamAdapter::new(schema, batches.chain(rows)))
}

/// A document with more in it: tools read one text.
fn with_members(schema: &SchemaRef, document: &RecordBatch, more: Notes) -> Result<RecordBatch> {
    let [kind, text] = [0, 1].map(|column| document.column(column).as_string::<i32>().value(0));
    let text = json::with_members(text, more).map_err(|error| {
        let error = DataFusionError::External(error.into());
        Error::Query(error.context("adding to the JSON of a plan"))
    })?;
    row_of(schema, kind, text, Some(Form::Json))
}

/// A row beside those of a plan. Beside a tree its lines are no longer than the tree's.
fn row_of(schema: &SchemaRef, kind: &str, text: String, form: Option<Form>) -> Result<RecordBatch> {
    let text = match form {
        Some(Form::Tree) => tree::wrapped_lines(&text),
        _ => text,
    };
    let cell = |text: String| Arc::new(StringArray::from(vec![text])) as ArrayRef;
    let columns = vec![cell(kind.to_owned()), cell(text)];
    RecordBatch::try_new(schema.clone(), columns).map_err(|error| Error::Query(error.into()))
}
