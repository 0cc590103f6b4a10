//! The profile file: written whole, read with suspicion.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::{MachineProfile, SCHEMA_VERSION, TierProfile};
use crate::error::TierError;
use crate::replace_file::{Folder, replace_file};
use crate::topology::{Fingerprint, Topology, conditions};

/// The file's name in a database's folder.
pub const PROFILE_FILE: &str = "profile.json";

/// Where the values in force come from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileOrigin {
    /// Measured on this machine.
    Measured,
    /// Defaults: there is no profile.
    Missing,
    /// Defaults: the profile was measured on another machine.
    OtherMachine {
        /// What differs.
        differences: Vec<String>,
    },
    /// Defaults: another version of the program wrote the profile.
    OtherVersion {
        /// Its schema version.
        found: u64,
    },
    /// Defaults: the file is not a profile.
    Damaged {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for ProfileOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured => write!(f, "it was measured on this machine"),
            Self::Missing => write!(f, "there is no profile"),
            Self::OtherMachine { differences } => {
                write!(
                    f,
                    "it was measured on another machine ({})",
                    differences.join("; ")
                )
            }
            Self::OtherVersion { found } => {
                write!(
                    f,
                    "another version of the program wrote it (schema {found})"
                )
            }
            Self::Damaged { reason } => write!(f, "it is damaged ({reason})"),
        }
    }
}

impl MachineProfile {
    /// A profile of this machine without any tier.
    pub fn empty(topology: &Topology) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            fingerprint: Fingerprint::of(topology),
            conditions: conditions(topology),
            tiers: BTreeMap::new(),
        }
    }

    /// The profile of a tier, or defaults for one that was not measured.
    pub fn tier(&self, tier: &str) -> TierProfile {
        let defaults = || TierProfile::defaults(tier, self.fingerprint.physical_cores);
        self.tiers.get(tier).cloned().unwrap_or_else(defaults)
    }

    /// Writes the profile into a folder; a power cut leaves the old one or the new one.
    ///
    /// # Errors
    /// [`TierError::Io`].
    pub fn save(&self, folder: &Path) -> Result<(), TierError> {
        let path = folder.join(PROFILE_FILE);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|source| TierError::io(&path, "encode", source.into()))?;
        replace_file(&mut Folder::new(folder), PROFILE_FILE, &text)
    }

    /// The profile in a folder if it belongs to this machine, else an empty one, and which of the two it is. Nothing
    /// wrong with the file is an error: the defaults work.
    ///
    /// # Errors
    /// [`TierError::Io`] if the file is there and cannot be read.
    pub fn load(folder: &Path, topology: &Topology) -> Result<(Self, ProfileOrigin), TierError> {
        let path = folder.join(PROFILE_FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok((Self::empty(topology), ProfileOrigin::Missing));
            }
            Err(error) => return Err(TierError::io(&path, "read", error)),
        };
        match Self::read(&text, &Fingerprint::of(topology)) {
            Ok(profile) => Ok((profile, ProfileOrigin::Measured)),
            Err(origin) => Ok((Self::empty(topology), origin)),
        }
    }

    fn read(text: &[u8], here: &Fingerprint) -> Result<Self, ProfileOrigin> {
        let damaged = |reason: String| ProfileOrigin::Damaged { reason };
        let value: serde_json::Value =
            serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        let version = value
            .get("schema_version")
            .and_then(serde_json::Value::as_u64);
        let found = version.ok_or_else(|| damaged("it has no schema version".to_owned()))?;
        if found != u64::from(SCHEMA_VERSION) {
            return Err(ProfileOrigin::OtherVersion { found });
        }
        let profile: Self =
            serde_json::from_value(value).map_err(|error| damaged(error.to_string()))?;
        let differences = profile.fingerprint.differences(here);
        match differences.is_empty() {
            true => Ok(profile),
            false => Err(ProfileOrigin::OtherMachine { differences }),
        }
    }
}
