//! The figures over sequences of queries.

use hotshelf_cli::picture::{Panel, Series};

use super::Workbench;
use crate::failure::ExperimentError;
use crate::hpcache::simulated::{per_query_and_sum, windows};
use crate::hpcache::{Contender, RunOptions, Sequence, run_sequence};
use crate::policy::CachePolicy;
use crate::simulate::Mix;

/// Who is shown query by query.
const SHOWN: [Contender; 6] = [
    Contender::Policy(CachePolicy::None),
    Contender::Policy(CachePolicy::Lru),
    Contender::Policy(CachePolicy::All),
    Contender::Policy(CachePolicy::HpCachePaper),
    Contender::Policy(CachePolicy::HpCache),
    Contender::Memory,
];

/// Who is shown where each point is a whole sequence.
const SWEPT: [Contender; 4] = [
    Contender::Policy(CachePolicy::None),
    Contender::Policy(CachePolicy::Lru),
    Contender::Policy(CachePolicy::HpCache),
    Contender::Memory,
];

/// The bandwidths swept, as multiples of the workbench's: the paper's 28, 56 and 84 GB/s and one below.
const BANDWIDTHS: [f64; 4] = [0.5, 1.0, 2.0, 3.0];

/// The budgets swept, in the paper's GB.
const PAPER_GB: [f64; 8] = [20.0, 40.0, 60.0, 80.0, 100.0, 120.0, 140.0, 160.0];

impl Workbench<'_> {
    /// Seconds of each query.
    async fn run(
        &self,
        contender: Contender,
        sequence: Sequence,
        options: RunOptions,
    ) -> Result<Vec<f64>, ExperimentError> {
        let queries = sequence.queries(0);
        let (database, session) = (self.database, self.session);
        let run = run_sequence(database, session, contender, &queries, &options, |_| ()).await?;
        (self.progress)(&format!(
            "{} with {} MB {}: {:.2} s",
            contender.name(),
            options.budget_bytes / 1_000_000,
            options.settings.concat(),
            run.total_s()
        ));
        Ok(run.queries.iter().map(|query| query.seconds).collect())
    }

    /// The paper's sequence.
    async fn paper(
        &self,
        contender: Contender,
        budget_bytes: u64,
    ) -> Result<Vec<f64>, ExperimentError> {
        let options = RunOptions {
            budget_bytes,
            settings: Vec::new(),
        };
        self.run(contender, Sequence::Paper, options).await
    }

    pub(super) async fn smoothing(&self) -> Result<Vec<Panel>, ExperimentError> {
        let budget_bytes = self.budget_bytes(80.0).await?;
        let mut runs = Vec::new();
        for (label, window, _) in windows() {
            let options = RunOptions {
                budget_bytes,
                settings: vec![format!("SET hotshelf.tuner_window = '{window}'")],
            };
            let contender = Contender::Policy(CachePolicy::HpCache);
            let sequence = Sequence::Mix(Mix::Alternating);
            runs.push((
                label.to_owned(),
                self.run(contender, sequence, options).await?,
            ));
        }
        self.session
            .sql("SET hotshelf.tuner_window = 'auto'")
            .await?;
        Ok(per_query_and_sum(runs))
    }

    pub(super) async fn sequence(&self, paper_gb: f64) -> Result<Vec<Panel>, ExperimentError> {
        let budget_bytes = self.budget_bytes(paper_gb).await?;
        let mut runs = Vec::new();
        for contender in SHOWN {
            let times_s = self.paper(contender, budget_bytes).await?;
            runs.push((contender.name().to_owned(), times_s));
        }
        Ok(per_query_and_sum(runs))
    }

    pub(super) async fn sequence_by_bandwidth(&self) -> Result<Panel, ExperimentError> {
        let budget_bytes = self.budget_bytes(80.0).await?;
        let mut panel = Panel::new("", "storage bandwidth (MB/s)", "time of the sequence (s)");
        for contender in SWEPT {
            let mut series = Series::empty(contender.name());
            for factor in BANDWIDTHS {
                let bandwidth = self.bandwidth as f64 * factor;
                let total_s = match series.points.first() {
                    Some((_, first_s)) if contender == Contender::Memory => *first_s,
                    _ => {
                        self.cap(bandwidth as u64).await?;
                        self.paper(contender, budget_bytes).await?.iter().sum()
                    }
                };
                series.points.push((bandwidth * 1e-6, total_s));
            }
            panel.series.push(series);
        }
        self.cap(self.bandwidth).await?;
        Ok(panel)
    }

    pub(super) async fn sequence_by_cache(&self) -> Result<Panel, ExperimentError> {
        let unit_bytes = self.budget_bytes(1.0).await? as f64;
        let mut panel = Panel::new("", "budget (MB)", "time of the sequence (s)");
        for contender in SWEPT {
            let is_level = matches!(
                contender,
                Contender::Memory | Contender::Policy(CachePolicy::None)
            );
            let mut series = Series::empty(contender.name());
            for paper_gb in PAPER_GB {
                let budget_bytes = unit_bytes * paper_gb;
                let total_s = match series.points.first() {
                    Some((_, first_s)) if is_level => *first_s,
                    _ => {
                        let times_s = self.paper(contender, budget_bytes as u64).await?;
                        times_s.iter().sum()
                    }
                };
                series.points.push((budget_bytes * 1e-6, total_s));
            }
            panel.series.push(series);
        }
        Ok(panel)
    }
}
