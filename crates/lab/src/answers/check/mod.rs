//! Checks of one query: against an oracle, against its own parts, against other settings.

mod duckdb;
mod norec;
mod settings;
mod tlp;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::answers::engine::{Engine, Failure, FailureKind};
use crate::answers::oracle::{Oracle, OracleError};
use crate::answers::query::{Expr, Query};
use crate::answers::rows::{Cell, Rows};
use crate::answers::schema::World;
use crate::answers::settings::Settings;

pub use norec::statements as norec_statements;
pub use tlp::statements as tlp_statements;

/// Which relation the answers must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// DuckDB gives the same rows.
    Duckdb,
    /// Ternary logic partitioning: rows where p, where NOT p and where p IS NULL are all rows.
    Tlp,
    /// A filter finds as many rows as evaluating it for every row.
    Norec,
    /// Settings and the layout of files do not matter.
    Settings,
}

impl Check {
    pub const ALL: [Self; 4] = [Self::Duckdb, Self::Tlp, Self::Norec, Self::Settings];
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Duckdb => "duckdb",
            Self::Tlp => "tlp",
            Self::Norec => "norec",
            Self::Settings => "settings",
        })
    }
}

impl FromStr for Check {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL
            .into_iter()
            .find(|check| check.to_string() == text);
        found.ok_or_else(|| format!("there is no check '{text}': duckdb, tlp, norec or settings"))
    }
}

/// A query with what it is checked against; all that is needed to check it again.
#[derive(Debug, Clone)]
pub struct Case {
    pub world: Arc<World>,
    pub query: Query,
    /// What divides the rows, for TLP and NoREC.
    pub predicate: Option<Expr>,
    pub check: Check,
    pub settings: Settings,
    /// The settings of the second run, for the check of settings.
    pub other: Settings,
    /// What happens between the two runs: changes of the layout, not of rows.
    pub then: Vec<String>,
}

/// What a check says.
#[derive(Debug, Clone)]
pub enum Verdict {
    Equal { row_count: usize },
    BothRefuse,
    OnlyWeRefuse(Failure),
    OnlyTheyRefuse(String),
    Wrong { found: Rows, expected: Rows },
}

impl Verdict {
    /// Whether this is a bug of ours for certain.
    pub fn is_finding(&self) -> bool {
        match self {
            Self::Wrong { .. } => true,
            Self::OnlyWeRefuse(failure) => {
                matches!(failure.kind, FailureKind::Panic | FailureKind::Hang)
            }
            _ => false,
        }
    }

    /// Whether two verdicts could have one cause.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Wrong { .. }, Self::Wrong { .. }) => true,
            (Self::OnlyWeRefuse(one), Self::OnlyWeRefuse(other)) => {
                one.summary() == other.summary()
            }
            _ => false,
        }
    }
}

/// What keeps a check from being made.
#[derive(Debug, thiserror::Error)]
pub enum FuzzError {
    #[error(transparent)]
    Oracle(#[from] OracleError),
    #[error("our engine cannot {what}: {}", failure.message)]
    Engine {
        what: &'static str,
        failure: Failure,
    },
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        what: &'static str,
        path: std::path::PathBuf,
        source: std::io::Error,
    },
    #[error("{0}")]
    Usage(String),
}

/// The engines that answer.
pub struct Bench {
    engine: Engine,
    oracle: Option<Box<dyn Oracle>>,
    timeout: Duration,
    /// What each of them holds.
    in_engine: Option<Arc<World>>,
    in_oracle: Option<Arc<World>>,
}

impl Bench {
    pub fn new(oracle: Option<Box<dyn Oracle>>, timeout: Duration) -> Result<Self, FuzzError> {
        let engine = start(timeout)?;
        Ok(Self {
            engine,
            oracle,
            timeout,
            in_engine: None,
            in_oracle: None,
        })
    }

    /// Checks a case; loads its database first if another one is loaded.
    pub fn check(&mut self, case: &Case) -> Result<Verdict, FuzzError> {
        self.load_engine(&case.world)?;
        let verdict = match case.check {
            Check::Duckdb => {
                self.load_oracle(&case.world)?;
                self.against_oracle(case)?
            }
            Check::Tlp => self.in_parts(case),
            Check::Norec => self.counted_twice(case),
            Check::Settings => self.with_other_settings(case),
        };
        if let Verdict::OnlyWeRefuse(failure) = &verdict
            && matches!(failure.kind, FailureKind::Hang | FailureKind::Panic)
        {
            self.restart()?;
        }
        Ok(verdict)
    }

    /// Runs a statement of ours under settings.
    pub fn run(&mut self, sql: &str, settings: &Settings) -> Result<Rows, Failure> {
        self.engine.set(settings)?;
        self.engine.run(sql)
    }

    /// What operators have spilled since the engine began, in bytes; `None`: it does not answer.
    pub fn spilled_bytes(&mut self) -> Option<i128> {
        let rows = self.engine.run("SELECT spilled_raw_bytes FROM io_stats()");
        match rows.ok()?.first()?.first()? {
            Cell::Int(bytes) => Some(*bytes),
            _ => None,
        }
    }

    /// Runs a statement in the oracle, if there is one.
    pub fn run_oracle(&mut self, sql: &str) -> Result<Option<Result<Rows, String>>, FuzzError> {
        let Some(oracle) = &mut self.oracle else {
            return Ok(None);
        };
        oracle.send(sql)?;
        Ok(Some(oracle.answer()?))
    }

    /// Loads a database everywhere.
    pub fn load(&mut self, world: &Arc<World>) -> Result<(), FuzzError> {
        self.load_engine(world)?;
        self.load_oracle(world)
    }

    /// Notes that statements have made this database of the one that was loaded.
    pub fn adopt(&mut self, world: &Arc<World>) {
        self.in_engine = Some(world.clone());
        self.in_oracle = self.oracle.is_some().then(|| world.clone());
    }

    fn load_engine(&mut self, world: &Arc<World>) -> Result<(), FuzzError> {
        if is_loaded(&self.in_engine, world) {
            return Ok(());
        }
        self.in_engine = None;
        if let Err(failure) = self.engine.load(world) {
            self.restart()?;
            return Err(FuzzError::Engine {
                what: "load the tables",
                failure,
            });
        }
        self.in_engine = Some(world.clone());
        Ok(())
    }

    fn load_oracle(&mut self, world: &Arc<World>) -> Result<(), FuzzError> {
        if let Some(oracle) = &mut self.oracle
            && !is_loaded(&self.in_oracle, world)
        {
            self.in_oracle = None;
            oracle.load(world)?;
            self.in_oracle = Some(world.clone());
        }
        Ok(())
    }

    /// A new engine; one that hangs is left alone.
    fn restart(&mut self) -> Result<(), FuzzError> {
        self.in_engine = None;
        self.engine = start(self.timeout)?;
        Ok(())
    }
}

fn start(timeout: Duration) -> Result<Engine, FuzzError> {
    Engine::start(timeout).map_err(|failure| FuzzError::Engine {
        what: "start",
        failure,
    })
}

fn is_loaded(loaded: &Option<Arc<World>>, world: &Arc<World>) -> bool {
    loaded
        .as_ref()
        .is_some_and(|loaded| Arc::ptr_eq(loaded, world))
}

/// Whether the order of the rows follows from the query.
pub fn is_ordered(query: &Query) -> bool {
    let approximate = crate::answers::query::approximate_items(&query.body);
    query.order.len() == approximate.len() && !approximate.contains(&true)
}

/// Two answers of ours that must be equal. If the first has failed, the second may.
fn compare(
    found: Result<Rows, Failure>,
    expected: Result<Rows, Failure>,
    is_ordered: bool,
) -> Verdict {
    match (found, expected) {
        (Ok(found), Ok(expected))
            if crate::answers::rows::same_rows(&found, &expected, is_ordered) =>
        {
            Verdict::Equal {
                row_count: found.len(),
            }
        }
        (Ok(found), Ok(expected)) => Verdict::Wrong { found, expected },
        (Err(failure), _) if is_crash(&failure) => Verdict::OnlyWeRefuse(failure),
        (_, Err(failure)) if is_crash(&failure) => Verdict::OnlyWeRefuse(failure),
        (Err(_), Err(_)) => Verdict::BothRefuse,
        (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => Verdict::OnlyWeRefuse(failure),
    }
}

fn is_crash(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::Hang | FailureKind::Panic)
}
