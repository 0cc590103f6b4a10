//! From measurements to decisions: how each tier of this machine wants to be used, with the reason for every value.
//!
//! [`derive`](fn@derive) is pure: rows in, [`TierProfile`] out. Its rules compare the ways of using a tier, so that
//! they say what is true of the measured device. [`Derivation`] keeps those values that the engine follows on such a
//! tier and that a repeated probe would give again. [`MachineProfile`] keeps the profiles of all tiers in a file that
//! belongs to one machine; on another machine, or without the file, conservative defaults apply and say so.

mod certain;
mod defaults;
mod derive;
pub mod measured;
mod store;
mod used;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::axes::{Pinning, word};

pub use certain::Derivation;
pub use derive::{DeriveInput, derive};
pub use store::{PROFILE_FILE, ProfileOrigin};

pub use crate::topology::Fingerprint;

/// The version of the profile file.
pub const SCHEMA_VERSION: u32 = 1;

/// One decision and why it was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Value<T> {
    /// What to do.
    pub value: T,
    /// The measurement behind it, or why there is none.
    pub reason: String,
    /// Whether it follows from a measurement; defaults do not.
    pub measured: bool,
}

/// How one tier wants to be used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierProfile {
    /// The tier: `dram`, `file:DIR`, `dax:PATH`, `node:N`, `emulated:NAME`.
    pub tier: String,
    /// Whether the rows behind it came from a model.
    pub emulated: bool,
    /// Threads that scan together; for files, rings.
    pub read_threads: Value<u32>,
    /// Bytes to read at once.
    pub read_grain_bytes: Value<u64>,
    /// Threads that write together.
    pub write_threads: Value<u32>,
    /// Bytes to write at once.
    pub write_grain_bytes: Value<u64>,
    /// Where readers run.
    pub read_pinning: Value<Pinning>,
    /// Whether only the sockets near the data should access it.
    pub near_only: Value<bool>,
    /// Whether data should be spread over the tiers of all sockets.
    pub stripe_sockets: Value<bool>,
    /// Whether reading and writing should take turns.
    pub serialise: Value<bool>,
    /// What one access takes when the next one waits for it, in nanoseconds. Profiles of earlier versions do not have
    /// it.
    #[serde(default = "defaults::unmeasured")]
    pub access_ns: Value<Option<u64>>,
    /// What it is read with at best.
    pub read_bandwidth_bytes_per_s: Value<Option<u64>>,
    /// What it is written with at best, durably. Profiles of earlier versions do not have it.
    #[serde(default = "defaults::unmeasured")]
    pub write_bandwidth_bytes_per_s: Value<Option<u64>>,
    /// Requests to keep in flight, for files.
    pub queue_depth: Value<Option<u32>>,
}

/// The profiles of one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineProfile {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The machine.
    pub fingerprint: Fingerprint,
    /// Conditions that may change without making it another machine.
    pub conditions: BTreeMap<String, String>,
    /// By tier.
    pub tiers: BTreeMap<String, TierProfile>,
}

impl<T> Value<T> {
    fn measured(value: T, reason: String) -> Self {
        Self {
            value,
            reason,
            measured: true,
        }
    }

    fn default(value: T, reason: &str) -> Self {
        Self {
            value,
            reason: reason.to_owned(),
            measured: false,
        }
    }
}

/// A line of a profile, ready to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileLine {
    /// Name of the decision.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Whether it follows from a measurement.
    pub measured: bool,
    /// Why.
    pub reason: String,
}

impl TierProfile {
    /// Every decision that something follows, with its reason.
    pub fn lines(&self) -> Vec<ProfileLine> {
        let mut lines = vec![
            line("read_threads", &self.read_threads, u32::to_string),
            line("read_grain_bytes", &self.read_grain_bytes, u64::to_string),
            line("write_threads", &self.write_threads, u32::to_string),
            line("write_grain_bytes", &self.write_grain_bytes, u64::to_string),
            line("read_pinning", &self.read_pinning, word),
            line("near_only", &self.near_only, bool::to_string),
            line("stripe_sockets", &self.stripe_sockets, bool::to_string),
            line("serialise", &self.serialise, bool::to_string),
            line("access_ns", &self.access_ns, unknown),
            line(
                "read_bandwidth_bytes_per_s",
                &self.read_bandwidth_bytes_per_s,
                unknown,
            ),
            line(
                "write_bandwidth_bytes_per_s",
                &self.write_bandwidth_bytes_per_s,
                unknown,
            ),
            line("queue_depth", &self.queue_depth, optional),
        ];
        lines.retain(|line| line.reason != used::UNUSED);
        lines
    }
}

fn line<T>(name: &'static str, value: &Value<T>, show: impl Fn(&T) -> String) -> ProfileLine {
    ProfileLine {
        name,
        value: show(&value.value),
        measured: value.measured,
        reason: value.reason.clone(),
    }
}

fn unknown(value: &Option<u64>) -> String {
    value.map_or("unknown".to_owned(), |value| value.to_string())
}

fn optional(value: &Option<u32>) -> String {
    value.map_or("none".to_owned(), |value| value.to_string())
}
