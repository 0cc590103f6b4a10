//! Keeps filters above aggregations that give a row for no rows.
//!
//! The engine pushes a predicate without columns, such as the `false` that `n = 1 AND n = 2` is simplified to, below an
//! aggregation without keys, which then answers with a row (`docs/upstream/false-below-aggregate.md`).

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The engine's pushing of filters, which stops at such an aggregation.
#[derive(Debug)]
pub(super) struct KeepFilters {
    pub push: Arc<dyn OptimizerRule + Send + Sync>,
}

impl OptimizerRule for KeepFilters {
    fn name(&self) -> &str {
        self.push.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.push.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> QueryResult<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Filter(filter) if answers_for_no_rows(&filter.input) => {
                Ok(Transformed::no(plan))
            }
            _ => self.push.rewrite(plan, config),
        }
    }
}

/// An aggregation without keys, or with grouping sets: one of them may have none.
fn answers_for_no_rows(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(aggregate) = plan else {
        return false;
    };
    let keys = &aggregate.group_expr;
    keys.is_empty() || keys.iter().any(|key| matches!(key, Expr::GroupingSet(_)))
}
