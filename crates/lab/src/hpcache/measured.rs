//! The paper's figures measured on this machine, over a database of the Star Schema Benchmark with a capped device.

mod sequences;
mod single;

use hotshelf::{Database, Session};
use hotshelf_cli::benchmark::policies::touched_bytes;
use hotshelf_cli::benchmark::{Query, measure};
use hotshelf_cli::picture::{Figure, Panel};

use super::{ample_budget_bytes, begin_cold, query, title, unknown_figure};
use crate::failure::ExperimentError;
use crate::policy::CachePolicy;

/// What the figures are measured with.
pub struct Workbench<'a> {
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

impl Workbench<'_> {
    /// A figure of the paper measured here.
    ///
    /// # Errors
    /// [`ExperimentError::UnknownFigure`], and those of queries.
    pub async fn figure(&self, number: u32) -> Result<Figure, ExperimentError> {
        let title = title(number, "measured")?;
        self.cap(self.bandwidth).await?;
        let panels = self.panels(number).await?;
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

    async fn panels(&self, number: u32) -> Result<Vec<Panel>, ExperimentError> {
        Ok(match number {
            1 => vec![self.by_bandwidth().await?],
            3 => vec![self.placements().await?],
            4 => vec![self.by_share(&[1.0]).await?],
            5 => vec![self.by_share(&single::BANDWIDTHS[1..]).await?],
            6 => vec![self.predictions("Q1.3").await?],
            7 => vec![self.predictions("Q3.1").await?],
            8 => self.smoothing().await?,
            10 => vec![self.overhead().await?],
            11 => self.sequence(80.0).await?,
            12 => self.sequence(120.0).await?,
            13 => vec![self.sequence_by_bandwidth().await?],
            14 => vec![self.sequence_by_cache().await?],
            _ => return Err(unknown_figure(number, "measured")),
        })
    }

    async fn cap(&self, bandwidth: u64) -> Result<(), ExperimentError> {
        let sql = format!("SET hotshelf.storage_bandwidth = '{}'", bandwidth.max(1));
        self.session.sql(&sql).await?;
        Ok(())
    }

    async fn begin_cold(
        &self,
        policy: CachePolicy,
        budget_bytes: u64,
    ) -> Result<(), ExperimentError> {
        begin_cold(self.database, self.session, policy, budget_bytes).await?;
        Ok(())
    }

    /// Bytes of the columns that one query of the sequence reads at most.
    pub async fn working_set_bytes(&self) -> Result<u64, ExperimentError> {
        let budget_bytes = ample_budget_bytes(self.database);
        let mut largest = 0;
        for query in named(&["Q2.1", "QC"]) {
            self.begin_cold(CachePolicy::All, budget_bytes).await?;
            measure(self.session, query).await?;
            largest = largest.max(touched_bytes(self.database));
        }
        Ok(largest)
    }

    /// The budget that is here what this number of GB is to the paper's working set.
    async fn budget_bytes(&self, paper_gb: f64) -> Result<u64, ExperimentError> {
        self.session
            .sql("SET hotshelf.storage_bandwidth = 'none'")
            .await?;
        let working_set_bytes = self.working_set_bytes().await? as f64;
        self.cap(self.bandwidth).await?;
        Ok((working_set_bytes * paper_gb / PAPER_WORKING_SET_GB) as u64)
    }
}

fn named(names: &[&str]) -> Vec<Query> {
    names.iter().filter_map(|name| query(name)).collect()
}
