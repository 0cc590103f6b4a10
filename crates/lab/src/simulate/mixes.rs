//! Other sequences than the paper's, to find where a policy loses.

use super::{Trace, TraceQuery};
use crate::policy::mix;
use hotshelf_cache::ColumnId;

/// A kind of query sequence over a star schema's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mix {
    /// Any template, equally likely.
    Uniform,
    /// One template in two thirds of the queries.
    Skewed,
    /// Two templates with distinct columns in growing runs (the paper's Figure 8).
    Alternating,
    /// One template, interrupted by single scans of everything.
    BigScan,
    /// Two users with templates and columns of their own, interleaved.
    TwoTenants,
    /// Templates that read more and more columns.
    Growing,
}

impl Mix {
    /// All mixes.
    pub const ALL: [Self; 6] = [
        Self::Uniform,
        Self::Skewed,
        Self::Alternating,
        Self::BigScan,
        Self::TwoTenants,
        Self::Growing,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Skewed => "skewed",
            Self::Alternating => "alternating",
            Self::BigScan => "big-scan",
            Self::TwoTenants => "two-tenants",
            Self::Growing => "growing",
        }
    }
}

/// First column, number of columns, and throughput relative to the storage's, of each template.
const TEMPLATES: [(&str, u32, u32, f64); 7] = [
    ("T0", 0, 4, 2.9),
    ("T1", 2, 4, 1.6),
    ("T2", 6, 2, 6.0),
    ("T3", 8, 4, 0.8),
    ("T4", 7, 3, 3.5),
    ("T5", 0, 2, 8.0),
    ("T6", 4, 4, 2.9),
];

/// The query that reads every column; after it come the templates of the growing mix.
const SCAN_OF_ALL: usize = TEMPLATES.len();

const QUERY_COUNT: u64 = 40;

/// A mix over twelve columns of `column_bytes` for a machine with the given storage bandwidth.
pub fn mix_trace(kind: Mix, column_bytes: u64, storage_bandwidth: f64) -> Trace {
    let chance = |query: u64| mix(query.wrapping_mul(7919) ^ kind as u64) % 12;
    let templates = (0..QUERY_COUNT).map(|query| match kind {
        Mix::Uniform => (chance(query) % 6) as usize,
        Mix::Skewed if chance(query) < 8 => 0,
        Mix::Skewed => 1 + (chance(query) - 8) as usize,
        Mix::Alternating => alternating(query),
        Mix::BigScan if query % 5 == 4 => SCAN_OF_ALL,
        Mix::BigScan => 0,
        Mix::TwoTenants => [[0, 3], [5, 2]][(chance(query) < 4) as usize][(query % 2) as usize],
        Mix::Growing => SCAN_OF_ALL + 1 + (query / 8) as usize,
    });
    Trace {
        items: Vec::new(),
        columns: (0..12)
            .map(|column| (ColumnId(column), column_bytes))
            .collect(),
        segment_bytes: (column_bytes / 256).max(1),
        queries: templates.map(|idx| query(idx, storage_bandwidth)).collect(),
    }
}

/// Runs of 3, 1, 1, 2, 2, 3, 3, ... queries.
fn alternating(query: u64) -> usize {
    let mut left = query;
    let mut run: u64 = 0;
    loop {
        let length = if run == 0 { 3 } else { run.div_ceil(2) };
        if left < length {
            return if run.is_multiple_of(2) { 0 } else { 6 };
        }
        left -= length;
        run += 1;
    }
}

fn query(template_idx: usize, storage_bandwidth: f64) -> TraceQuery {
    const GROWING: [&str; 5] = ["G0", "G1", "G2", "G3", "G4"];
    let (name, first, count, speed) = match template_idx.checked_sub(SCAN_OF_ALL) {
        None => TEMPLATES[template_idx],
        Some(0) => ("scan of all", 0, 12, 4.0),
        Some(step) => {
            let step = step.min(GROWING.len()) - 1;
            (GROWING[step], 0, 2 + 2 * step as u32, 3.0)
        }
    };
    TraceQuery {
        items: Vec::new(),
        name,
        columns: (first..first + count).map(ColumnId).collect(),
        processing_bandwidth: speed * storage_bandwidth,
        priority: 1.0,
    }
}
