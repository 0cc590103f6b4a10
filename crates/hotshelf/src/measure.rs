//! One statement measured: how long it took, how many rows, and where its bytes came from.

use std::time::Instant;

use datafusion::physical_plan::ExecutionPlan;

use crate::session::Session;

/// What one run of a statement cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measurement {
    /// From the text to the last row, in seconds.
    pub seconds: f64,
    /// Rows of the answer.
    pub row_count: u64,
    /// Encoded bytes that scans found in the cache.
    pub bytes_cache: u64,
    /// Encoded bytes that scans had read from storage.
    pub bytes_storage: u64,
    /// Time of the statement's longest pipeline over stored tables, in seconds.
    pub pipeline_s: Option<f64>,
    /// What the tuner predicted for that pipeline when it began, in seconds, if it knew it.
    pub predicted_s: Option<f64>,
}

impl Session {
    /// Runs a statement to its end, drops the rows, and says what that cost.
    ///
    /// # Errors
    /// Those of [`Session::sql`] and of the rows.
    pub async fn measure(&self, sql: &str) -> crate::Result<Measurement> {
        let start = Instant::now();
        let mut answer = self.sql(sql).await?;
        let plan = answer.plan();
        let mut row_count = 0;
        while let Some(batch) = answer.next().await {
            row_count += batch?.num_rows() as u64;
        }
        let seconds = start.elapsed().as_secs_f64();
        // Scans report what they counted when their streams are dropped.
        drop(answer);
        let plan = plan.as_deref();
        let sum = |name| plan.map_or(0, |plan| sum_of_metric(plan, name));
        let longest = plan.and_then(longest_pipeline);
        Ok(Measurement {
            seconds,
            row_count,
            bytes_cache: sum("bytes_cache"),
            bytes_storage: sum("bytes_storage"),
            pipeline_s: longest.map(|(pipeline_s, _)| pipeline_s),
            predicted_s: longest.and_then(|(_, predicted_s)| predicted_s),
        })
    }
}

/// Actual and predicted time of the longest pipeline of a plan, in seconds.
fn longest_pipeline(plan: &dyn ExecutionPlan) -> Option<(f64, Option<f64>)> {
    let metrics = plan.metrics();
    let seconds = |name| {
        let value = metrics.as_ref()?.sum_by_name(name)?;
        Some(value.as_usize() as f64 * 1e-9)
    };
    let own = seconds("pipeline_time").map(|actual_s| (actual_s, seconds("predicted_time")));
    let children = plan.children().into_iter();
    children
        .filter_map(|child| longest_pipeline(child.as_ref()))
        .chain(own)
        .max_by(|a, b| a.0.total_cmp(&b.0))
}

/// A counter of that name, summed over all operators of a plan.
fn sum_of_metric(plan: &dyn ExecutionPlan, name: &str) -> u64 {
    let own = plan
        .metrics()
        .and_then(|metrics| metrics.sum_by_name(name))
        .map_or(0, |value| value.as_usize() as u64);
    let children = plan.children();
    own + children
        .into_iter()
        .map(|child| sum_of_metric(child.as_ref(), name))
        .sum::<u64>()
}
