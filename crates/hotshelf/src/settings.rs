//! `SET hotshelf.…` and `SHOW hotshelf.…`: settings of the database and of the session.

use std::any::Any;
use std::sync::Weak;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{DataFusionError, config_err};
use hotshelf_cache::PolicyKind;

use crate::database::Inner;
use crate::error::{Error, Result, nearest};
use crate::options::{BUDGET_BYTES_MIN, parse_bandwidth, parse_size};

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
        "star_pipelines",
        "whether scans, look-ups and aggregation run as one operator (session)",
    ),
];

/// The settings of one session, with a way to the database's own.
#[derive(Clone)]
pub(crate) struct SessionSettings {
    inner: Weak<Inner>,
    pub threads: usize,
    pub populate: bool,
    pub star_pipelines: bool,
    /// Number of the query being planned.
    pub query_id: u64,
    /// Fingerprint of its plan without literals.
    pub template: u64,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            inner: Weak::new(),
            threads: 1,
            populate: true,
            star_pipelines: true,
            query_id: 0,
            template: 0,
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

    fn value(&self, key: &str) -> Option<String> {
        let inner = self.inner.upgrade()?;
        let options = inner.options.read();
        Some(match key {
            "budget" => options.budget_bytes.to_string(),
            "policy" => options.policy.to_string(),
            "storage_bandwidth" => options
                .storage_bandwidth_max
                .map_or_else(|| "none".to_owned(), |rate| rate.to_string()),
            "threads" => self.threads.to_string(),
            "populate" => self.populate.to_string(),
            "star_pipelines" => self.star_pipelines.to_string(),
            _ => return None,
        })
    }

    fn change(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "threads" => self.threads = parse_threads(value)?,
            "populate" => self.populate = parse_switch(value)?,
            "star_pipelines" => self.star_pipelines = parse_switch(value)?,
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
            _ => {}
        }
        Ok(())
    }
}

fn parse_threads(value: &str) -> Result<usize> {
    value
        .trim()
        .parse()
        .ok()
        .filter(|threads| (1..=4096).contains(threads))
        .ok_or_else(|| Error::InvalidValue {
            what: "number of threads",
            value: value.to_owned(),
            expected: "a whole number from 1 to 4096".into(),
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
        KEYS.iter()
            .map(|(name, description)| ConfigEntry {
                key: format!("hotshelf.{name}"),
                value: self.value(name),
                description,
            })
            .collect()
    }
}
