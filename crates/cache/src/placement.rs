//! How much of each column should be on a shelf: what the tuner decides and the HPCache policies carry out.

use crate::key::{ColumnId, FileId, Map};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};

/// A column's share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColumnShare {
    /// Which column.
    pub column: ColumnId,
    /// Its size on storage, in charged bytes.
    pub bytes: u64,
    /// The proportion to keep, 0 to 1.
    pub proportion: f64,
    /// Where the kept part begins, 0 to 1. From 1 it grows backwards, so that it stays what it is while a part that
    /// grows from 0 on another shelf changes.
    pub from: f64,
}

/// The proportion of each column that should be in memory, or on another shelf. Columns it does not name have none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Placement {
    shares: Vec<ColumnShare>,
    by_column: Map<ColumnId, usize>,
}

impl Placement {
    /// A placement of the given shares. Proportions are limited to 0 to 1, and what is not a number becomes 0.
    pub fn new(shares: impl IntoIterator<Item = ColumnShare>) -> Self {
        let mut placement = Self::default();
        for share in shares {
            let in_range = |part: f64| {
                if part.is_nan() {
                    0.0
                } else {
                    part.clamp(0.0, 1.0)
                }
            };
            let share = ColumnShare {
                proportion: in_range(share.proportion),
                from: in_range(share.from),
                ..share
            };
            let share_idx = placement.shares.len();
            placement.by_column.insert(share.column, share_idx);
            placement.shares.push(share);
        }
        placement
    }

    /// All shares.
    pub fn shares(&self) -> &[ColumnShare] {
        &self.shares
    }

    /// The share of a column, if it has one.
    pub fn share(&self, column: ColumnId) -> Option<&ColumnShare> {
        self.shares.get(*self.by_column.get(&column)?)
    }

    /// The proportion of a column to keep.
    pub fn proportion(&self, column: ColumnId) -> f64 {
        self.share(column).map_or(0.0, |share| share.proportion)
    }

    /// Whether a row group is kept, as its place in the order in which row groups join the kept part minus what is
    /// kept: below zero, yes. On slower shelves the order begins elsewhere or is the opposite one.
    pub(crate) fn excess(&self, column: ColumnId, place: f64) -> f64 {
        let Some(share) = self.share(column) else {
            return place;
        };
        let order = match share.from >= 1.0 {
            true => 1.0 - 0.5 * f64::EPSILON - place,
            false => (place - share.from).rem_euclid(1.0),
        };
        order - share.proportion
    }

    /// Bytes that the proportions add up to.
    pub fn kept_bytes(&self) -> f64 {
        let kept = |share: &ColumnShare| share.bytes as f64 * share.proportion;
        self.shares.iter().map(kept).sum()
    }

    /// The largest change of a proportion between two placements.
    pub fn distance(&self, other: &Self) -> f64 {
        let columns = self.shares.iter().chain(&other.shares);
        let change = |share: &ColumnShare| {
            (self.proportion(share.column) - other.proportion(share.column)).abs()
        };
        columns.map(change).fold(0.0, f64::max)
    }
}

/// The position of a row group in the order in which row groups join the kept part as a proportion grows: 0
/// first, 1 last. Multiples of the golden ratio spread evenly however many there are; files are offset against
/// each other, so that many small files do not all begin with the same position.
pub fn keep_order(file: FileId, row_group_idx: u32) -> f64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 / the golden ratio
    const PLASTIC: u64 = 0xc13f_a9a9_02a6_328f; // 2^64 / the plastic number
    let rows = u64::from(row_group_idx).wrapping_mul(GOLDEN);
    let files = u64::from(file.0).wrapping_mul(PLASTIC);
    (rows.wrapping_add(files) >> 11) as f64 / (1u64 << 53) as f64
}

/// The placement in force, shared by the tuner and the policies of all shards.
#[derive(Debug, Default)]
pub struct PublishedPlacement {
    current: RwLock<Arc<Placement>>,
    generation: AtomicU64,
}

impl PublishedPlacement {
    pub(crate) fn publish(&self, placement: Placement) {
        *self.current.write() = Arc::new(placement);
        self.generation.fetch_add(1, Release);
    }

    /// The placement.
    pub fn current(&self) -> Arc<Placement> {
        Arc::clone(&self.current.read())
    }

    /// Changes with every publication; costs one load.
    pub fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn share(column: u32, proportion: f64) -> ColumnShare {
        ColumnShare {
            column: ColumnId(column),
            bytes: 100,
            proportion,
            from: 0.0,
        }
    }

    #[test]
    fn impossible_proportions_are_brought_into_range() {
        let placement = Placement::new([share(0, f64::NAN), share(1, 7.0), share(2, -1.0)]);
        let proportions = [0, 1, 2, 3].map(|column| placement.proportion(ColumnId(column)));
        assert_eq!(proportions, [0.0, 1.0, 0.0, 0.0]);
        assert_eq!(placement.kept_bytes(), 100.0);
        assert_eq!(placement.distance(&Placement::default()), 1.0);
    }

    proptest! {
        #[test]
        fn parts_from_either_end_are_as_large_as_told_and_apart(
            in_memory in 0.0f64..=1.0, rest in 0.0f64..=1.0, place in 0.0f64..1.0,
        ) {
            let on_disk = (1.0 - in_memory) * rest;
            let from = |from, proportion| {
                let share = ColumnShare { from, ..share(0, proportion) };
                Placement::new([share]).excess(ColumnId(0), place) < 0.0
            };
            let (fast, slow) = (from(0.0, in_memory), from(1.0, on_disk));
            prop_assert_eq!(fast, place < in_memory);
            let is_near_end = (1.0 - place - on_disk).abs() < 1e-12;
            prop_assert!(is_near_end || slow == (1.0 - place < on_disk));
            prop_assert!(is_near_end || !(fast && slow));
            prop_assert!(from(1.0, 1.0));
        }

        #[test]
        fn the_kept_row_groups_are_the_right_number_and_evenly_spread(
            file in 0u32..100, proportion in 0.0f64..1.0, start in 0u32..10_000,
        ) {
            let kept = |idx: &u32| keep_order(FileId(file), *idx) < proportion;
            // Any window of 50 consecutive row groups holds its part, give or take three.
            let count = (start..start + 50).filter(kept).count() as f64;
            prop_assert!((count - 50.0 * proportion).abs() <= 3.0, "{count} of 50 for {proportion}");
        }

        #[test]
        fn small_files_hold_their_part_together(proportion in 0.0f64..1.0, start in 0u32..10_000) {
            let kept = |file: &u32| keep_order(FileId(*file), 0) < proportion;
            let count = (start..start + 50).filter(kept).count() as f64;
            prop_assert!((count - 50.0 * proportion).abs() <= 4.0, "{count} of 50 for {proportion}");
        }
    }
}
