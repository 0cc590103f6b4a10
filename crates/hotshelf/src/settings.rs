//! `SET hotshelf.…` and `SHOW hotshelf.…`: settings of the database and of the session.

use std::any::Any;
use std::sync::{Arc, Weak};

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{DataFusionError, config_err};
use hotshelf_cache::PolicyKind;
use hotshelf_cache::model::Smoothing;
use hotshelf_cache::tune::Goal;
use hotshelf_cache::tuner::TunerOptions;
use parking_lot::Mutex;

use crate::database::Inner;
use crate::error::{Error, Result, nearest};
use crate::options::{BUDGET_BYTES_MIN, parse_bandwidth, parse_size};
use crate::profile::{self, described};
use crate::session::Interrupt;

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
    ("threads", "workers of a query (session)"),
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
        "elf",
        "whether scans ask Elf indexes for their rows: on (where that is faster), off, always (session)",
    ),
];

/// What can be seen and not set: it is measured.
const PROFILE: (&str, &str) = (
    "profile",
    "whose machine profile is in force; SHOW hotshelf.profile lists its values (database)",
);

/// Whether scans ask Elf indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ElfUse {
    /// Never.
    Off,
    /// Where that is expected to be faster.
    #[default]
    On,
    /// Wherever they can help: for tests and measurements.
    Always,
}

impl std::fmt::Display for ElfUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Always => "always",
        })
    }
}

/// The settings of one session, with a way to the database's own.
#[derive(Clone)]
pub(crate) struct SessionSettings {
    inner: Weak<Inner>,
    pub threads: usize,
    pub populate: bool,
    pub star_pipelines: bool,
    pub priority: f64,
    pub elf: ElfUse,
    /// Number of the query being planned.
    pub query_id: u64,
    /// Fingerprint of its plan without literals.
    pub template: u64,
    /// What the rules have to say about the query being planned.
    pub notes: Arc<Mutex<Vec<String>>>,
    /// Ends that query.
    pub interrupt: Interrupt,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            inner: Weak::new(),
            threads: 1,
            populate: true,
            star_pipelines: true,
            priority: 1.0,
            elf: ElfUse::On,
            query_id: 0,
            template: 0,
            notes: Arc::default(),
            interrupt: Interrupt::default(),
        }
    }
}

impl SessionSettings {
    pub fn new(inner: Weak<Inner>, threads: usize) -> Self {
        Self {
            inner,
            threads,
            ..Self::default()
        }
    }

    /// Remembers something for EXPLAIN, once.
    pub fn note(&self, note: String) {
        let mut notes = self.notes.lock();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    fn value(&self, key: &str) -> Option<String> {
        let inner = self.inner.upgrade()?;
        if key == PROFILE.0 {
            return Some(inner.profile.origin.clone());
        }
        if let Some(name) = key.strip_prefix("profile.") {
            let line = inner
                .profile
                .lines()
                .into_iter()
                .find(|line| line.name == name)?;
            return Some(described(&line.value, &line.source));
        }
        let options = inner.options.read();
        Some(match key {
            "budget" => options.budget_bytes.to_string(),
            "policy" => options.policy.to_string(),
            "storage_bandwidth" => options
                .storage_bandwidth_max
                .map_or_else(|| "none".to_owned(), |rate| rate.to_string()),
            "merge_files" => inner.merging.is_on().to_string(),
            "threads" => self.threads.to_string(),
            "populate" => self.populate.to_string(),
            "star_pipelines" => self.star_pipelines.to_string(),
            "priority" => self.priority.to_string(),
            "elf" => self.elf.to_string(),
            _ => return inner.tuner_setting(key),
        })
    }

    fn change(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "threads" => self.threads = parse_threads(value)?,
            "populate" => self.populate = parse_switch(value)?,
            "star_pipelines" => self.star_pipelines = parse_switch(value)?,
            "priority" => self.priority = parse_priority(value)?,
            "elf" => self.elf = parse_elf(value)?,
            _ => {
                if let Some(inner) = self.inner.upgrade() {
                    inner.change_setting(key, value)?;
                }
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Changes a setting of the whole database, at once, for running queries too.
    fn change_setting(&self, key: &str, value: &str) -> Result<()> {
        let mut options = self.options.write();
        match key {
            "budget" => {
                let budget_bytes = parse_size(value)?;
                if budget_bytes < BUDGET_BYTES_MIN {
                    return Err(Error::BudgetTooSmall {
                        budget_bytes,
                        needed_bytes: BUDGET_BYTES_MIN,
                    });
                }
                self.cache.set_budget_bytes(budget_bytes);
                options.budget_bytes = budget_bytes;
            }
            "policy" => {
                let policy: PolicyKind = value.parse().map_err(|error| Error::InvalidValue {
                    what: "policy",
                    value: value.to_owned(),
                    expected: format!("{error}"),
                })?;
                self.cache.set_policy(policy);
                options.policy = policy;
            }
            "storage_bandwidth" => {
                let rate = parse_bandwidth(value)?;
                self.engine.set_bandwidth_max(rate)?;
                options.storage_bandwidth_max = rate;
            }
            "merge_files" => {
                options.merge_files = parse_switch(value)?;
                self.merging.set(options.merge_files);
            }
            _ => self.change_tuner(key, value)?,
        }
        Ok(())
    }

    fn change_tuner(&self, key: &str, value: &str) -> Result<()> {
        let Some(tuner) = &self.tuner else {
            return Ok(());
        };
        match key {
            "tuner" => tuner.set_paused(!parse_switch(value)?),
            "tuner_period_ms" => {
                let period_ms = parse_period(value)?;
                tuner.configure(|options| options.period_ms = period_ms);
            }
            "tuner_window" => {
                let smoothing = parse_window(value)?;
                tuner.configure(|options| *options = with_smoothing(options, smoothing));
            }
            "response_goal" => {
                let goal = parse_goal(value)?;
                tuner.configure(|options| options.goal = goal);
            }
            _ => {}
        }
        Ok(())
    }

    fn tuner_setting(&self, key: &str) -> Option<String> {
        let tuner = self.tuner.as_ref()?;
        let options = tuner.inspect(|tuner| tuner.options().clone());
        Some(match key {
            "tuner" => (!tuner.is_paused()).to_string(),
            "tuner_period_ms" => options.period_ms.to_string(),
            "tuner_window" if !options.rivals.is_empty() => "auto".to_owned(),
            "tuner_window" => options.window.smoothing.to_string(),
            "response_goal" => match options.goal {
                Goal::Total => "none".to_owned(),
                Goal::Threshold { threshold_s, .. } => format!("{}ms", round(threshold_s * 1e3)),
            },
            _ => return None,
        })
    }
}

fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn refused(what: &'static str, value: &str, expected: &str) -> Error {
    Error::InvalidValue {
        what,
        value: value.to_owned(),
        expected: expected.into(),
    }
}

fn parse_priority(value: &str) -> Result<f64> {
    let parsed = value.trim().parse().ok();
    parsed
        .filter(|priority: &f64| (0.0..=1e6).contains(priority))
        .ok_or_else(|| refused("priority", value, "a number from 0 to 1000000; 1 is normal"))
}

fn parse_period(value: &str) -> Result<u64> {
    let parsed = value.trim().parse().ok();
    parsed
        .filter(|period_ms| (1..=3_600_000).contains(period_ms))
        .ok_or_else(|| refused("period", value, "milliseconds from 1 to 3600000"))
}

/// Without a smoothing several compete.
fn with_smoothing(options: &TunerOptions, smoothing: Option<Smoothing>) -> TunerOptions {
    let defaults = TunerOptions::default();
    match smoothing {
        Some(smoothing) => options.clone().with_smoothing(smoothing),
        None => TunerOptions {
            window: defaults.window,
            rivals: defaults.rivals,
            ..options.clone()
        },
    }
}

fn parse_window(value: &str) -> Result<Option<Smoothing>> {
    let lower = value.trim().to_ascii_lowercase();
    if lower == "auto" {
        return Ok(None);
    }
    if let Some(count) = lower.strip_prefix("last") {
        let parsed = count.trim().parse().ok();
        let count = parsed.filter(|count| (1..=100_000).contains(count));
        return count
            .map(|query_count| Some(Smoothing::Fixed { query_count }))
            .ok_or_else(|| refused("window", value, "'last N' with N from 1 to 100000"));
    }
    let number = lower.trim_end_matches(char::is_alphabetic).trim();
    let half_life: Option<f64> = number.parse().ok();
    half_life
        .filter(|half_life| (0.01..=1e6).contains(half_life))
        .map(|half_life| Some(Smoothing::half_life(half_life)))
        .ok_or_else(|| {
            refused(
                "window",
                value,
                "a half-life such as '4 queries', 'last 15', or 'auto'",
            )
        })
}

const THREADS_MAX: u64 = 4096;

/// What the engine's own settings may be at most.
const ENGINE_MAXIMA: &[(&str, u64)] = &[
    ("datafusion.execution.target_partitions", THREADS_MAX),
    ("datafusion.execution.planning_concurrency", THREADS_MAX),
    ("datafusion.execution.meta_fetch_concurrency", THREADS_MAX),
    ("datafusion.execution.batch_size", 1 << 20),
];

/// The weight of the total time beside the slowest query's.
const GOAL_SCALE: f64 = 1e-3;

fn parse_goal(value: &str) -> Result<Goal> {
    let lower = value.trim().to_ascii_lowercase();
    if lower == "none" {
        return Ok(Goal::Total);
    }
    let (number, unit_s) = match lower.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (lower.strip_suffix('s').unwrap_or(&lower), 1.0),
    };
    let number: Option<f64> = number.trim().parse().ok();
    number
        .map(|number| number * unit_s)
        .filter(|threshold_s| (1e-6..=1e6).contains(threshold_s))
        .map(|threshold_s| Goal::Threshold {
            threshold_s,
            scale: GOAL_SCALE,
        })
        .ok_or_else(|| refused("goal", value, "a time such as 500ms or 2s, or 'none'"))
}

/// Refuses values of the engine's own settings that would take memory before anybody could account for it.
pub(crate) fn check_engine_setting(name: &str, value: &str) -> Result<()> {
    let known = ENGINE_MAXIMA.iter().find(|(known, _)| *known == name);
    let given: Option<u64> = value.trim().parse().ok();
    match (known, given) {
        (Some((_, max)), Some(given)) if given > *max => Err(Error::InvalidValue {
            what: "setting",
            value: format!("{name} = {value}"),
            expected: format!("at most {max}"),
        }),
        _ => Ok(()),
    }
}

fn parse_threads(value: &str) -> Result<usize> {
    value
        .trim()
        .parse()
        .ok()
        .filter(|threads| (1..=THREADS_MAX as usize).contains(threads))
        .ok_or_else(|| Error::InvalidValue {
            what: "number of threads",
            value: value.to_owned(),
            expected: format!("a whole number from 1 to {THREADS_MAX}"),
        })
}

fn parse_elf(value: &str) -> Result<ElfUse> {
    if value.trim().eq_ignore_ascii_case("always") {
        return Ok(ElfUse::Always);
    }
    let expected = || Error::InvalidValue {
        what: "use of indexes",
        value: value.to_owned(),
        expected: "on, off or always".into(),
    };
    Ok(match parse_switch(value).map_err(|_| expected())? {
        true => ElfUse::On,
        false => ElfUse::Off,
    })
}

fn parse_switch(value: &str) -> Result<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "1" | "yes" => Ok(true),
        "off" | "false" | "0" | "no" => Ok(false),
        _ => Err(Error::InvalidValue {
            what: "switch",
            value: value.to_owned(),
            expected: "on or off".into(),
        }),
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
        if key == PROFILE.0 || key.starts_with("profile.") {
            return config_err!(
                "hotshelf.{key} is measured and cannot be set: `hotshelf probe --db DIR` measures, `--no-profile` \
                 opens a database without"
            );
        }
        let names = || KEYS.iter().map(|(name, _)| *name);
        if !names().any(|name| name == key) {
            let hint = nearest(key, names())
                .map(|name| format!("; did you mean hotshelf.{name}?"))
                .unwrap_or_default();
            return config_err!("there is no setting hotshelf.{key}{hint}");
        }
        self.change(key, value).map_err(DataFusionError::from)
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |name: &str, description| ConfigEntry {
            key: format!("hotshelf.{name}"),
            value: self.value(name),
            description,
        };
        let settings = KEYS.iter().chain([&PROFILE]);
        let settings = settings.map(|&(name, description)| entry(name, description));
        let measured = profile::NAMES.iter();
        let measured =
            measured.map(|&(name, description)| entry(&format!("profile.{name}"), description));
        settings.chain(measured).collect()
    }
}
