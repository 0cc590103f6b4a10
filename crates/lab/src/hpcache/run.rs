//! Runs a sequence under policies, each from a cold cache and a tuner that knows nothing.

use hotshelf::{Database, Session, internals};
use hotshelf_cache::tuner::TunerStats;
use hotshelf_cli::benchmark::policies;
use hotshelf_cli::benchmark::{Measurement, Query, measure};

use crate::failure::ExperimentError;
use crate::policy::CachePolicy;

/// What keeps the data: a policy under the budget, or enough memory for everything, filled before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// A policy.
    Policy(CachePolicy),
    /// All in memory: what no policy can beat.
    Memory,
}

impl Contender {
    /// The name of the row.
    pub fn name(self) -> &'static str {
        match self {
            Self::Policy(policy) => policy.name(),
            Self::Memory => "memory",
        }
    }
}

/// A sequence as it ran under one contender.
#[derive(Debug, Clone)]
pub struct SequenceRun {
    /// Who kept the data.
    pub contender: Contender,
    /// The budget in bytes.
    pub budget_bytes: u64,
    /// Names of the queries.
    pub names: Vec<&'static str>,
    /// Their measurements.
    pub queries: Vec<Measurement>,
    /// What the tuner did; all zero under policies that are not tuned.
    pub tuner: TunerStats,
}

impl SequenceRun {
    /// Seconds of all queries.
    pub fn total_s(&self) -> f64 {
        self.queries.iter().map(|query| query.seconds).sum()
    }

    /// Encoded bytes found in memory.
    pub fn bytes_cache(&self) -> u64 {
        self.queries.iter().map(|query| query.bytes_cache).sum()
    }

    /// Encoded bytes read from storage.
    pub fn bytes_storage(&self) -> u64 {
        self.queries.iter().map(|query| query.bytes_storage).sum()
    }

    /// Errors of the tuner's predictions as parts of the actual pipeline times, without those of the first
    /// `skip` queries. Queries of several pipelines have several.
    pub fn prediction_errors(&self, skip: usize) -> Vec<f64> {
        let warm = self.queries.iter().skip(skip);
        let predicted = warm.filter_map(|query| Some((query.predicted_s?, query.pipeline_s?)));
        predicted
            .map(|(predicted_s, pipeline_s)| (predicted_s / pipeline_s - 1.0).abs())
            .collect()
    }
}

/// What a sequence runs with.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The policies' budget in bytes.
    pub budget_bytes: u64,
    /// Statements before each run, such as settings of the tuner.
    pub settings: Vec<String>,
}

/// The budget under which everything stays in memory, in bytes.
pub fn ample_budget_bytes(database: &Database) -> u64 {
    let stored: u64 = database.tables().iter().map(|table| table.file_bytes).sum();
    2 * stored + (1 << 30)
}

/// An empty cache with that policy and budget, and a tuner that knows nothing and works as the policy wants it to.
///
/// # Errors
/// That a setting is refused.
pub async fn begin_cold(
    database: &Database,
    session: &Session,
    policy: CachePolicy,
    budget_bytes: u64,
) -> Result<(), ExperimentError> {
    policies::begin_cold(database, session, policy.resembles(), budget_bytes).await?;
    policy.put_in_force(internals::cache(database));
    if let Some(tuner) = internals::tuner(database) {
        tuner.configure(|options| options.method = policy.method());
        tuner.forget();
    }
    Ok(())
}

/// Empties the cache, makes the tuner forget, sets policy and budget, and runs the queries in order. In memory, the
/// distinct queries run once before. `done` hears of each query.
///
/// # Errors
/// That of the first query that fails, or that a setting is refused.
pub async fn run_sequence(
    database: &Database,
    session: &Session,
    contender: Contender,
    queries: &[Query],
    options: &RunOptions,
    mut done: impl FnMut(usize),
) -> Result<SequenceRun, ExperimentError> {
    let (policy, budget_bytes) = match contender {
        Contender::Policy(policy) => (policy, options.budget_bytes),
        Contender::Memory => (CachePolicy::All, ample_budget_bytes(database)),
    };
    begin_cold(database, session, policy, budget_bytes).await?;
    for setting in &options.settings {
        session.sql(setting).await?;
    }
    if contender == Contender::Memory {
        warm(session, queries).await?;
    }
    let mut measurements = Vec::with_capacity(queries.len());
    for (idx, query) in queries.iter().enumerate() {
        measurements.push(measure(session, *query).await?);
        done(idx);
    }
    let tuned = internals::tuner(database).filter(|_| policy.is_tuned());
    Ok(SequenceRun {
        contender,
        budget_bytes,
        names: queries.iter().map(|(name, _)| *name).collect(),
        queries: measurements,
        tuner: tuned.map_or_else(TunerStats::default, |tuner| {
            tuner.inspect(|tuner| tuner.stats())
        }),
    })
}

/// Runs each distinct query once.
async fn warm(session: &Session, queries: &[Query]) -> Result<(), ExperimentError> {
    let mut seen: Vec<&str> = Vec::new();
    for query in queries {
        if !seen.contains(&query.0) {
            seen.push(query.0);
            measure(session, *query).await?;
        }
    }
    Ok(())
}
