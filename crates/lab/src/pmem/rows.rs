//! Results as rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow::error::ArrowError;
use hotshelf_tier::probe::Operation;

use super::case::Case;

/// How a value came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    /// Measured on memory or a volume of this machine.
    Real,
    /// Measured by threads that really wait as long as a device would make them.
    Emulated,
    /// Computed in virtual time.
    Simulated,
}

impl Label {
    pub fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Emulated => "emulated",
            Self::Simulated => "simulated",
        }
    }
}

/// A value of a figure, beside the paper's.
#[derive(Debug, Clone)]
pub struct Row {
    /// `3` to `14`, `table1`.
    pub figure: String,
    pub panel: &'static str,
    /// As `--tier` names it.
    pub tier: String,
    pub label: Label,
    /// What was measured, in words.
    pub what: String,
    /// Its place among the axes, for bandwidths.
    pub case: Option<(Case, Operation)>,
    pub unit: &'static str,
    /// `None` if it cannot be shown; [`Row::note`] says why.
    pub value: Option<f64>,
    pub paper: Option<f64>,
    /// What the paper says.
    pub paper_words: Option<&'static str>,
    /// Whether the paper's value only follows from its words.
    pub paper_follows: bool,
    /// Where the parameters of a model are from.
    pub parameters: Option<String>,
    /// Why there is no value, or what to know about it.
    pub note: Option<String>,
}

impl Row {
    /// The value over the paper's.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.value? / self.paper?)
    }
}

/// All of them, by column.
pub fn batch(rows: &[Row]) -> Result<RecordBatch, ArrowError> {
    let text = |of: fn(&Row) -> &str| {
        Arc::new(StringArray::from_iter_values(rows.iter().map(of))) as ArrayRef
    };
    let maybe = |of: fn(&Row) -> Option<&str>| {
        Arc::new(rows.iter().map(of).collect::<StringArray>()) as ArrayRef
    };
    let real = |of: fn(&Row) -> Option<f64>| {
        let rounded = |value: f64| (value * 1e3).round() / 1e3;
        let values = rows.iter().map(|row| of(row).map(rounded));
        Arc::new(values.collect::<Float64Array>()) as ArrayRef
    };
    let count = |of: fn(&Case) -> u64| {
        let values = rows.iter().map(|row| row.case.map(|(case, _)| of(&case)));
        Arc::new(values.collect::<UInt64Array>()) as ArrayRef
    };
    let follows = rows
        .iter()
        .map(|row| row.paper.map(|_| row.paper_follows))
        .collect::<BooleanArray>();
    RecordBatch::try_from_iter_with_nullable([
        ("figure", text(|row| &row.figure), false),
        ("panel", text(|row| row.panel), false),
        ("tier", text(|row| &row.tier), false),
        ("label", text(|row| row.label.name()), false),
        ("what", text(|row| &row.what), false),
        ("access_bytes", count(|case| case.access_bytes), true),
        ("readers", count(|case| u64::from(case.readers)), true),
        ("writers", count(|case| u64::from(case.writers)), true),
        ("unit", text(|row| row.unit), false),
        ("value", real(|row| row.value), true),
        ("paper", real(|row| row.paper), true),
        ("ratio", real(Row::ratio), true),
        ("paper_words", maybe(|row| row.paper_words), true),
        ("paper_follows", Arc::new(follows), true),
        ("parameters", maybe(|row| row.parameters.as_deref()), true),
        ("note", maybe(|row| row.note.as_deref()), true),
    ])
}
