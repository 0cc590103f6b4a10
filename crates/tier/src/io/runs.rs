//! Pure: free address ranges, joined with their neighbours, found by size.
//!
//! Ranges are kept by classes of size, and within a class the one at the lowest address is taken: use gathers at
//! the bottom and the top becomes free in long ranges.

use std::collections::{BTreeMap, BTreeSet};

/// Sizes between two powers of two fall into this many classes.
const CLASSES_PER_DOUBLING: u32 = 4;

/// This many ranges of the wanted size's own class are looked at, some of which are too small.
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
        let own_class = || {
            self.by_class
                .range((class_of(bytes), 0)..(class_of(bytes) + 1, 0))
        };
        let sure = self.by_class.range((class_above(bytes), 0)..).take(1);
        let tries = own_class().take(TRIES_COUNT).chain(sure).chain(own_class());
        let (run, run_bytes) = tries.map(|key| self.run(key)).find(|run| run.1 >= bytes)?;
        self.carve((run, run_bytes), run, bytes);
        Some(run)
    }

    /// Takes a range of exactly this size out of one that holds no whole block.
    pub(super) fn take_fragment(&mut self, bytes: usize, block: usize) -> Option<usize> {
        if bytes >= 2 * block {
            return None; // There is a whole block in any range as large.
        }
        let classes = (class_of(bytes), 0)..(class_of(2 * block) + 1, 0);
        let fits = |&(run, run_bytes): &(usize, usize)| {
            run_bytes >= bytes && blocks_of(run, run_bytes, block).is_none()
        };
        let tries = self.by_class.range(classes).take(TRIES_COUNT);
        let (run, run_bytes) = tries.map(|key| self.run(key)).find(fits)?;
        self.carve((run, run_bytes), run, bytes);
        Some(run)
    }

    /// Takes whole blocks of together this size (a multiple of a block), one after the other.
    pub(super) fn take_blocks(&mut self, bytes: usize, block: usize) -> Option<usize> {
        let sure = self
            .by_class
            .range((class_above(bytes.checked_add(block)?), 0)..)
            .take(1);
        let tries = self
            .by_class
            .range((class_of(bytes), 0)..)
            .take(TRIES_COUNT)
            .chain(sure);
        let (run, start) = tries.map(|key| self.run(key)).find_map(|run| {
            let (start, blocks_bytes) = blocks_of(run.0, run.1, block)?;
            (blocks_bytes >= bytes).then_some((run, start))
        })?;
        self.carve(run, start, bytes);
        Some(start)
    }

    /// Takes whole blocks, at most this many bytes (or one block), out of a large range.
    pub(super) fn take_blocks_of_largest(
        &mut self,
        bytes_max: usize,
        block: usize,
    ) -> Option<(usize, usize)> {
        let tries = self
            .by_class
            .range((class_of(block), 0)..)
            .rev()
            .take(TRIES_COUNT);
        let (run, (start, blocks_bytes)) = tries
            .map(|key| self.run(key))
            .find_map(|run| Some((run, blocks_of(run.0, run.1, block)?)))?;
        let bytes = blocks_bytes.min(bytes_max.next_multiple_of(block));
        let start = start + blocks_bytes - bytes;
        self.carve(run, start, bytes);
        Some((start, bytes))
    }

    /// Takes up to this many bytes from the end of the range at the highest address.
    pub(super) fn take_highest(&mut self, bytes_max: usize) -> Option<(usize, usize)> {
        let (&run, &run_bytes) = self.by_start.last_key_value()?;
        let bytes = run_bytes.min(bytes_max);
        let start = run + run_bytes - bytes;
        self.carve((run, run_bytes), start, bytes);
        Some((start, bytes))
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

    /// Takes part of a range; the rest stays.
    fn carve(&mut self, (run, run_bytes): (usize, usize), start: usize, bytes: usize) {
        self.remove(run, run_bytes);
        if start > run {
            self.add(run, start - run);
        }
        let (end, run_end) = (start + bytes, run + run_bytes);
        if run_end > end {
            self.add(end, run_end - end);
        }
    }

    fn run(&self, &(_, start): &(u32, usize)) -> (usize, usize) {
        (start, self.by_start[&start])
    }
}

/// Start and size of the whole blocks inside a range, if there are any.
fn blocks_of(start: usize, bytes: usize, block: usize) -> Option<(usize, usize)> {
    let first = start.checked_next_multiple_of(block)?;
    let end = start + bytes - (start + bytes) % block;
    (end > first).then(|| (first, end - first))
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

    #[test]
    fn whole_blocks_and_fragments_are_told_apart() {
        let mut runs = FreeRuns::default();
        runs.insert(7, 16);
        runs.insert(101, 8);
        assert_eq!(
            runs.take_fragment(9, 10),
            None,
            "7..23 holds the block 10..20"
        );
        assert_eq!(runs.take_fragment(3, 10), Some(101));
        assert_eq!(runs.take_blocks(20, 10), None);
        assert_eq!(runs.take_blocks(10, 10), Some(10));
        assert_eq!(runs.bytes(), 3 + 3 + 5);
        assert_eq!(runs.take_blocks_of_largest(1, 10), None);
        runs.insert(205, 40);
        assert_eq!(runs.take_blocks_of_largest(11, 10), Some((220, 20)));
        assert_eq!(runs.take_blocks_of_largest(100, 10), Some((210, 10)));
    }

    proptest! {
        /// Against a map of single addresses.
        #[test]
        fn ranges_are_never_lost_or_lent_twice(
            steps in proptest::collection::vec((0..8, 1usize..40), 1..200),
        ) {
            const ALL: usize = 500;
            let mut runs = FreeRuns::default();
            runs.insert(0, ALL);
            let mut free = [true; ALL];
            let mut lent: Vec<(usize, usize)> = Vec::new();
            for (step, number) in steps {
                let longest = free.split(|free| !free).map(<[bool]>::len).max().unwrap_or(0);
                let mut lend = |(start, bytes): (usize, usize)| {
                    assert!(free[start..start + bytes].iter().all(|free| *free));
                    free[start..start + bytes].fill(false);
                    lent.push((start, bytes));
                };
                let blocks = number.next_multiple_of(8);
                match step {
                    0 => runs.take_highest(number).into_iter().for_each(lend),
                    1 => runs.take_fragment(number, 8).into_iter().for_each(|s| lend((s, number))),
                    2 => runs.take_blocks(blocks, 8).into_iter().for_each(|s| lend((s, blocks))),
                    3 => runs.take_blocks_of_largest(number, 8).into_iter().for_each(lend),
                    4 => {
                    let taken = runs.take(number);
                    prop_assert_eq!(taken.is_some(), longest >= number);
                    taken.into_iter().for_each(|s| lend((s, number)));
                    }
                    _ if lent.is_empty() => {}
                    _ => {
                    let (start, bytes) = lent.swap_remove(number % lent.len());
                    free[start..start + bytes].fill(true);
                    runs.insert(start, bytes);
                    }
                }
                prop_assert_eq!(runs.bytes(), free.iter().filter(|free| **free).count());
            }
        }
    }
}
