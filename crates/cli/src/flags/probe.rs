//! The flags of `hotshelf probe`.

use std::cmp::Reverse;
use std::path::PathBuf;

use hotshelf::internals::parse_size;
use hotshelf::probe::{DEVICE_NAMES, ProbeTarget, TierError};

use super::raw::RawProbe;
use super::{bad_value, text_format};
use crate::failure::{Failure, Result};
use crate::output::Format;

#[derive(Debug)]
pub struct Probe {
    pub source: ProbeSource,
    /// Database that is to follow the profile.
    pub db: Option<PathBuf>,
    /// `None`: the measurements are not printed.
    pub format: Option<Format>,
    pub out: Option<PathBuf>,
    pub explain: bool,
}

/// Where measurements come from.
#[derive(Debug)]
pub enum ProbeSource {
    /// The JSON file of an earlier probe.
    File(PathBuf),
    Measure(Measure),
}

#[derive(Debug)]
pub struct Measure {
    pub target: ProbeTarget,
    pub quick: bool,
    pub working_set_bytes: Option<u64>,
    pub overwrite_device: bool,
    /// Where to note what is done, if the user says.
    pub journal: Option<PathBuf>,
    /// Forget what was done before.
    pub fresh: bool,
    /// Print the plan only.
    pub dry_run: bool,
    /// Only points whose description contains one of these; all if empty.
    pub only: Vec<String>,
    /// Leave the file that is read.
    pub keep_file: bool,
}

pub(super) fn validate(raw: RawProbe) -> Result<Probe> {
    let format = raw.format.as_deref().map(text_format).transpose()?;
    let working_set = raw.working_set.as_deref().map(parse_size).transpose();
    let working_set_bytes = working_set.map_err(bad_value)?;
    if working_set_bytes.is_some_and(|bytes| bytes < WORKING_SET_BYTES_MIN) {
        return Err(Failure::usage(
            "the working set is too small to measure anything",
            "give 1MB at least; less than four times the last-level cache measures the cache",
        ));
    }
    let source = match (raw.from, raw.tier) {
        (Some(path), _) => ProbeSource::File(path),
        (None, tier) => ProbeSource::Measure(Measure {
            target: match (tier, &raw.db) {
                (Some(tier), _) => tier.parse().map_err(bad_tier)?,
                (None, Some(folder)) => ProbeTarget::File(folder.clone()),
                (None, None) => ProbeTarget::Dram,
            },
            quick: raw.quick,
            working_set_bytes,
            overwrite_device: raw.overwrite_device,
            journal: raw.resume,
            fresh: raw.fresh,
            dry_run: raw.dry_run,
            only: raw.only,
            keep_file: raw.keep_file,
        }),
    };
    Ok(Probe {
        source,
        db: raw.db,
        format: format.or(raw.out.as_ref().map(|_| Format::Json)),
        out: raw.out,
        explain: raw.explain,
    })
}

/// Less is not even a few pieces for a few threads.
const WORKING_SET_BYTES_MIN: u64 = 1_000_000;

/// A tier that cannot be understood is a misuse of the program.
fn bad_tier(error: TierError) -> Failure {
    Failure::Usage {
        hint: match &error {
            TierError::NoSuchDeviceModel { name } => {
                let likeness = |known: &&&str| (common_prefix(known, name), Reverse(known.len()));
                let nearest = DEVICE_NAMES.iter().max_by_key(likeness);
                nearest.map(|name| format!("`emulated:{name}` is one"))
            }
            _ => Some("for example --tier dram or --tier file:/mnt/data".to_owned()),
        },
        message: error.to_string(),
    }
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
}
