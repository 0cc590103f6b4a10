//! A rule of the optimizer that looks at one node of a logical plan at a time.

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Rewrites nodes by a function, in this order.
#[derive(Debug)]
pub(super) struct NodeRule {
    pub name: &'static str,
    pub order: ApplyOrder,
    pub rewrite: fn(LogicalPlan) -> QueryResult<Transformed<LogicalPlan>>,
}

impl OptimizerRule for NodeRule {
    fn name(&self) -> &str {
        self.name
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(self.order)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> QueryResult<Transformed<LogicalPlan>> {
        (self.rewrite)(plan)
    }
}
