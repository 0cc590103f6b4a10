//! Questions about a set of measurements.

use std::collections::BTreeSet;

use crate::axes::{Grouping, Operation, Pattern, PersistInstruction, Pinning, Placement, Row};

/// The measurements of one tier.
#[derive(Debug, Clone, Copy)]
pub struct Measured<'a> {
    /// The measurements, one for each point.
    pub rows: &'a [Row],
}

/// Sequential, alone, near, with ranges of their own, durable by non-temporal stores where that was measured.
pub fn is_ground(row: &Row, operation: Operation) -> bool {
    is_alone(row, operation)
        && row.point.pattern == Pattern::Sequential
        && row.point.grouping == Grouping::Individual
        && row.point.placement == Placement::Near
}

/// No other operation runs beside, and written bytes are made durable.
pub fn is_alone(row: &Row, operation: Operation) -> bool {
    row.point.operation == operation
        && row.point.range_bytes.is_none()
        && row.point.beside_threads == 0
        && row.point.persist != Some(PersistInstruction::None)
}

impl<'a> Measured<'a> {
    /// Those that are wanted.
    pub fn matching(&self, wanted: impl Fn(&Row) -> bool) -> Vec<&'a Row> {
        self.rows.iter().filter(|row| wanted(row)).collect()
    }

    /// The best row among those wanted.
    pub fn best(&self, wanted: impl Fn(&Row) -> bool) -> Option<&'a Row> {
        best_of(&self.matching(wanted))
    }

    /// The best bandwidth among those wanted.
    pub fn peak(&self, wanted: impl Fn(&Row) -> bool) -> Option<f64> {
        self.best(wanted).map(|row| row.bandwidth_bytes_per_s)
    }

    /// The best row of each pinning.
    pub fn by_pinning(&self, wanted: impl Fn(&Row) -> bool) -> Vec<(Pinning, f64)> {
        [Pinning::None, Pinning::Node, Pinning::Core]
            .into_iter()
            .filter_map(|pinning| {
                let peak = self.peak(|row| row.point.pinning == pinning && wanted(row))?;
                Some((pinning, peak))
            })
            .collect()
    }
}

/// The row with the highest bandwidth.
pub fn best_of<'a>(rows: &[&'a Row]) -> Option<&'a Row> {
    let by_bandwidth =
        |a: &&&Row, b: &&&Row| a.bandwidth_bytes_per_s.total_cmp(&b.bandwidth_bytes_per_s);
    rows.iter().max_by(by_bandwidth).copied()
}

/// The smallest key whose best row reaches `part` of the best of all, with that row and the best.
pub fn smallest_within<'a, K: Ord + Copy>(
    rows: &[&'a Row],
    part: f64,
    key: impl Fn(&Row) -> K,
) -> Option<(K, &'a Row, &'a Row)> {
    let best = best_of(rows)?;
    let keys: BTreeSet<K> = rows.iter().map(|row| key(row)).collect();
    keys.into_iter().find_map(|candidate| {
        let of_key: Vec<&Row> = rows
            .iter()
            .filter(|row| key(row) == candidate)
            .copied()
            .collect();
        let row = best_of(&of_key)?;
        let enough = row.bandwidth_bytes_per_s >= part * best.bandwidth_bytes_per_s;
        enough.then_some((candidate, row, best))
    })
}

/// `12.3 GB/s`.
pub fn gb(bytes_per_s: f64) -> String {
    match bytes_per_s {
        b if b >= 1e9 => format!("{:.1} GB/s", b / 1e9),
        b => format!("{:.0} MB/s", b / 1e6),
    }
}

/// `64 B`, `4 KiB`, `2 MiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}
