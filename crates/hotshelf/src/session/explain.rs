//! What EXPLAIN says besides the plan: why joins and aggregations are not star pipelines, and what EXPLAIN ANALYZE says
//! about memory.

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

/// The first column of the row about joins and aggregations that are not star pipelines.
const STAR_PIPELINES: &str = "star_pipelines";
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

/// What the rules noted while planning.
pub(super) fn notes(state: &SessionState) -> String {
    let extensions = &state.config().options().extensions;
    let settings = extensions.get::<SessionSettings>();
    settings.map_or_else(String::new, |settings| settings.notes.lock().join("\n"))
}

/// Adds a row with what the rules noted, if they did.
pub(super) fn with_notes(
    batches: SendableRecordBatchStream,
    notes: String,
) -> Result<SendableRecordBatchStream> {
    let schema = batches.schema();
    if notes.is_empty() || schema.fields().len() != 2 {
        return Ok(batches);
    }
    let row = row_of(
        &schema,
        STAR_PIPELINES,
        format!("stay with DataFusion:\n{notes}"),
    )?;
    let batches = batches.chain(futures::stream::iter([Ok(row)]));
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
