//! The words in which settings are written.

use hotshelf_store::shelf::Shelf;

use super::Use;
use crate::error::{Error, Result};
use crate::statistics::error::EstimateError;

const THREADS_MAX: u64 = 4096;

/// What the engine's own settings may be at most.
const ENGINE_MAXIMA: &[(&str, u64)] = &[
    ("datafusion.execution.target_partitions", THREADS_MAX),
    ("datafusion.execution.planning_concurrency", THREADS_MAX),
    ("datafusion.execution.meta_fetch_concurrency", THREADS_MAX),
    ("datafusion.execution.batch_size", 1 << 20),
];

pub(crate) fn refused(what: &'static str, value: &str, expected: &str) -> Error {
    Error::InvalidValue {
        what,
        value: value.to_owned(),
        expected: expected.into(),
    }
}

pub(crate) fn parse_priority(value: &str) -> Result<f64> {
    let parsed = value.trim().parse().ok();
    parsed
        .filter(|priority: &f64| (0.0..=1e6).contains(priority))
        .ok_or_else(|| refused("priority", value, "a number from 0 to 1000000; 1 is normal"))
}

pub(super) fn parse_estimate_error(value: &str) -> Result<EstimateError> {
    let expected = "a factor from 1 to 1000000, as in '1' (none) or '100 seed 7'";
    EstimateError::parse(value).ok_or_else(|| refused("error of estimates", value, expected))
}

/// Refuses values of the engine's own settings that would take memory before it could be accounted for.
pub(crate) fn check_engine_setting(name: &str, value: &str) -> Result<()> {
    let known = ENGINE_MAXIMA.iter().find(|(known, _)| *known == name);
    let given: Option<u64> = value.trim().parse().ok();
    match (known, given) {
        (Some((_, max)), Some(given)) if given > *max => Err(Error::InvalidSetting {
            setting: name.to_owned(),
            value: value.to_owned(),
            expected: format!("at most {max}"),
        }),
        _ => Ok(()),
    }
}

pub(super) fn parse_look_up_shelf(value: &str) -> Result<Shelf> {
    let expected = "dram, node:N of this machine, or emulated:NAME";
    let shelf: Option<Shelf> = value.trim().parse().ok();
    let shelf =
        shelf.filter(|shelf| matches!(shelf, Shelf::Dram | Shelf::Node(_) | Shelf::Emulated(_)));
    let shelf = shelf.and_then(|shelf| shelf.on_this_machine().ok());
    shelf.ok_or_else(|| refused("shelf of look-ups", value, expected))
}

pub(crate) fn parse_threads(value: &str) -> Result<usize> {
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

pub(crate) fn parse_use(what: &'static str, value: &str) -> Result<Use> {
    if value.trim().eq_ignore_ascii_case("always") {
        return Ok(Use::Always);
    }
    let expected = || Error::InvalidValue {
        what,
        value: value.to_owned(),
        expected: "on, off or always".into(),
    };
    Ok(match parse_switch(value).map_err(|_| expected())? {
        true => Use::On,
        false => Use::Off,
    })
}

pub(crate) fn parse_switch(value: &str) -> Result<bool> {
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
