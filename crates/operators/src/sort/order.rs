//! Pure: rows put in order by the first bytes of their keys, then by the rest.

use std::cmp::Ordering;

use crate::{Result, Stop};

/// A row to be sorted: eight bytes of its key, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) prefix: u64,
    pub(super) batch: u32,
    pub(super) row: u32,
}

/// Up to this many entries are sorted by comparisons: they fit in a core's cache, and it takes a few milliseconds.
const COMPARED_COUNT_MAX: usize = 1 << 14;
const BUCKET_COUNT: usize = 256;

/// Sorts by prefix, then by `compare`, which is asked about entries with equal prefixes only.
pub(super) fn sort(
    entries: &mut [Entry],
    compare: &impl Fn(&Entry, &Entry) -> Ordering,
    stop: &Stop,
) -> Result<()> {
    sort_from_byte(entries, 0, compare, stop)
}

/// Sorts entries whose prefixes have their first `byte` bytes in common.
fn sort_from_byte(
    entries: &mut [Entry],
    byte: u32,
    compare: &impl Fn(&Entry, &Entry) -> Ordering,
    stop: &Stop,
) -> Result<()> {
    stop.check()?;
    if entries.len() <= COMPARED_COUNT_MAX || byte == 8 {
        let by_all = |a: &Entry, b: &Entry| a.prefix.cmp(&b.prefix).then_with(|| compare(a, b));
        entries.sort_unstable_by(by_all);
        return Ok(());
    }
    let bucket_of = |entry: &Entry| (entry.prefix >> (56 - 8 * byte)) as usize % BUCKET_COUNT;
    let ends = distribute(entries, bucket_of);
    let mut start = 0;
    for end in ends {
        sort_from_byte(&mut entries[start..end], byte + 1, compare, stop)?;
        start = end;
    }
    Ok(())
}

/// Brings entries together by bucket, in place, and returns where each bucket ends.
fn distribute(entries: &mut [Entry], bucket_of: impl Fn(&Entry) -> usize) -> [usize; BUCKET_COUNT] {
    let mut counts = [0; BUCKET_COUNT];
    for entry in &*entries {
        counts[bucket_of(entry)] += 1;
    }
    let mut next = [0; BUCKET_COUNT];
    let mut ends = [0; BUCKET_COUNT];
    let mut sum = 0;
    for bucket in 0..BUCKET_COUNT {
        next[bucket] = sum;
        sum += counts[bucket];
        ends[bucket] = sum;
    }
    for bucket in 0..BUCKET_COUNT {
        while next[bucket] < ends[bucket] {
            let at = next[bucket];
            let home = bucket_of(&entries[at]);
            entries.swap(at, next[home]);
            next[home] += 1;
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        #[test]
        fn entries_end_up_as_comparing_puts_them(
            seed: u64,
            count in 0usize..60_000,
            bits in 0u32..64,
            shift in 0u32..64,
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut entry = |row: usize| Entry {
                prefix: random.u64(..).checked_shr(64 - bits).unwrap_or(0) << shift,
                batch: random.u32(..3),
                row: row as u32,
            };
            let mut entries: Vec<Entry> = (0..count).map(&mut entry).collect();
            let mut expected = entries.clone();
            let place = |a: &Entry, b: &Entry| (a.batch, a.row).cmp(&(b.batch, b.row));
            expected.sort_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| place(a, b)));
            sort(&mut entries, &place, &Stop::default()).unwrap();
            prop_assert_eq!(entries, expected);
        }
    }

    #[test]
    fn sorting_ends_when_nobody_waits() {
        let stop = Stop::default();
        stop.raise();
        assert!(sort(&mut [], &|_, _| Ordering::Equal, &stop).is_err());
    }
}
