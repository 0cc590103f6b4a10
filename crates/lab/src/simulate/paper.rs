//! The HPCache paper's server and query sequence (§7, Figures 11-14).
//!
//! From the paper: 12 drives of 7 GB/s a socket, two sockets, 116 GB/s of memory bandwidth each; four input columns
//! of 24 GB per query; Q2.1, Q2.2 and Q2.3 read the same four, QC shares two of them; 30 queries in runs of random
//! length, of which 1-5 and 11-15 read the same columns and 6 is the first of the other kind; Q2.2 processes
//! 80 GB/s; QC is slower in memory. Not in the paper and therefore assumed: the throughputs of Q2.1, Q2.3 and QC,
//! the rest of the sequence, and the time outside the main pipeline.

use super::{Machine, Trace, TraceQuery};
use hotshelf_cache::ColumnId;

const GB: f64 = 1e9;

/// The paper's server with this many of its 24 drives in use.
pub fn paper_machine(drive_count: u32) -> Machine {
    Machine {
        storage_bandwidth: 7.0 * GB * f64::from(drive_count),
        memory_bandwidth: 2.0 * 116.0 * GB,
        missing_byte_passes: 2.0,
        lookahead_bytes: 1_600_000_000, // 8 row groups of four 2 MiB pages on each of 24 workers
        setup_s: 0.05,
    }
}

/// The sequence as far as the paper tells it, completed by runs of one to five queries.
const SEQUENCE: [&str; 30] = [
    "Q2.1", "Q2.3", "Q2.2", "Q2.2", "Q2.1", "QC", "Q2.3", "Q2.1", "QC", "QC", "Q2.2", "Q2.1",
    "Q2.3", "Q2.3", "Q2.2", "QC", "QC", "QC", "Q2.1", "Q2.2", "QC", "Q2.3", "Q2.2", "Q2.1", "QC",
    "QC", "Q2.3", "Q2.1", "Q2.2", "QC",
];

/// The paper's sequence of 30 queries.
pub fn paper_sequence() -> Trace {
    Trace {
        items: Vec::new(),
        columns: (0..6)
            .map(|column| (ColumnId(column), 24_000_000_000))
            .collect(),
        segment_bytes: 16_000_000,
        queries: SEQUENCE.iter().map(|name| query(name)).collect(),
    }
}

fn query(name: &'static str) -> TraceQuery {
    let (first, processing) = match name {
        "QC" => (2, 45.0),
        "Q2.1" => (0, 70.0),
        "Q2.2" => (0, 80.0),
        _ => (0, 85.0),
    };
    TraceQuery {
        items: Vec::new(),
        name,
        columns: (first..first + 4).map(ColumnId).collect(),
        processing_bandwidth: processing * GB,
        priority: 1.0,
    }
}

/// A single query over 96 GB in four columns, as in Figures 1 and 3 to 7: Q1.1, Q1.3, Q2.2 or Q3.1. Q1.3 (300 GB/s) and
/// Q3.1 (19.6 GB/s) follow from Figure 1's ratios, Q2.2 (80 GB/s) from the text; Q1.1 (250 GB/s) is assumed. `None` for
/// other names.
pub fn paper_query(name: &str, count: usize) -> Option<Trace> {
    let (name, processing) = match name {
        "Q1.1" => ("Q1.1", 250.0),
        "Q1.3" => ("Q1.3", 300.0),
        "Q2.2" => ("Q2.2", 80.0),
        "Q3.1" => ("Q3.1", 19.6),
        _ => return None,
    };
    let query = TraceQuery {
        items: Vec::new(),
        name,
        columns: (0..4).map(ColumnId).collect(),
        processing_bandwidth: processing * GB,
        priority: 1.0,
    };
    Some(Trace {
        items: Vec::new(),
        columns: (0..4)
            .map(|column| (ColumnId(column), 24_000_000_000))
            .collect(),
        segment_bytes: 16_000_000,
        queries: vec![query; count],
    })
}

/// The sequence of Figure 8: three runs of one template, then runs of two templates in turn that grow longer. The
/// templates read distinct columns of equal size and could use more than the 80 GB of cache there are; their
/// throughput (170 GB/s) is assumed such that this holds.
pub fn paper_alternation() -> Trace {
    let query = |is_second: bool| TraceQuery {
        items: Vec::new(),
        name: if is_second { "Q2" } else { "Q1" },
        columns: (0..4)
            .map(|column| ColumnId(column + 4 * u32::from(is_second)))
            .collect(),
        processing_bandwidth: 170.0 * GB,
        priority: 1.0,
    };
    let runs = [3, 1, 2, 2, 3, 3, 4, 4, 5, 5];
    let queries = runs
        .iter()
        .enumerate()
        .flat_map(|(run_idx, length)| vec![query(run_idx % 2 == 1); *length]);
    Trace {
        items: Vec::new(),
        columns: (0..8)
            .map(|column| (ColumnId(column), 24_000_000_000))
            .collect(),
        segment_bytes: 16_000_000,
        queries: queries.collect(),
    }
}

/// A ratio of two total times that the paper states.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaperClaim {
    /// What is compared.
    pub what: &'static str,
    /// Drives in use.
    pub drive_count: u32,
    /// Cache in GB.
    pub cache_gb: u64,
    /// Policy of the numerator: `lru`, `none`, `memory` or `hpcache`.
    pub slow: &'static str,
    /// Policy of the denominator.
    pub fast: &'static str,
    /// The paper's ratio.
    pub ratio: f64,
}

/// The paper's claims about total times (§7.2).
pub fn paper_claims() -> Vec<PaperClaim> {
    let claim = |what, drive_count, cache_gb, slow, fast, ratio| PaperClaim {
        what,
        drive_count,
        cache_gb,
        slow,
        fast,
        ratio,
    };
    vec![
        claim(
            "over LRU, cache below one working set",
            4,
            80,
            "lru",
            "hpcache",
            1.75,
        ),
        claim(
            "over LRU, cache above one working set",
            4,
            120,
            "lru",
            "hpcache",
            1.14,
        ),
        claim("behind memory at 56 GB/s", 8, 80, "hpcache", "memory", 1.14),
        claim(
            "behind memory at 84 GB/s",
            12,
            80,
            "hpcache",
            "memory",
            1.07,
        ),
        claim("LRU behind memory at 56 GB/s", 8, 80, "lru", "memory", 1.36),
        claim(
            "LRU behind memory at 84 GB/s",
            12,
            80,
            "lru",
            "memory",
            1.19,
        ),
        claim("over no cache, small cache", 4, 20, "none", "hpcache", 1.08),
    ]
}
