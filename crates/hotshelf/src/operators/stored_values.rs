//! `StoredValuesExec`: the values of a table's column, each of them once or more often, without its rows.

use std::fmt;
use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, internal_err};
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::TryStreamExt;

use super::work::handed_on;
use crate::scan::StoredValues;

/// A leaf below operators to which it does not matter how often a value comes.
pub(crate) struct StoredValuesExec {
    values: StoredValues,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl StoredValuesExec {
    pub fn new(values: StoredValues) -> Self {
        let schema = values.scan().schema.clone();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            values,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same for another run.
    pub fn anew(&self) -> Self {
        Self::new(self.values.clone())
    }
}

impl ExecutionPlan for StoredValuesExec {
    fn name(&self) -> &str {
        "StoredValuesExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
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
            false => internal_err!("stored values are a leaf"),
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
        if partition > 0 {
            return internal_err!("stored values are in one partition");
        }
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let batches = self.values.clone().open(context.clone());
        let counted = batches.inspect_ok(move |batch| metrics.record_output(batch.num_rows()));
        Ok(handed_on(self.schema(), counted, &context))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> QueryResult<Arc<Statistics>> {
        let scan = self.values.scan();
        let columns = &scan.table.statistics.column_statistics;
        let columns = scan.columns.iter().map(|column| columns[*column].clone());
        let statistics = Statistics {
            num_rows: Precision::Inexact(self.values.count as usize),
            total_byte_size: Precision::Absent,
            column_statistics: columns.collect(),
        };
        Ok(Arc::new(statistics.to_inexact()))
    }
}

impl fmt::Debug for StoredValuesExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for StoredValuesExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let parts = self.values.described();
        match format {
            DisplayFormatType::TreeRender => f.write_str(&parts.join("\n")),
            _ => write!(f, "StoredValuesExec: {}", parts.join(", ")),
        }
    }
}
