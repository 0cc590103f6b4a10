//! Keeps what is known of the rows below grouping sets from being believed of the rows above.
//!
//! A grouping set makes NULLs of keys that it leaves out. The engine still takes a key that was constant below, or equal
//! to another, for that, and drops sorts (`docs/upstream/grouping-sets-order.md`).

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};

/// Puts [`ForgetExec`] above every aggregation by several grouping sets.
#[derive(Debug)]
pub(super) struct ForgetBelowGroupingSets;

impl PhysicalOptimizerRule for ForgetBelowGroupingSets {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let sets = node.downcast_ref::<AggregateExec>();
            let sets = sets.map_or(0, |aggregate| aggregate.group_expr().groups().len());
            Ok(match sets {
                0 | 1 => Transformed::no(node),
                _ => Transformed::yes(Arc::new(ForgetExec::new(node)) as _),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "forget_below_grouping_sets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Passes rows on, about which nothing is known but their types and partitions.
#[derive(Debug)]
struct ForgetExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl ForgetExec {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self {
            input,
            properties: Arc::new(properties),
        }
    }
}

impl ExecutionPlan for ForgetExec {
    fn name(&self) -> &str {
        "ForgetExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> QueryResult<TreeNodeRecursion>,
    ) -> QueryResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let input = children.into_iter().next();
        Ok(Arc::new(Self::new(
            input.unwrap_or_else(|| self.input.clone()),
        )))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}

impl DisplayAs for ForgetExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ForgetExec: rows of grouping sets")
    }
}
