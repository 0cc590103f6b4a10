//! What is kept to answer who has the memory and what it is worth: the tuner's latest view, how much each holder has
//! and when that changed, and what borrowers asked for.

mod asks;
mod holdings;

use crate::model::ItemClass;
use crate::tuner::Appraisal;
pub(crate) use asks::Asks;
pub(crate) use holdings::{Holdings, Moment};
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// A holder of memory of the budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MarketRow {
    /// What it is.
    pub class: ItemClass,
    /// Which one, by the class's numbers; `None`: all of the class together.
    pub number: Option<u64>,
    /// Bytes it has now.
    pub bytes: u64,
    /// What they save, in seconds per byte and second. `None`: not known.
    pub saved_s_per_byte_s: Option<f64>,
    /// What one more byte would save, in seconds per byte and second; 0 if it has all it could use. `None`: not known.
    pub next_s_per_byte_s: Option<f64>,
    /// When its memory last changed by more than a little, and why.
    pub last_change: Option<Change>,
}

/// A change of a holder's memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// By how many bytes.
    pub bytes: i64,
    /// How long ago, in seconds.
    pub age_s: f64,
    /// Why.
    pub why: ChangeReason,
}

/// Why a holder's memory changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeReason {
    /// What queries needed was kept.
    Used,
    /// Memory was taken for operators or others that could not wait.
    Taken,
    /// The tuner found better uses.
    Tuned,
    /// The budget changed.
    Resized,
    /// Its holder released it: it was no longer needed, or replaced by something of its own class.
    Released,
}

impl ChangeReason {
    /// In a few words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Used => "kept what queries needed",
            Self::Taken => "gave way to others",
            Self::Tuned => "the tuner found better uses",
            Self::Resized => "the budget changed",
            Self::Released => "released",
        }
    }
}

impl fmt::Display for ChangeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A shelf of the tuner's model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShelfRow {
    /// 0 is memory, 1 where everything is stored.
    pub idx: usize,
    /// "memory" or "storage".
    pub name: &'static str,
    /// Bytes that fit. `None`: not bounded.
    pub capacity_bytes: Option<u64>,
    /// Bytes there now.
    pub used_bytes: u64,
    /// Bytes per second. `None`: not known yet.
    pub bandwidth: Option<f64>,
    /// Time of a request before its first byte, in seconds.
    pub latency_s: f64,
    /// What one more byte would save, in seconds per byte and second: the shelf's price.
    pub saved_s_per_byte_s: f64,
    /// What bringing back a displaced byte costs, in seconds.
    pub refill_s_per_byte: f64,
    /// How old the price is, in seconds. `None`: there is none yet.
    pub age_s: Option<f64>,
    /// How much it can be trusted, 0 to 1.
    pub confidence: f64,
}

/// A class, or one of its items by its number.
pub(crate) type Holder = (ItemClass, Option<u64>);

/// The state behind the rows.
#[derive(Debug)]
pub(crate) struct Market {
    origin: Instant,
    appraisal: Mutex<Option<Appraisal>>,
    pub(crate) holdings: Mutex<Holdings>,
    /// By class: bytes taken from it since the beginning.
    pub(crate) taken_bytes: [AtomicU64; ItemClass::COUNT],
    pub(crate) asks: Asks,
}

impl Default for Market {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            appraisal: Mutex::default(),
            holdings: Mutex::default(),
            taken_bytes: Default::default(),
            asks: Asks::default(),
        }
    }
}

impl Market {
    /// Takes over what the tuner knows.
    pub(crate) fn appraise(&self, appraisal: Option<Appraisal>) {
        *self.appraisal.lock() = appraisal;
    }

    /// Memory was taken from a class. No lock.
    pub(crate) fn note_taken(&self, class: ItemClass, bytes: u64) {
        self.taken_bytes[class as usize].fetch_add(bytes, Relaxed);
    }

    pub(crate) fn appraisal(&self) -> Option<Appraisal> {
        self.appraisal.lock().clone()
    }

    pub(crate) fn now_s(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }
}
