//! `SET hotshelf.…` and `SHOW hotshelf.…`: settings of the database and of the session.

mod names;
mod parse;

use std::any::Any;
use std::sync::{Arc, Weak};

use datafusion::common::DataFusionError;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::execution::config::SessionConfig;
use hotshelf_store::shelf::Shelf;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::machine::NAMES;
use crate::past_runs::{ExpectedJoin, PastRuns};
use crate::prices::{JoinNs, PRICE_NAMES};
use crate::statistics::error::EstimateError;

pub(crate) use names::{check_name, unknown};
pub(crate) use parse::{check_engine_setting, parse_switch, refused};
use parse::{parse_estimate_error, parse_look_up_shelf, parse_priority, parse_threads, parse_use};

/// What can be set, with a description each.
const KEYS: &[(&str, &str)] = &[
    (
        "budget",
        "DRAM that cached segments, reads in flight and operators share (database)",
    ),
    ("policy", "which segments stay in DRAM (database)"),
    (
        "storage_bandwidth",
        "cap on reads from storage per second, or 'none' (database)",
    ),
    (
        "threads",
        "workers of a query; fewer where memory is short (session)",
    ),
    (
        "populate",
        "whether queries may change what the cache holds (session)",
    ),
    (
        "priority",
        "how much the session's query times matter to HPCache; 1 is normal (session)",
    ),
    (
        "tuner",
        "whether HPCache's tuner works, or leaves what it decided last (database)",
    ),
    (
        "tuner_period_ms",
        "time between the tuner's steps (database)",
    ),
    (
        "tuner_window",
        "how past queries fade: a half-life such as '4 queries', 'last 15', or 'auto': what serves best (database)",
    ),
    (
        "response_goal",
        "slowest query to aim at, such as 500ms, or 'none': least time in all (database)",
    ),
    (
        "merge_files",
        "whether small files are merged in the background (database)",
    ),
    (
        "star_pipelines",
        "whether scans, look-ups and aggregation run as one operator (session)",
    ),
    (
        "look_up_shelf",
        "where look-ups and tables of joins and groups are: dram, node:N, emulated:NAME (session)",
    ),
    (
        "operators",
        "whether sorts, joins and groups are Hotshelf's, which spill: on (joins by texts and groups by several columns \
         with texts only if they may not fit), off, always (session)",
    ),
    (
        "join_order",
        "whether joins are ordered by the statistics: on, off (the order of the text) (session)",
    ),
    (
        "shared_subplans",
        "whether parts that a query has more than once are computed once (session)",
    ),
    (
        "keep_plans",
        "whether the plans of queries are kept for the next time that the same is asked (session)",
    ),
    (
        "estimate_error",
        "for tests of plans: estimates of rows are multiplied by random factors up to this one, '100 seed 7' (session)",
    ),
    (
        "elf",
        "whether scans ask Elf indexes for their rows: on (where that is faster), off, always (session)",
    ),
];

/// The name of what is measured: it can be seen and not set.
pub(crate) const PROFILE: &str = "profile";
const PROFILE_DESCRIPTION: &str =
    "whose machine profile is in force; SHOW hotshelf.profile lists its values (database)";

/// The settings that all sessions share.
pub(crate) trait DatabaseSettings: Send + Sync {
    /// The value of a setting, if it is the database's.
    fn value(&self, key: &str) -> Option<String>;
    /// What operators may hold together, in bytes.
    fn operator_bytes_max(&self) -> u64;
    /// What the work of joins takes, as far as runs have shown it.
    fn join_ns(&self) -> JoinNs;
    /// Changes a setting at once, for running queries too.
    fn change(&self, key: &str, value: &str) -> Result<()>;
}

/// Whether plans use something of Hotshelf's own: Elf indexes, operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Use {
    /// Never.
    Off,
    /// Where that is expected to be faster, or needed.
    #[default]
    On,
    /// Wherever it can help: for tests and measurements.
    Always,
}

impl std::fmt::Display for Use {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Always => "always",
        })
    }
}

/// The sides of an inner join, known by the names of columns that are its keys.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JoinSides {
    /// Of the side that is kept in memory.
    pub kept: Vec<String>,
    pub streamed: Vec<String>,
    /// Rows that are expected of the side that is kept.
    pub rows: f64,
    /// What is expected of the join.
    pub expected: ExpectedJoin,
}

/// The settings of one session, and a way to those of its database.
#[derive(Clone)]
pub(crate) struct SessionSettings {
    /// `None` where there is no database, and so nothing to set.
    database: Option<Weak<dyn DatabaseSettings>>,
    pub threads: usize,
    pub populate: bool,
    pub star_pipelines: bool,
    pub look_up_shelf: Shelf,
    pub operators: Use,
    pub join_order: Use,
    pub shared_subplans: bool,
    pub keep_plans: bool,
    pub estimate_error: EstimateError,
    pub priority: f64,
    pub elf: Use,
    /// Number of the query being planned.
    pub query_id: u64,
    /// Fingerprint of its plan without literals.
    pub template: u64,
    /// Joins and aggregations of the query being planned that are not part of star pipelines.
    pub not_stars: Notes,
    /// Its operators that are left to DataFusion.
    pub left: Notes,
    /// What rules made of a plan, and what they left, for EXPLAIN VERBOSE.
    pub decisions: Notes,
    /// Orders of joins that were changed: the order, and why.
    pub join_orders: Arc<Mutex<Vec<(String, String)>>>,
    /// Which side of its inner joins is to be kept in memory.
    pub join_sides: Arc<Mutex<Vec<JoinSides>>>,
    /// What earlier queries of the database showed.
    pub past_runs: Arc<PastRuns>,
    /// Ends that query.
    pub interrupt: Interrupt,
}

/// Lines that EXPLAIN shows. Clones are the same lines.
#[derive(Debug, Clone, Default)]
pub struct Notes(Option<Arc<Mutex<Vec<String>>>>);

impl Notes {
    /// None yet. By default none are wanted.
    pub fn wanted() -> Self {
        Self(Some(Arc::default()))
    }

    /// Whether they are shown, so that it is worth finding them.
    pub fn are_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Remembers a line, once.
    pub fn note(&self, line: String) {
        if let Some(lines) = &self.0 {
            let mut lines = lines.lock();
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }

    /// All of them. `None`: there are none.
    pub fn lines(&self) -> Option<String> {
        let lines = self.0.as_ref()?.lock();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            database: None,
            threads: 1,
            populate: true,
            star_pipelines: true,
            look_up_shelf: Shelf::Dram,
            operators: Use::On,
            join_order: Use::On,
            shared_subplans: true,
            keep_plans: true,
            estimate_error: EstimateError::default(),
            priority: 1.0,
            elf: Use::On,
            query_id: 0,
            template: 0,
            not_stars: Notes::default(),
            left: Notes::default(),
            decisions: Notes::default(),
            join_orders: Arc::default(),
            join_sides: Arc::default(),
            past_runs: Arc::default(),
            interrupt: Interrupt::default(),
        }
    }
}

impl SessionSettings {
    /// Those of the session whose configuration this is.
    pub fn of(config: &SessionConfig) -> Self {
        let settings = config.options().extensions.get::<Self>();
        settings.cloned().unwrap_or_default()
    }

    /// Where a query of this configuration has look-ups and tables.
    pub fn look_up_shelf_of(config: &SessionConfig) -> &Shelf {
        let settings = config.options().extensions.get::<Self>();
        settings.map_or(&Shelf::Dram, |settings| &settings.look_up_shelf)
    }

    pub fn new(
        database: Weak<dyn DatabaseSettings>,
        past_runs: Arc<PastRuns>,
        threads: usize,
    ) -> Self {
        Self {
            database: Some(database),
            past_runs,
            threads,
            ..Self::default()
        }
    }

    /// For reading outside sessions: it does not change what the cache holds.
    pub fn outside_sessions() -> Self {
        Self {
            populate: false,
            ..Self::default()
        }
    }

    /// Remembers an order of joins for EXPLAIN, once.
    pub fn note_join_order(&self, order: String, reason: String) {
        let mut orders = self.join_orders.lock();
        if orders.iter().all(|(known, _)| *known != order) {
            orders.push((order, reason));
        }
    }

    /// The database's settings while it is open.
    fn database(&self) -> Option<Arc<dyn DatabaseSettings>> {
        self.database.as_ref()?.upgrade()
    }

    /// What operators may hold together, in bytes.
    pub fn operator_bytes_max(&self) -> u64 {
        let database = self.database();
        database.map_or(u64::MAX, |database| database.operator_bytes_max())
    }

    /// What the work of joins takes, in a database.
    pub fn join_ns(&self) -> Option<JoinNs> {
        Some(self.database()?.join_ns())
    }

    fn value(&self, key: &str) -> Option<String> {
        Some(match key {
            "threads" => self.threads.to_string(),
            "populate" => self.populate.to_string(),
            "star_pipelines" => self.star_pipelines.to_string(),
            "look_up_shelf" => self.look_up_shelf.to_string(),
            "operators" => self.operators.to_string(),
            "join_order" => self.join_order.to_string(),
            "shared_subplans" => self.shared_subplans.to_string(),
            "keep_plans" => self.keep_plans.to_string(),
            "estimate_error" => self.estimate_error.to_string(),
            "priority" => self.priority.to_string(),
            "elf" => self.elf.to_string(),
            _ => return self.database()?.value(key),
        })
    }

    fn change(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "threads" => self.threads = parse_threads(value)?,
            "populate" => self.populate = parse_switch(value)?,
            "star_pipelines" => self.star_pipelines = parse_switch(value)?,
            "look_up_shelf" => self.look_up_shelf = parse_look_up_shelf(value)?,
            "operators" => self.operators = parse_use("use of operators", value)?,
            "join_order" => self.join_order = parse_use("order of joins", value)?,
            "shared_subplans" => self.shared_subplans = parse_switch(value)?,
            "keep_plans" => self.keep_plans = parse_switch(value)?,
            "estimate_error" => self.estimate_error = parse_estimate_error(value)?,
            "priority" => self.priority = parse_priority(value)?,
            "elf" => self.elf = parse_use("use of indexes", value)?,
            _ => {
                if let Some(database) = self.database() {
                    database.change(key, value)?;
                }
            }
        }
        Ok(())
    }
}

/// An error about a value, with the setting that it was for.
fn with_setting(error: Error, key: &str) -> Error {
    match error {
        Error::InvalidValue {
            value, expected, ..
        } => Error::InvalidSetting {
            setting: format!("hotshelf.{key}"),
            value,
            expected,
        },
        other => other,
    }
}

impl std::fmt::Debug for SessionSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionSettings")
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl ConfigExtension for SessionSettings {
    const PREFIX: &'static str = "hotshelf";
}

impl ExtensionOptions for SessionSettings {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> datafusion::error::Result<()> {
        if key == PROFILE || key.starts_with("profile.") {
            let setting = format!("hotshelf.{key}");
            return Err(Error::MeasuredSetting { setting }.into());
        }
        if !KEYS.iter().any(|(name, _)| *name == key) {
            return Err(unknown(&format!("hotshelf.{key}"), &[]).into());
        }
        let changed = self.change(key, value);
        changed.map_err(|error| DataFusionError::from(with_setting(error, key)))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |name: &str, description| ConfigEntry {
            key: format!("hotshelf.{name}"),
            value: self.value(name),
            description,
        };
        let settings = KEYS.iter().chain([&(PROFILE, PROFILE_DESCRIPTION)]);
        let settings = settings.map(|&(name, description)| entry(name, description));
        let measured = NAMES.iter().chain(&PRICE_NAMES);
        let measured =
            measured.map(|&(name, description)| entry(&format!("profile.{name}"), description));
        settings.chain(measured).collect()
    }
}
