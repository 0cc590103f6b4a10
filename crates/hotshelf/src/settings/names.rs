//! Names of settings: Hotshelf's own and the engine's.

use datafusion::common::config::{ConfigEntry, ConfigOptions};

use super::KEYS;
use crate::error::{Error, Result, nearest};

/// Settings that are not among the engine's options.
const RUNTIME: &str = "datafusion.runtime.";
const OWN: &str = "hotshelf.";

/// Fails if there is no setting of this name.
pub(crate) fn check_name(name: &str, options: &ConfigOptions) -> Result<()> {
    let entries = options.entries();
    let is_known = name.starts_with(RUNTIME) || entries.iter().any(|entry| entry.key == name);
    match is_known {
        true => Ok(()),
        false => Err(unknown(name, &entries)),
    }
}

/// There is no setting of this name. The nearest is looked for among Hotshelf's, whose prefix may be missing, then
/// among the others.
pub(crate) fn unknown(name: &str, others: &[ConfigEntry]) -> Error {
    let own = KEYS.iter().map(|(key, _)| *key);
    let nearest_own = match name.strip_prefix(OWN) {
        Some(key) => nearest(key, own),
        None if name.contains('.') => None,
        None => nearest(name, own),
    };
    let others = others.iter().map(|entry| entry.key.as_str());
    let others = others.filter(|other| !other.starts_with(OWN));
    let nearest = nearest_own
        .map(|key| format!("{OWN}{key}"))
        .or_else(|| nearest(name, others));
    Error::UnknownSetting {
        setting: name.to_owned(),
        nearest,
    }
}
