//! What a probe finds: rows, refusals and rounds.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::axes::{Point, Row};
use crate::topology::Fingerprint;

/// A median of rounds is steady if it is certain within this part of itself.
const STEADY_SPREAD: f64 = 0.1;

/// One measurement of a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    pub(super) bandwidth_bytes_per_s: f64,
    pub(super) beside_bandwidth_bytes_per_s: Option<f64>,
    pub(super) latency_ns: Option<f64>,
}

/// Why a point gave no number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// What was read is not what had been written.
    #[error("the bytes read are not those that were written")]
    WrongSum,
    /// Faster than the machine can be: something was not measured.
    #[error(
        "{found_bytes_per_s:.3e} bytes/s is more than {bound_bytes_per_s:.3e}, which this machine cannot do"
    )]
    Impossible {
        /// What was measured.
        found_bytes_per_s: f64,
        /// The bound.
        bound_bytes_per_s: f64,
    },
    /// The file system reads through the page cache.
    #[error("the file cannot be read without the page cache")]
    NotDirect,
    /// The threads cannot be pinned.
    #[error("the system does not let threads be pinned to these CPUs")]
    CannotPin,
    /// The accesses do not fit into the working set.
    #[error("the working set is too small for these accesses")]
    DoesNotFit,
    /// The memory is in use.
    #[error("the memory is still in use")]
    Busy,
    /// The system refused.
    #[error("{reason}")]
    Failed {
        /// What it said.
        reason: String,
    },
}

/// What measuring a point gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A number.
    Row(Row),
    /// None, and why.
    Refused {
        /// The point.
        point: Point,
        /// Why.
        refusal: Refusal,
    },
}

impl Outcome {
    pub(super) fn point(&self) -> &Point {
        match self {
            Self::Row(row) => &row.point,
            Self::Refused { point, .. } => point,
        }
    }
}

/// How far a probe has come.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Measurements done, those of an earlier run included.
    pub done_count: usize,
    /// Measurements of the plan: its points, as often as it has rounds.
    pub total_count: usize,
    /// The outcome of the latest measurement; `None` at the start.
    pub last: Option<&'a Outcome>,
    /// About how long the rest takes.
    pub remaining: Duration,
}

/// What one round measured at a point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// As in [`Row`].
    pub bandwidth_bytes_per_s: f64,
    /// As in [`Row`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_bandwidth_bytes_per_s: Option<f64>,
}

impl Round {
    pub(super) fn of(row: &Row) -> Self {
        Self {
            bandwidth_bytes_per_s: row.bandwidth_bytes_per_s,
            beside_bandwidth_bytes_per_s: row.beside_bandwidth_bytes_per_s,
        }
    }
}

/// Everything a probe found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The tier.
    pub tier: String,
    /// Whether the numbers come from a model.
    pub emulated: bool,
    /// The machine.
    pub fingerprint: Fingerprint,
    /// What else of the machine may have mattered.
    #[serde(default)]
    pub conditions: BTreeMap<String, String>,
    /// Bytes that were read from.
    pub working_set_bytes: u64,
    /// How files were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_engine: Option<String>,
    /// Bandwidth of reading and writing at once with all cores, the ground of the plausibility bound.
    pub copy_bandwidth_bytes_per_s: Option<f64>,
    /// Whether the whole plan was run.
    pub complete: bool,
    /// The measurements.
    pub rows: Vec<Row>,
    /// What each round measured, for each of the rows.
    #[serde(default)]
    pub rounds: Vec<Vec<Round>>,
    /// Points without a number.
    pub refused: Vec<(Point, Refusal)>,
}

impl ProbeReport {
    /// The part of the rows whose median is certain within a tenth.
    pub fn steady_part(&self) -> f64 {
        let steady = self
            .rows
            .iter()
            .filter(|row| row.spread <= STEADY_SPREAD)
            .count();
        steady as f64 / self.rows.len().max(1) as f64
    }
}
