//! `NumberingExec`: `row_number()` over all rows, which come in order.
//!
//! DataFusion's operator makes a value of its own for every row, and copies the rows.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::common::internal_err;
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::functions_window::row_number::RowNumber;
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowUDFExpr};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
};
use futures::StreamExt;

use super::original::as_original;

/// DataFusion's operator, which says what comes in and out, and Hotshelf's way to number rows.
pub(crate) struct NumberingExec {
    /// A `BoundedWindowAggExec`.
    original: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

impl NumberingExec {
    /// In place of window functions that number all rows. `None`: another operator.
    pub fn replacing(original: &Arc<dyn ExecutionPlan>) -> QueryResult<Option<Self>> {
        let Some(window) = original.downcast_ref::<BoundedWindowAggExec>() else {
            return Ok(None);
        };
        let is_numbering = window.state_observer().is_none()
            && window.input().output_partitioning().partition_count() == 1
            && window.window_expr().iter().all(numbers_all_rows);
        Ok(is_numbering.then(|| Self {
            original: original.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }
}

/// Whether a function is `row_number()` over rows without partitions.
fn numbers_all_rows(expr: &Arc<dyn WindowExpr>) -> bool {
    let Some(standard) = expr.as_any().downcast_ref::<StandardWindowExpr>() else {
        return false;
    };
    let function = standard.get_standard_func_expr().as_any();
    let function = function.downcast_ref::<WindowUDFExpr>();
    expr.partition_by().is_empty()
        && function.is_some_and(|function| function.fun().inner().is::<RowNumber>())
}

impl ExecutionPlan for NumberingExec {
    fn name(&self) -> &str {
        "NumberingExec"
    }

    as_original!();

    fn maintains_input_order(&self) -> Vec<bool> {
        self.original.maintains_input_order()
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let children = self.original.children();
        let [input] = &*children else {
            return internal_err!("rows to be numbered have one source");
        };
        let schema = self.original.schema();
        let number_count = schema.fields().len() - input.schema().fields().len();
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let rows = input.execute(partition, context)?;
        let output = schema.clone();
        let mut row_count = 0;
        let numbered = rows.map(move |batch| {
            let batch = batch?;
            let _timer = baseline.elapsed_compute().timer();
            let end = row_count + batch.num_rows() as u64;
            let numbers = UInt64Array::from_iter_values(row_count + 1..end + 1);
            row_count = end;
            baseline.record_output(batch.num_rows());
            let numbers: ArrayRef = Arc::new(numbers);
            let mut columns = batch.columns().to_vec();
            columns.extend(std::iter::repeat_n(numbers, number_count));
            Ok(RecordBatch::try_new(output.clone(), columns)?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, numbered)))
    }
}

impl fmt::Debug for NumberingExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NumberingExec")
            .field("original", &self.original)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for NumberingExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => self.original.fmt_as(format, f),
            _ => {
                let schema = self.original.schema();
                let number = schema.fields().last();
                write!(
                    f,
                    "NumberingExec: {}",
                    number.map_or("", |field| field.name())
                )
            }
        }
    }
}
