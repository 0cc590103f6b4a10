//! The figures over single queries.

use std::time::{Duration, Instant};

use hotshelf::internals;
use hotshelf_cache::{ColumnShare, Placement};
use hotshelf_cli::benchmark::{Measurement, Query, measure, median};
use hotshelf_cli::picture::{Panel, Series};

use super::{Workbench, named};
use crate::failure::ExperimentError;
use crate::hpcache::ample_budget_bytes;
use crate::policy::CachePolicy;

/// What look-ahead takes of a budget, roughly.
const TRANSIT_PART: u64 = 14;
const TRANSIT_BYTES_MAX: u64 = 36 << 20;

/// The bandwidths swept, as multiples of the workbench's.
pub(super) const BANDWIDTHS: [f64; 6] = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0];

impl Workbench<'_> {
    async fn placed_s(&self, query: Query, share: f64) -> Result<f64, ExperimentError> {
        Ok(self.placed(query, share).await?.seconds)
    }

    /// Keeps about the given share of every column, fills the cache, and gives the median of warm runs.
    async fn placed(&self, query: Query, share: f64) -> Result<Measurement, ExperimentError> {
        let policy = match share {
            share if share <= 0.0 => CachePolicy::None,
            share if share >= 1.0 => CachePolicy::All,
            _ => CachePolicy::HpCache,
        };
        let budget_bytes = ample_budget_bytes(self.database);
        self.begin_cold(policy, budget_bytes).await?;
        if let Some(tuner) = internals::tuner(self.database) {
            tuner.set_paused(true);
        }
        let cache = internals::cache(self.database);
        if policy == CachePolicy::HpCache {
            measure(self.session, query).await?;
            // Just as much as the pins take: what remains would be filled too.
            let touched = cache.resident_bytes();
            let bytes: u64 = touched.values().sum();
            let shares = touched.keys().map(|column| ColumnShare {
                column: *column,
                bytes: touched[column],
                proportion: share,
                from: 0.0,
            });
            cache.set_placement(Placement::new(shares));
            let used = cache.budget().snapshot();
            let kept = (bytes as f64 * share) as u64 + used.metadata_bytes;
            let kept = kept + (kept / TRANSIT_PART).min(TRANSIT_BYTES_MAX);
            let sql = format!(
                "SET hotshelf.budget = '{}'",
                kept.max(hotshelf::BUDGET_BYTES_MIN)
            );
            self.session.sql(&sql).await?;
        }
        let mut runs = Vec::new();
        for run in 0..=self.run_count {
            let measurement = measure(self.session, query).await?;
            if run > 0 {
                runs.push(measurement);
            }
        }
        if let Some(tuner) = internals::tuner(self.database) {
            tuner.set_paused(false);
        }
        Ok(median(&runs))
    }

    pub(super) async fn by_bandwidth(&self) -> Result<Panel, ExperimentError> {
        let mut panel = Panel::new("", "storage bandwidth (MB/s)", "time (s)");
        for query in named(&["Q1.3", "Q3.1"]) {
            let mut points = Vec::new();
            for factor in BANDWIDTHS {
                let bandwidth = self.bandwidth as f64 * factor;
                self.cap(bandwidth as u64).await?;
                points.push((bandwidth * 1e-6, self.placed_s(query, 0.0).await?));
            }
            let in_memory_s = self.placed_s(query, 1.0).await?;
            let level = points.iter().map(|point| (point.0, in_memory_s)).collect();
            panel.series.push(Series {
                label: query.0.to_owned(),
                points,
            });
            panel.series.push(Series {
                label: format!("{} in memory", query.0),
                points: level,
            });
            (self.progress)(query.0);
        }
        self.cap(self.bandwidth).await?;
        Ok(panel)
    }

    pub(super) async fn placements(&self) -> Result<Panel, ExperimentError> {
        let queries = named(&["Q1.1", "Q1.3", "Q3.1"]);
        let mut panel = Panel::new("", "query", "time relative to storage");
        panel.groups = queries.iter().map(|query| query.0.to_owned()).collect();
        let placements = [("in memory", 1.0), ("half", 0.5), ("on storage", 0.0)];
        panel.series = placements
            .iter()
            .map(|(label, _)| Series::empty(*label))
            .collect();
        for (idx, query) in queries.iter().enumerate() {
            let storage_s = self.placed_s(*query, 0.0).await?;
            for ((_, share), series) in placements.iter().zip(&mut panel.series) {
                let time_s = match *share > 0.0 {
                    true => self.placed_s(*query, *share).await?,
                    false => storage_s,
                };
                series.points.push((idx as f64, time_s / storage_s));
            }
            (self.progress)(query.0);
        }
        Ok(panel)
    }

    pub(super) async fn by_share(&self, factors: &[f64]) -> Result<Panel, ExperimentError> {
        let mut panel = Panel::new("", "input in memory (%)", "time (s)");
        for factor in factors {
            let bandwidth = self.bandwidth as f64 * factor;
            self.cap(bandwidth as u64).await?;
            let mut points = Vec::new();
            for step in 0..=8 {
                let share = f64::from(step) / 8.0;
                for query in named(&["Q2.2"]) {
                    let run = self.placed(query, share).await?;
                    let read = (run.bytes_cache + run.bytes_storage).max(1) as f64;
                    points.push((100.0 * run.bytes_cache as f64 / read, run.seconds));
                }
            }
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let label = format!("{:.0} MB/s", bandwidth * 1e-6);
            (self.progress)(&label);
            panel.series.push(Series { label, points });
        }
        self.cap(self.bandwidth).await?;
        Ok(panel)
    }

    /// The first run of a query with a cold cache, watched; its second run and one in memory.
    pub(super) async fn predictions(&self, name: &str) -> Result<Panel, ExperimentError> {
        const LOOK_EVERY: Duration = Duration::from_millis(20);
        let budget_bytes = self.budget_bytes(25.0).await?;
        let mut panel = Panel::new(
            "",
            "time since the first run began (s)",
            "time of the pipeline (s)",
        );
        for query in named(&[name]) {
            let in_memory = self.placed(query, 1.0).await?;
            self.begin_cold(CachePolicy::HpCache, budget_bytes).await?;
            self.session
                .sql("SET hotshelf.tuner_period_ms = '25'")
                .await?;
            let (mut predicted, mut predicted_in_memory) = (Vec::new(), Vec::new());
            let start = Instant::now();
            let watched = async {
                loop {
                    tokio::time::sleep(LOOK_EVERY).await;
                    let rows = internals::tuner(self.database)
                        .map(|tuner| tuner.inspect(|tuner| tuner.pipelines()));
                    let longest = rows
                        .unwrap_or_default()
                        .into_iter()
                        .max_by(|a, b| a.bytes.total_cmp(&b.bytes));
                    if let Some(row) = longest {
                        let at_s = start.elapsed().as_secs_f64();
                        predicted.push((at_s, row.predicted_s));
                        predicted_in_memory.push((at_s, row.in_memory_s));
                    }
                }
            };
            tokio::select! {
                biased;
                first = measure(self.session, query) => { first?; }
                () = watched => {}
            }
            let end_s = start.elapsed().as_secs_f64();
            let second = measure(self.session, query).await?;
            self.session
                .sql("SET hotshelf.tuner_period_ms = '200'")
                .await?;
            let level = |label: &str, y: f64| Series {
                label: label.to_owned(),
                points: vec![(0.0, y), (end_s, y)],
            };
            panel.series = vec![
                Series {
                    label: "predicted, with this cache".to_owned(),
                    points: predicted,
                },
                Series {
                    label: "predicted, in memory".to_owned(),
                    points: predicted_in_memory,
                },
                level(
                    "actual, second run",
                    second.pipeline_s.unwrap_or(second.seconds),
                ),
                level(
                    "actual, in memory",
                    in_memory.pipeline_s.unwrap_or(in_memory.seconds),
                ),
            ];
        }
        Ok(panel)
    }

    /// Hot runs with the tuner at work and with its last placement standing, taking turns.
    pub(super) async fn overhead(&self) -> Result<Panel, ExperimentError> {
        let budget_bytes = self.budget_bytes(40.0).await?;
        let queries = named(&["Q1.3", "Q3.1"]);
        let mut panel = Panel::new("", "query", "time (s)");
        panel.groups = queries.iter().map(|query| query.0.to_owned()).collect();
        let (mut tuned, mut left_alone) = (Vec::new(), Vec::new());
        for (idx, query) in queries.iter().enumerate() {
            self.begin_cold(CachePolicy::HpCache, budget_bytes).await?;
            for _ in 0..3 {
                measure(self.session, *query).await?;
            }
            let mut runs = [Vec::new(), Vec::new()];
            for run in 0..4 * self.run_count {
                if let Some(tuner) = internals::tuner(self.database) {
                    tuner.set_paused(run % 2 == 1);
                }
                runs[run % 2].push(measure(self.session, *query).await?);
            }
            tuned.push((idx as f64, median(&runs[0]).seconds));
            left_alone.push((idx as f64, median(&runs[1]).seconds));
            (self.progress)(query.0);
        }
        panel.series = vec![
            Series {
                label: "tuned every 200 ms".to_owned(),
                points: tuned,
            },
            Series {
                label: "placement left alone".to_owned(),
                points: left_alone,
            },
        ];
        Ok(panel)
    }
}
