//! What EXPLAIN says besides the plan: why joins and aggregations are not star pipelines.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::common::format::ExplainFormat;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::error::{Error, Result};
use crate::settings::SessionSettings;

/// The first column of the row.
const PLAN_TYPE: &str = "star_pipelines";

/// Whether the plan explains another in a form that takes a further row.
pub(super) fn takes_notes(plan: &LogicalPlan) -> bool {
    let format = match plan {
        LogicalPlan::Explain(explain) => &explain.explain_format,
        LogicalPlan::Analyze(analyze) => &analyze.format,
        _ => return false,
    };
    matches!(format, ExplainFormat::Indent | ExplainFormat::Tree)
}

/// Adds a row with what the rules noted while planning, if they did.
pub(super) fn with_notes(
    batches: SendableRecordBatchStream,
    state: &SessionState,
) -> Result<SendableRecordBatchStream> {
    let options = state.config().options();
    let notes = options
        .extensions
        .get::<SessionSettings>()
        .map(|settings| settings.notes.lock().join("\n"))
        .unwrap_or_default();
    let schema = batches.schema();
    if notes.is_empty() || schema.fields().len() != 2 {
        return Ok(batches);
    }
    let cell = |text: String| Arc::new(StringArray::from(vec![text])) as ArrayRef;
    let columns = vec![
        cell(PLAN_TYPE.to_owned()),
        cell(format!("stay with DataFusion:\n{notes}")),
    ];
    let row = RecordBatch::try_new(schema.clone(), columns)
        .map_err(|error| Error::Query(error.into()))?;
    let batches = batches.chain(futures::stream::iter([Ok(row)]));
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}
