//! Rules of the optimizer that are a function: of one node of a logical plan at a time, or around a rule of the engine.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::decisions::wanted_of;
use crate::settings::SessionSettings;

/// Rewrites nodes by a function of them and the session's settings, in this order: those of which it makes another
/// plan.
#[derive(Debug)]
pub(super) struct NodeRule {
    pub name: &'static str,
    /// What it has done where it made another plan, for EXPLAIN VERBOSE. `None`: it gives its reasons itself.
    pub says: Option<&'static str>,
    pub order: ApplyOrder,
    pub rewrite: fn(&LogicalPlan, &SessionSettings) -> QueryResult<Option<LogicalPlan>>,
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
        config: &dyn OptimizerConfig,
    ) -> QueryResult<Transformed<LogicalPlan>> {
        let options = config.options();
        let settings = options.extensions.get::<SessionSettings>();
        let rewritten = match settings {
            Some(settings) => (self.rewrite)(&plan, settings),
            None => (self.rewrite)(&plan, &SessionSettings::default()),
        };
        Ok(match rewritten? {
            Some(rewritten) => {
                if let (Some(says), Some(notes)) = (self.says, settings.and_then(wanted_of)) {
                    notes.note(format!("{says}, at {}", plan.display()));
                }
                Transformed::yes(rewritten)
            }
            None => Transformed::no(plan),
        })
    }
}

/// A rule of the engine.
pub(super) type EngineRule = Arc<dyn OptimizerRule + Send + Sync>;

/// A rule of the engine, run by a function that decides whether it sees a plan, and in which form.
#[derive(Debug)]
pub(super) struct AroundRule {
    pub rule: EngineRule,
    pub rewrite:
        fn(&EngineRule, LogicalPlan, &dyn OptimizerConfig) -> QueryResult<Transformed<LogicalPlan>>,
}

impl OptimizerRule for AroundRule {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> QueryResult<Transformed<LogicalPlan>> {
        (self.rewrite)(&self.rule, plan, config)
    }
}
