//! The operator that runs a plan, or does not, and shows it as a tree or as JSON.

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, execute_stream,
};
use futures::StreamExt;

use super::node::Node;
use super::{Form, json, tree};

/// A plan to be shown.
pub(super) struct ShowExec {
    plan: Arc<dyn ExecutionPlan>,
    /// Whether it runs first.
    runs: bool,
    form: Form,
    properties: Arc<PlanProperties>,
}

impl ShowExec {
    /// How a plan is shown.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Shows a plan in rows of this schema: two texts.
    pub fn new(plan: Arc<dyn ExecutionPlan>, runs: bool, form: Form, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            plan,
            runs,
            form,
            properties: Arc::new(properties),
        }
    }
}

impl ExecutionPlan for ShowExec {
    fn name(&self) -> &str {
        "ShowExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let [plan] = &children[..] else {
            return internal_err!("one plan is shown");
        };
        let schema = self.schema();
        Ok(Arc::new(Self::new(
            plan.clone(),
            self.runs,
            self.form,
            schema,
        )))
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> QueryResult<TreeNodeRecursion>,
    ) -> QueryResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        _partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let (plan, form, schema) = (self.plan.clone(), self.form, self.schema());
        let rows = self.runs.then(|| execute_stream(plan.clone(), context));
        let rows = rows.transpose()?;
        let row_schema = schema.clone();
        let row = async move {
            if let Some(mut rows) = rows {
                while let Some(batch) = rows.next().await {
                    batch?;
                }
            }
            let node = Node::of(&plan);
            let (what, text) = match form {
                Form::Tree => ("plan", tree::text(&node)),
                Form::Json => ("json", json::text(&node)),
            };
            let columns =
                [what.to_owned(), text].map(|cell| Arc::new(StringArray::from(vec![cell])) as _);
            Ok(RecordBatch::try_new(row_schema, columns.into())?)
        };
        let rows = futures::stream::once(row);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

impl fmt::Debug for ShowExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShowExec")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for ShowExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("ShowExec")
    }
}
