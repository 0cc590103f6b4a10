//! What EXPLAIN says besides the plan: which joins are in another order than in the text, why joins and aggregations
//! are not part of star pipelines, which operators are DataFusion's and why, and the memory that EXPLAIN ANALYZE found.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use datafusion::common::format::ExplainFormat;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use super::account::QueryAccount;
use crate::error::{Error, Result};
use crate::settings::SessionSettings;

/// The first column of the row about joins and aggregations that are not part of a star pipeline.
const STAR_PIPELINES: &str = "star_pipelines";
/// The first column of the row about operators of DataFusion's.
const OPERATORS: &str = "operators";
/// The first column of the row about the order of joins.
const JOIN_ORDER: &str = "join_order";
/// The first column of the row about memory.
const MEMORY: &str = "memory";

/// Whether the plan explains another in a form that takes a further row.
pub(super) fn takes_notes(plan: &LogicalPlan) -> bool {
    let format = match plan {
        LogicalPlan::Explain(explain) => &explain.explain_format,
        LogicalPlan::Analyze(analyze) => &analyze.format,
        _ => return false,
    };
    matches!(format, ExplainFormat::Indent | ExplainFormat::Tree)
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
    notes
}

/// Adds rows with what the rules noted.
pub(super) fn with_notes(
    batches: SendableRecordBatchStream,
    notes: Notes,
) -> Result<SendableRecordBatchStream> {
    let schema = batches.schema();
    if notes.is_empty() || schema.fields().len() != 2 {
        return Ok(batches);
    }
    let rows = notes
        .into_iter()
        .map(|(kind, text)| Ok(Ok(row_of(&schema, kind, text)?)));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let batches = batches.chain(futures::stream::iter(rows));
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}

/// Whether the plan runs another and shows what that took.
pub(super) fn takes_account(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Analyze(_)) && takes_notes(plan)
}

/// Adds a row with what the query got of the memory and what it took of it, once it has run.
pub(super) fn with_account(
    batches: SendableRecordBatchStream,
    account: QueryAccount,
) -> SendableRecordBatchStream {
    let schema = batches.schema();
    if schema.fields().len() != 2 {
        return batches;
    }
    let row = {
        let schema = schema.clone();
        async move { Ok(row_of(&schema, MEMORY, account.describe())?) }
    };
    let batches = batches.chain(futures::stream::once(row));
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

fn row_of(schema: &SchemaRef, kind: &str, text: String) -> Result<RecordBatch> {
    let cell = |text: String| Arc::new(StringArray::from(vec![text])) as ArrayRef;
    let columns = vec![cell(kind.to_owned()), cell(text)];
    RecordBatch::try_new(schema.clone(), columns).map_err(|error| Error::Query(error.into()))
}
