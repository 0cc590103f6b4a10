//! What a plan that ran to its end shows about its joins.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;

use crate::kept_plans::KeptPlans;
use crate::operators::SpillingHashJoinExec;
use crate::past_runs::PastRuns;
use crate::star::fallback;

/// Where it is remembered.
pub(super) struct Learning {
    pub past_runs: Arc<PastRuns>,
    pub plans: Arc<KeptPlans>,
    /// The query's fingerprint.
    pub template: u64,
}

impl Learning {
    /// Remembers how many rows joins of a plan gave. A kept plan that expected others is made anew next time.
    pub fn note(&self, plan: &Arc<dyn ExecutionPlan>) {
        if self.note_below(plan, true) {
            drop(self.plans.forget_template(self.template));
        }
    }

    /// Whether something was wrong. What is above may have kept rows of a join back, or have asked for some alone: then
    /// it was not `whole`, and would have given as many rows or more.
    fn note_below(&self, plan: &Arc<dyn ExecutionPlan>, whole: bool) -> bool {
        let own = plan.downcast_ref::<SpillingHashJoinExec>();
        let mut was_wrong = false;
        if let Some(expected) = own.and_then(SpillingHashJoinExec::expected)
            && let Some(rows) = plan.metrics().and_then(|metrics| metrics.output_rows())
            && (whole && plan.fetch().is_none() || rows as f64 > expected.rows)
        {
            was_wrong = self.past_runs.note(self.template, expected, rows as u64);
        }
        // A star's joins are one operator.
        if fallback(plan).is_some() {
            return was_wrong;
        }
        let is_join = own.is_some() || plan.downcast_ref::<HashJoinExec>().is_some();
        let whole = whole && plan.fetch().is_none() && !asks_for_extremes(plan);
        for (idx, input) in plan.children().into_iter().enumerate() {
            // What one side of a join holds may have narrowed the other side.
            let is_whole = whole && (idx == 0 || !is_join);
            was_wrong |= self.note_below(input, is_whole);
        }
        was_wrong
    }
}

/// Whether an operator wants the least or greatest values alone, which may narrow the scans below while it runs.
fn asks_for_extremes(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let aggregate = plan.downcast_ref::<AggregateExec>();
    aggregate.is_some_and(|aggregate| {
        let mut functions = aggregate.aggr_expr().iter();
        let is_extreme = |name: &str| matches!(name, "min" | "max");
        aggregate.group_expr().is_empty() && functions.all(|each| is_extreme(each.fun().name()))
    })
}
