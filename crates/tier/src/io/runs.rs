//! Pure: free address ranges, joined with their neighbours, found by size.
//!
//! Ranges are kept by classes of size, and within a class the one at the lowest address is taken: use gathers at
//! the bottom and the top becomes free in long ranges.

use std::collections::{BTreeMap, BTreeSet};

/// Sizes between two powers of two fall into this many classes.
const CLASSES_PER_DOUBLING: u32 = 4;

/// So many ranges of the wanted size's own class are looked at, some of which are too small.
const TRIES_COUNT: usize = 4;

/// A set of disjoint address ranges that do not touch.
#[derive(Debug, Default)]
pub(super) struct FreeRuns {
    by_start: BTreeMap<usize, usize>,
    by_class: BTreeSet<(u32, usize)>,
    bytes: usize,
}

impl FreeRuns {
    /// Sum of all ranges.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a range that overlaps none, joined with the ranges it touches; the start and size of the result.
    pub(super) fn insert(&mut self, start: usize, bytes: usize) -> (usize, usize) {
        let (mut joined_start, mut joined_bytes) = (start, bytes);
        if let Some((&left, &left_bytes)) = self.by_start.range(..start).next_back() {
            debug_assert!(left + left_bytes <= start, "a range is freed twice");
            if left + left_bytes == start {
                self.remove(left, left_bytes);
                (joined_start, joined_bytes) = (left, left_bytes + joined_bytes);
            }
        }
        if let Some(&right_bytes) = self.by_start.get(&(start + bytes)) {
            self.remove(start + bytes, right_bytes);
            joined_bytes += right_bytes;
        }
        self.add(joined_start, joined_bytes);
        (joined_start, joined_bytes)
    }

    /// Takes a range of exactly this size, if any is large enough.
    pub(super) fn take(&mut self, bytes: usize) -> Option<usize> {
        let (start, found_bytes) = self.find(bytes)?;
        self.remove(start, found_bytes);
        if found_bytes > bytes {
            self.add(start + bytes, found_bytes - bytes);
        }
        Some(start)
    }

    /// Takes up to this many bytes from the end of the range at the highest address.
    pub(super) fn take_highest(&mut self, bytes_max: usize) -> Option<(usize, usize)> {
        let (&start, &found_bytes) = self.by_start.last_key_value()?;
        self.remove(start, found_bytes);
        let taken_bytes = found_bytes.min(bytes_max);
        if found_bytes > taken_bytes {
            self.add(start, found_bytes - taken_bytes);
        }
        Some((start + found_bytes - taken_bytes, taken_bytes))
    }

    /// Takes exactly this range, which must be one of the set.
    pub(super) fn remove(&mut self, start: usize, bytes: usize) {
        let found = self.by_start.remove(&start);
        debug_assert_eq!(found, Some(bytes));
        self.by_class.remove(&(class_of(bytes), start));
        self.bytes -= bytes;
    }

    fn add(&mut self, start: usize, bytes: usize) {
        self.by_start.insert(start, bytes);
        self.by_class.insert((class_of(bytes), start));
        self.bytes += bytes;
    }

    /// A range of at least this size: one of its own class if soon found, else of the next classes.
    fn find(&self, bytes: usize) -> Option<(usize, usize)> {
        let own_class = || {
            self.by_class
                .range((class_of(bytes), 0)..(class_of(bytes) + 1, 0))
        };
        let sure = self.by_class.range((class_above(bytes), 0)..).take(1);
        let tries = own_class().take(TRIES_COUNT).chain(sure).chain(own_class());
        let with_bytes = |&(_, start): &(u32, usize)| (start, self.by_start[&start]);
        tries
            .map(with_bytes)
            .find(|&(_, found_bytes)| found_bytes >= bytes)
    }
}

/// The class a range of this size is in.
fn class_of(bytes: usize) -> u32 {
    let doubling = bytes.ilog2();
    let quarter = match doubling {
        0 | 1 => 0,
        _ => (bytes >> (doubling - 2)) as u32 & (CLASSES_PER_DOUBLING - 1),
    };
    doubling * CLASSES_PER_DOUBLING + quarter
}

/// The lowest class in which every range has at least this size.
fn class_above(bytes: usize) -> u32 {
    if bytes == 1 {
        0
    } else {
        class_of(bytes - 1) + 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_range_of_the_class_above_is_large_enough() {
        for bytes in 1..5000usize {
            let smallest = (1..)
                .find(|&other| class_of(other) >= class_above(bytes))
                .unwrap();
            assert!(smallest >= bytes, "{bytes} is not served by {smallest}");
            assert!(
                smallest <= bytes + bytes / 4 + 1,
                "{bytes} asks for {smallest}"
            );
        }
    }

    #[test]
    fn touching_ranges_join_and_the_lowest_that_fits_is_taken() {
        let mut runs = FreeRuns::default();
        runs.insert(100, 10);
        runs.insert(120, 10);
        assert_eq!(runs.insert(110, 10), (100, 30));
        runs.insert(0, 50);
        assert_eq!(runs.take(30), Some(100), "the better fit");
        assert_eq!(runs.take(40), Some(0));
        assert_eq!(runs.take(11), None);
        assert_eq!(runs.take_highest(4), Some((46, 4)));
        assert_eq!(runs.bytes(), 6);
    }

    proptest! {
        /// Against a map of single addresses.
        #[test]
        fn ranges_are_never_lost_or_lent_twice(
            steps in proptest::collection::vec((any::<bool>(), 1usize..40), 1..200),
        ) {
            const ALL: usize = 500;
            let mut runs = FreeRuns::default();
            runs.insert(0, ALL);
            let mut free = [true; ALL];
            let mut lent: Vec<(usize, usize)> = Vec::new();
            for (take, number) in steps {
                if take {
                    let longest = free.split(|free| !free).map(<[bool]>::len).max().unwrap_or(0);
                    let taken = runs.take(number);
                    prop_assert_eq!(taken.is_some(), longest >= number);
                    if let Some(start) = taken {
                        prop_assert!(free[start..start + number].iter().all(|free| *free));
                        free[start..start + number].fill(false);
                        lent.push((start, number));
                    }
                } else if !lent.is_empty() {
                    let (start, bytes) = lent.swap_remove(number % lent.len());
                    free[start..start + bytes].fill(true);
                    runs.insert(start, bytes);
                }
                prop_assert_eq!(runs.bytes(), free.iter().filter(|free| **free).count());
            }
        }
    }
}
