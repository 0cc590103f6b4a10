//! `SharedExec`: one use of a part that occurs more than once.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, internal_err};
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, Statistics,
};
use futures::TryStreamExt;

use super::rows::SharedRows;
use crate::scan::rows_on_the_way;

/// A leaf: rules of the engine do not see the part, which has been planned.
pub(crate) struct SharedExec {
    rows: Arc<SharedRows>,
}

impl SharedExec {
    pub fn new(rows: Arc<SharedRows>) -> Self {
        Self { rows }
    }

    pub fn rows(&self) -> &SharedRows {
        &self.rows
    }
}

/// The part that an operator gives the rows of, with its number, if it gives those of a shared part.
pub(crate) fn shared_part(
    plan: &Arc<dyn ExecutionPlan>,
) -> Option<(usize, &Arc<dyn ExecutionPlan>)> {
    let shared = plan.downcast_ref::<SharedExec>()?;
    Some((shared.rows.number, &shared.rows.plan))
}

impl ExecutionPlan for SharedExec {
    fn name(&self) -> &str {
        "SharedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.rows.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        match children.is_empty() {
            true => Ok(self),
            false => internal_err!("a shared part is a leaf"),
        }
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> QueryResult<TreeNodeRecursion>,
    ) -> QueryResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let rows = Arc::clone(&self.rows);
        let batches = futures::stream::once(async move {
            let rows = rows.partition(partition, &context)?;
            let first = (0, rows_on_the_way(&context));
            Ok::<_, DataFusionError>(futures::stream::try_unfold(first, move |(number, read)| {
                let rows = Arc::clone(&rows);
                async move {
                    let batch = rows.batch(number, &read).await?;
                    Ok(batch.map(|batch| (batch, (number + 1, read))))
                }
            }))
        });
        let batches = batches.try_flatten();
        let schema = self.schema();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.rows.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> QueryResult<Arc<Statistics>> {
        Ok(match args.partition() {
            None => Arc::clone(&self.rows.statistics),
            Some(_) => Arc::new(Statistics::new_unknown(&self.schema())),
        })
    }
}

impl fmt::Debug for SharedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for SharedExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let SharedRows { number, uses, .. } = *self.rows;
        if matches!(format, DisplayFormatType::TreeRender) {
            return write!(f, "part {number}, used {uses} times");
        }
        write!(f, "SharedExec: part {number}, used {uses} times")?;
        let plan = DisplayableExecutionPlan::with_metrics(self.rows.plan.as_ref());
        let text = plan.indent(false).to_string();
        text.trim_end()
            .lines()
            .try_for_each(|line| write!(f, "\n    part {number}: {line}"))
    }
}
