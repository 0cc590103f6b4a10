//! One sequence of queries under several cache policies, each from a cold cache.

use hotshelf::{Database, PolicyKind, Session, internals};

use super::{Measurement, Query, measure};
use crate::failure::Result;
use crate::picture::{Figure, Panel, Series};

/// A policy with the budget it is given.
#[derive(Debug, Clone)]
pub struct Setting {
    /// What charts and tables call it.
    pub label: String,
    /// The policy.
    pub policy: PolicyKind,
    /// The budget in bytes.
    pub budget_bytes: u64,
}

/// What the sequence cost under one setting.
#[derive(Debug, Clone)]
pub struct SettingRun {
    /// The setting.
    pub setting: Setting,
    /// Measurements by pass and query; the first pass starts with a cold cache.
    pub passes: Vec<Vec<Measurement>>,
}

impl SettingRun {
    /// The measurements of the last pass, by query.
    pub fn last_pass(&self) -> &[Measurement] {
        self.passes.last().map_or(&[], Vec::as_slice)
    }

    /// Seconds of all queries of all passes.
    pub fn seconds(&self) -> f64 {
        self.passes.iter().flatten().map(|run| run.seconds).sum()
    }

    /// Bytes that all queries of all passes read from storage.
    pub fn bytes_storage(&self) -> u64 {
        let runs = self.passes.iter().flatten();
        runs.map(|run| run.bytes_storage).sum()
    }

    /// Seconds passed after each query, over all passes.
    pub fn cumulative_seconds(&self) -> Vec<f64> {
        let runs = self.passes.iter().flatten();
        runs.scan(0.0, |sum, run| {
            *sum += run.seconds;
            Some(*sum)
        })
        .collect()
    }
}

/// Begins cold with the setting's policy and budget and runs the queries `pass_count` times in turn. `done` is called
/// after each run with the pass, counted from 0, and the query's name.
///
/// # Errors
/// That of the first query that fails, or that a setting is refused.
pub async fn run_setting(
    database: &Database,
    session: &Session,
    setting: Setting,
    queries: &[Query],
    pass_count: usize,
    mut done: impl FnMut(usize, &str),
) -> Result<SettingRun> {
    begin_cold(database, session, setting.policy, setting.budget_bytes).await?;
    let mut passes = Vec::with_capacity(pass_count);
    for pass_idx in 0..pass_count {
        let mut pass = Vec::with_capacity(queries.len());
        for query in queries {
            pass.push(measure(session, *query).await?);
            done(pass_idx, query.0);
        }
        passes.push(pass);
    }
    Ok(SettingRun { setting, passes })
}

/// An empty cache with that policy and budget, and a tuner that knows nothing.
///
/// # Errors
/// That a setting is refused.
pub async fn begin_cold(
    database: &Database,
    session: &Session,
    policy: PolicyKind,
    budget_bytes: u64,
) -> Result<()> {
    for setting in [
        format!("SET hotshelf.policy = '{policy}'"),
        format!("SET hotshelf.budget = '{budget_bytes}'"),
    ] {
        session.sql(&setting).await?;
    }
    internals::cache(database).clear();
    if let Some(tuner) = internals::tuner(database) {
        tuner.set_paused(false);
        tuner.forget();
    }
    Ok(())
}

/// How much time has passed after each query, a line per setting; where a pass ends there is a thin one.
pub fn cumulative_time(runs: &[SettingRun], title: String, subtitle: String) -> Figure {
    let line = |run: &SettingRun| {
        let sums = std::iter::once(0.0).chain(run.cumulative_seconds());
        Series {
            label: format!("{}: {:.1} s", run.setting.label, run.seconds()),
            points: (0u32..).map(f64::from).zip(sums).collect(),
        }
    };
    let passes = runs.first().map_or(&[][..], |run| &run.passes);
    let ends = passes.iter().scan(0, |query_count, pass| {
        *query_count += pass.len();
        Some(*query_count as f64)
    });
    let panel = Panel {
        marks: ends.take(passes.len().saturating_sub(1)).collect(),
        series: runs.iter().map(line).collect(),
        ..Panel::new(
            "",
            "queries executed (a vertical line ends each pass over them)",
            "time passed (seconds)",
        )
    };
    Figure {
        title,
        subtitle,
        panels: vec![panel],
    }
}

/// Encoded bytes of the columns of which something is in the cache: what the queries before read, if the policy
/// kept everything.
pub fn touched_bytes(database: &Database) -> u64 {
    let columns = internals::cache(database).columns();
    let touched = columns.iter().filter(|column| column.cached_bytes > 0);
    touched.map(|column| column.total_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_add_up_over_the_passes() {
        let pass = |seconds: f64| {
            vec![
                Measurement {
                    seconds,
                    bytes_storage: 7,
                    ..Measurement::default()
                };
                2
            ]
        };
        let run = SettingRun {
            setting: Setting {
                label: "lru".into(),
                policy: PolicyKind::Lru,
                budget_bytes: 1,
            },
            passes: vec![pass(2.0), pass(1.0)],
        };
        assert_eq!(run.cumulative_seconds(), [2.0, 4.0, 5.0, 6.0]);
        assert_eq!(run.seconds(), 6.0);
        assert_eq!(run.bytes_storage(), 28);
        assert_eq!(run.last_pass().len(), 2);
        let figure = cumulative_time(&[run], "A title".into(), "and more".into());
        let panel = &figure.panels[0];
        assert_eq!(panel.marks, [2.0]);
        assert_eq!(panel.series[0].label, "lru: 6.0 s");
        assert_eq!(panel.series[0].points[4], (4.0, 6.0));
    }
}
