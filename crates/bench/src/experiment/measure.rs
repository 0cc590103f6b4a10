//! One query: how long it took, how many rows, and where its bytes came from.

use std::time::Instant;

use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use hotshelf::Session;

use super::ExperimentError;

/// A query's name and text.
pub type Query = (&'static str, &'static str);

/// What one run of a query cost.
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
    /// Time of the query's longest pipeline over stored tables, in seconds.
    pub pipeline_s: Option<f64>,
    /// What the tuner predicted for that pipeline when it began, in seconds, if it knew it.
    pub predicted_s: Option<f64>,
}

/// Runs a query to its end and drops the rows.
///
/// # Errors
/// [`ExperimentError::Query`] with the query's name.
pub async fn measure(session: &Session, query: Query) -> Result<Measurement, ExperimentError> {
    let (name, sql) = query;
    run(session, sql)
        .await
        .map_err(|source| ExperimentError::Query {
            query: name.to_owned(),
            source: Box::new(source),
        })
}

async fn run(session: &Session, sql: &str) -> hotshelf::Result<Measurement> {
    let start = Instant::now();
    let answer = session.sql(sql).await?;
    let mut batches = answer.batches;
    let mut row_count = 0;
    while let Some(batch) = batches.next().await {
        row_count += batch.map_err(hotshelf::Error::from_query)?.num_rows() as u64;
    }
    let seconds = start.elapsed().as_secs_f64();
    // Scans report what they counted when their streams are dropped.
    drop(batches);
    let sum = |name| {
        let plan = answer.plan.as_deref();
        plan.map_or(0, |plan| sum_of_metric(plan, name))
    };
    let longest = answer.plan.as_deref().and_then(longest_pipeline);
    Ok(Measurement {
        seconds,
        row_count,
        bytes_cache: sum("bytes_cache"),
        bytes_storage: sum("bytes_storage"),
        pipeline_s: longest.map(|(pipeline_s, _)| pipeline_s),
        predicted_s: longest.and_then(|(_, predicted_s)| predicted_s),
    })
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

/// The median of each number by itself; all zero if there are no runs.
pub fn median(runs: &[Measurement]) -> Measurement {
    fn middle<T: Copy + PartialOrd>(
        runs: &[Measurement],
        value: fn(&Measurement) -> T,
    ) -> Option<T> {
        let mut values: Vec<T> = runs.iter().map(value).collect();
        values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        values.get(values.len() / 2).copied()
    }
    Measurement {
        seconds: middle(runs, |run| run.seconds).unwrap_or_default(),
        row_count: middle(runs, |run| run.row_count).unwrap_or_default(),
        bytes_cache: middle(runs, |run| run.bytes_cache).unwrap_or_default(),
        bytes_storage: middle(runs, |run| run.bytes_storage).unwrap_or_default(),
        pipeline_s: middle(runs, |run| run.pipeline_s).flatten(),
        predicted_s: middle(runs, |run| run.predicted_s).flatten(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_taken_of_each_number_by_itself() {
        let run = |seconds, bytes_storage| Measurement {
            seconds,
            bytes_storage,
            ..Measurement::default()
        };
        let runs = [run(3.0, 10), run(1.0, 30), run(2.0, 20)];
        assert_eq!(median(&runs), run(2.0, 20));
        assert_eq!(median(&[]), Measurement::default());
    }
}
