//! The paper's figures measured on this machine, over a database of the Star Schema Benchmark with a capped device.

use std::time::{Duration, Instant};

use hotshelf::{Database, PolicyKind, Session};
use hotshelf_cache::{ColumnShare, Placement};

use super::simulated::{per_query_and_sum, windows};
use super::{Contender, RunOptions, Sequence, ample_budget_bytes, begin_cold, query, run_sequence};
use crate::experiment::plot::{Figure, Panel, Series};
use crate::experiment::policies::touched_bytes;
use crate::experiment::{ExperimentError, Measurement, Query, measure, median};

/// What the figures are measured with.
pub struct Bed<'a> {
    /// The database.
    pub database: &'a Database,
    /// A session of it.
    pub session: &'a Session,
    /// The storage bandwidth, for figures that do not sweep it, in bytes per second.
    pub bandwidth: u64,
    /// How often single queries are repeated; medians are shown.
    pub run_count: usize,
    /// Hears what is done.
    pub progress: &'a dyn Fn(&str),
}

/// What a scale factor of 10 reads in a query of the sequence, as a part of the paper's 96 GB: budgets are set so.
const PAPER_WORKING_SET_GB: f64 = 96.0;

/// What look-ahead takes of a budget, roughly.
const TRANSIT_PART: u64 = 14;
const TRANSIT_BYTES_MAX: u64 = 36 << 20;

/// The bandwidths swept, as multiples of the bed's.
const BANDWIDTHS: [f64; 6] = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0];

const SHOWN: [Contender; 6] = [
    Contender::Policy(PolicyKind::None),
    Contender::Policy(PolicyKind::Lru),
    Contender::Policy(PolicyKind::All),
    Contender::Policy(PolicyKind::HpCachePaper),
    Contender::Policy(PolicyKind::HpCache),
    Contender::Memory,
];

impl Bed<'_> {
    /// A figure of the paper measured here.
    ///
    /// # Errors
    /// [`ExperimentError::UnknownFigure`], and those of queries.
    pub async fn figure(&self, number: u32) -> Result<Figure, ExperimentError> {
        self.cap(self.bandwidth).await?;
        let (title, panels) = match number {
            1 => (
                "Figure 1: execution time by storage bandwidth",
                vec![self.by_bandwidth().await?],
            ),
            3 => (
                "Figure 3: three placements of the input",
                vec![self.placements().await?],
            ),
            4 => (
                "Figure 4: Q2.2 by the part of its input in memory",
                vec![self.by_share(&[1.0]).await?],
            ),
            5 => (
                "Figure 5: Q2.2 by the part of its input in memory",
                vec![self.by_share(&BANDWIDTHS).await?],
            ),
            6 => (
                "Figure 6: predicted and actual time of Q1.3",
                vec![self.predictions("Q1.3").await?],
            ),
            7 => (
                "Figure 7: predicted and actual time of Q3.1",
                vec![self.predictions("Q3.1").await?],
            ),
            8 => (
                "Figure 8: fixed window and exponential smoothing",
                self.smoothing().await?,
            ),
            10 => (
                "Figure 10: tuning and leaving the placement alone",
                vec![self.overhead().await?],
            ),
            11 => (
                "Figure 11: cache below one query's working set",
                self.sequence(80.0).await?,
            ),
            12 => (
                "Figure 12: cache above one query's working set",
                self.sequence(120.0).await?,
            ),
            13 => (
                "Figure 13: sequence by storage bandwidth",
                vec![self.sequence_by_bandwidth().await?],
            ),
            14 => (
                "Figure 14: sequence by cache size",
                vec![self.sequence_by_cache().await?],
            ),
            _ => {
                let known = super::FIGURES.iter().filter(|known| **known != 9);
                return Err(ExperimentError::UnknownFigure {
                    number,
                    how: "measured",
                    known: known.map(u32::to_string).collect(),
                });
            }
        };
        self.session
            .sql("SET hotshelf.storage_bandwidth = 'none'")
            .await?;
        let rows: u64 = self
            .database
            .tables()
            .iter()
            .map(|table| table.row_count)
            .sum();
        Ok(Figure {
            title: title.to_owned(),
            subtitle: format!(
                "measured here: {:.0} million rows, storage capped to {} MB/s where not swept, {} threads",
                rows as f64 * 1e-6,
                self.bandwidth / 1_000_000,
                std::thread::available_parallelism().map_or(1, usize::from),
            ),
            panels,
        })
    }

    async fn cap(&self, bandwidth: u64) -> Result<(), ExperimentError> {
        let sql = format!("SET hotshelf.storage_bandwidth = '{}'", bandwidth.max(1));
        self.session.sql(&sql).await?;
        Ok(())
    }

    async fn placed_s(&self, query: Query, share: f64) -> Result<f64, ExperimentError> {
        Ok(self.placed(query, share).await?.seconds)
    }

    /// Keeps about the given share of every column, fills the cache, and gives the median of warm runs.
    async fn placed(&self, query: Query, share: f64) -> Result<Measurement, ExperimentError> {
        let policy = match share {
            share if share <= 0.0 => PolicyKind::None,
            share if share >= 1.0 => PolicyKind::All,
            _ => PolicyKind::HpCache,
        };
        let budget_bytes = ample_budget_bytes(self.database);
        begin_cold(self.database, self.session, policy, budget_bytes).await?;
        if let Some(tuner) = self.database.tuner() {
            tuner.set_paused(true);
        }
        let cache = self.database.cache();
        if policy == PolicyKind::HpCache {
            measure(self.session, query).await?;
            // Just as much as the pins take: what is left over would be filled too.
            let touched = cache.resident_bytes();
            let bytes: u64 = touched.values().sum();
            let shares = touched.keys().map(|column| ColumnShare {
                column: *column,
                bytes: touched[column],
                proportion: share,
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
        if let Some(tuner) = self.database.tuner() {
            tuner.set_paused(false);
        }
        Ok(median(&runs))
    }

    async fn by_bandwidth(&self) -> Result<Panel, ExperimentError> {
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

    async fn placements(&self) -> Result<Panel, ExperimentError> {
        let queries = named(&["Q1.1", "Q1.3", "Q3.1"]);
        let mut panel = Panel::new("", "query", "time relative to storage");
        panel.groups = queries.iter().map(|query| query.0.to_owned()).collect();
        let placements = [("in memory", 1.0), ("half", 0.5), ("on storage", 0.0)];
        panel.series = placements
            .iter()
            .map(|(label, _)| Series {
                label: (*label).to_owned(),
                points: Vec::new(),
            })
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

    async fn by_share(&self, factors: &[f64]) -> Result<Panel, ExperimentError> {
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

    /// Bytes of the columns that one query of the sequence reads at most.
    pub async fn working_set_bytes(&self) -> Result<u64, ExperimentError> {
        let budget_bytes = ample_budget_bytes(self.database);
        let mut largest = 0;
        for query in named(&["Q2.1", "QC"]) {
            begin_cold(self.database, self.session, PolicyKind::All, budget_bytes).await?;
            measure(self.session, query).await?;
            largest = largest.max(touched_bytes(self.database));
        }
        Ok(largest)
    }

    /// The budget that is here what so many GB are to the paper's working set.
    async fn budget_bytes(&self, paper_gb: f64) -> Result<u64, ExperimentError> {
        self.session
            .sql("SET hotshelf.storage_bandwidth = 'none'")
            .await?;
        let working_set_bytes = self.working_set_bytes().await? as f64;
        self.cap(self.bandwidth).await?;
        Ok((working_set_bytes * paper_gb / PAPER_WORKING_SET_GB) as u64)
    }

    /// The first run of a query with a cold cache, watched; its second run and one in memory.
    async fn predictions(&self, name: &str) -> Result<Panel, ExperimentError> {
        const LOOK_EVERY: Duration = Duration::from_millis(20);
        let budget_bytes = self.budget_bytes(25.0).await?;
        let mut panel = Panel::new(
            "",
            "time since the first run began (s)",
            "time of the pipeline (s)",
        );
        for query in named(&[name]) {
            let in_memory_s = self.placed_s(query, 1.0).await?;
            begin_cold(
                self.database,
                self.session,
                PolicyKind::HpCache,
                budget_bytes,
            )
            .await?;
            self.session
                .sql("SET hotshelf.tuner_period_ms = '25'")
                .await?;
            let (mut predicted, mut predicted_in_memory) = (Vec::new(), Vec::new());
            let start = Instant::now();
            let watched = async {
                loop {
                    tokio::time::sleep(LOOK_EVERY).await;
                    let rows = self
                        .database
                        .tuner()
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
                level("actual, in memory (whole query)", in_memory_s),
            ];
        }
        Ok(panel)
    }

    async fn smoothing(&self) -> Result<Vec<Panel>, ExperimentError> {
        let budget_bytes = self.budget_bytes(80.0).await?;
        let queries = Sequence::Alternating.queries(0);
        let mut runs = Vec::new();
        for (label, window, _) in windows() {
            let options = RunOptions {
                budget_bytes,
                settings: vec![format!("SET hotshelf.tuner_window = '{window}'")],
            };
            let contender = Contender::Policy(PolicyKind::HpCache);
            let run = run_sequence(
                self.database,
                self.session,
                contender,
                &queries,
                &options,
                |_| (),
            )
            .await?;
            (self.progress)(label);
            runs.push((
                label.to_owned(),
                run.queries.iter().map(|query| query.seconds).collect(),
            ));
        }
        self.session
            .sql("SET hotshelf.tuner_window = '4 queries'")
            .await?;
        Ok(per_query_and_sum(runs))
    }

    /// Hot runs with the tuner at work and with its last placement standing, taking turns.
    async fn overhead(&self) -> Result<Panel, ExperimentError> {
        let budget_bytes = self.budget_bytes(40.0).await?;
        let queries = named(&["Q1.3", "Q3.1"]);
        let mut panel = Panel::new("", "query", "time (s)");
        panel.groups = queries.iter().map(|query| query.0.to_owned()).collect();
        let (mut tuned, mut left_alone) = (Vec::new(), Vec::new());
        for (idx, query) in queries.iter().enumerate() {
            begin_cold(
                self.database,
                self.session,
                PolicyKind::HpCache,
                budget_bytes,
            )
            .await?;
            for _ in 0..3 {
                measure(self.session, *query).await?;
            }
            let mut runs = [Vec::new(), Vec::new()];
            for run in 0..4 * self.run_count {
                if let Some(tuner) = self.database.tuner() {
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

    async fn run(
        &self,
        contender: Contender,
        budget_bytes: u64,
    ) -> Result<Vec<f64>, ExperimentError> {
        let options = RunOptions {
            budget_bytes,
            settings: Vec::new(),
        };
        let queries = Sequence::Paper.queries(0);
        let run = run_sequence(
            self.database,
            self.session,
            contender,
            &queries,
            &options,
            |_| (),
        )
        .await?;
        (self.progress)(&format!(
            "{} with {} MB: {:.2} s",
            contender.name(),
            budget_bytes / 1_000_000,
            run.total_s()
        ));
        Ok(run.queries.iter().map(|query| query.seconds).collect())
    }

    async fn sequence(&self, paper_gb: f64) -> Result<Vec<Panel>, ExperimentError> {
        let budget_bytes = self.budget_bytes(paper_gb).await?;
        let mut runs = Vec::new();
        for contender in SHOWN {
            runs.push((
                contender.name().to_owned(),
                self.run(contender, budget_bytes).await?,
            ));
        }
        Ok(per_query_and_sum(runs))
    }

    async fn sequence_by_bandwidth(&self) -> Result<Panel, ExperimentError> {
        let budget_bytes = self.budget_bytes(80.0).await?;
        let mut panel = Panel::new("", "storage bandwidth (MB/s)", "time of the sequence (s)");
        for contender in SHOWN {
            let mut points = Vec::new();
            for factor in BANDWIDTHS {
                let bandwidth = self.bandwidth as f64 * factor;
                self.cap(bandwidth as u64).await?;
                let times_s = self.run(contender, budget_bytes).await?;
                points.push((bandwidth * 1e-6, times_s.iter().sum()));
            }
            panel.series.push(Series {
                label: contender.name().to_owned(),
                points,
            });
        }
        self.cap(self.bandwidth).await?;
        Ok(panel)
    }

    async fn sequence_by_cache(&self) -> Result<Panel, ExperimentError> {
        const PAPER_GB: [f64; 8] = [20.0, 40.0, 60.0, 80.0, 100.0, 120.0, 140.0, 160.0];
        let unit_bytes = self.budget_bytes(1.0).await?;
        let mut panel = Panel::new("", "budget (MB)", "time of the sequence (s)");
        for contender in SHOWN {
            let mut points = Vec::new();
            for paper_gb in PAPER_GB {
                let budget_bytes = (unit_bytes as f64 * paper_gb) as u64;
                let is_level = matches!(
                    contender,
                    Contender::Memory | Contender::Policy(PolicyKind::None)
                );
                let total_s = match points.first() {
                    Some((_, first_s)) if is_level => *first_s,
                    _ => self.run(contender, budget_bytes).await?.iter().sum(),
                };
                points.push((budget_bytes as f64 * 1e-6, total_s));
            }
            panel.series.push(Series {
                label: contender.name().to_owned(),
                points,
            });
        }
        Ok(panel)
    }
}

fn named(names: &[&str]) -> Vec<Query> {
    names.iter().filter_map(|name| query(name)).collect()
}
