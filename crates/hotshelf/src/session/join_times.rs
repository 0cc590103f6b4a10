//! What the joins of a plan took, for the price book: orders of joins are chosen by it.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;

use crate::operators::SpillingHashJoinExec;
use crate::prices::PriceBook;

/// A join with fewer rows on its sides takes as long as it takes to begin.
const ROWS_MIN: usize = 200_000;

/// Corrects what joins cost by a part of a plan that has run, if it is a hash join. What was spilled waited for
/// storage.
pub(super) fn learn(part: &Arc<dyn ExecutionPlan>, prices: &PriceBook) {
    if part.is::<SpillingHashJoinExec>() {
        learn_of_join(part, prices);
    }
}

fn learn_of_join(join: &Arc<dyn ExecutionPlan>, prices: &PriceBook) -> Option<()> {
    let [build, probe] = join.children()[..] else {
        return None;
    };
    let (build, probe) = (rows(build)?, rows(probe)?);
    let metrics = join.metrics()?;
    if build + probe < ROWS_MIN || metrics.spilled_rows().unwrap_or(0) > 0 {
        return None;
    }
    let took_ns = metrics.elapsed_compute()? as f64;
    prices.learn_join(build, probe, metrics.output_rows()?, took_ns);
    Some(())
}

/// The rows that an operator gave. One that hands on another's may not count them.
fn rows(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let counted = plan.metrics().and_then(|metrics| metrics.output_rows());
    counted.or_else(|| match plan.children()[..] {
        [input] => rows(input),
        _ => None,
    })
}
